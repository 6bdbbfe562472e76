// The book of one instrument: its levels or orders, and whether to believe them.
//
// An L2 book believes nothing before its first snapshot, and then follows the venue's update ids.
// With S the last id applied, a diff (prev, last] is
//
//   prev == S          the next one                            applied
//   last <= S          what is known already                   unchanged
//   prev <  S < last   the first after a snapshot, or an       applied, unless it holds deltas
//                      overlap of absolute sizes
//   prev >  S          S+1 … prev are missing: a gap           by GapPolicy
//
// A diff without ids (prev and last 0) is applied as it comes; a snapshot without one (native_seq
// 0) lets the next diff say where the ids stand. An L3 book starts empty and believed; what makes
// it untrusted (see Distrust) ends with a reset.
//
// An untrusted book is frozen as it was. A book belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tapewire/book/l2.hpp"
#include "tapewire/book/l3.hpp"
#include "tapewire/book/types.hpp"
#include "tapewire/book/waiting.hpp"
#include "tapewire/format/market.hpp"
#include "tapewire/market/event.hpp"
#include "tapewire/xxhash.hpp"

namespace tapewire::book {

struct OrderRow {
    std::uint64_t id = 0;
    std::int64_t price = 0;  // 0 when it rests nowhere
    std::int64_t remaining = 0;
    format::Side side = format::Side::unknown;
    bool rests = false;  // at a price
};

class Book {
  public:
    explicit Book(const Options& options);
    Book(Book&&) noexcept = default;
    Book& operator=(Book&&) noexcept = default;

    // Throws, by policy, gap_detected(first, last), corrupt_record (a size below 0, a number that
    // does not fit) or unknown_order; the event has then changed nothing but the trust in the book,
    // and the next one may follow. std::bad_alloc leaves it untrusted. Throws invalid_option, with
    // nothing changed, for an event of the other mode, or of another instrument than the first one
    // was of.
    Applied apply(const market::BookEvent& event, std::uint64_t record_seq);
    Applied apply(const market::OrderEvent& event, std::uint64_t record_seq);
    // The same, and a row for each level of an applied diff, or for the event when it is no diff of
    // levels.
    Applied apply(const market::BookEvent& event, std::uint64_t record_seq,
                  std::vector<TopRow>& tops);

    // For loops that see which orders are next.
    const L3& l3() const noexcept { return l3_; }

    // The tape itself lacks these records. Throws as apply does.
    void record_gap(std::uint64_t first, std::uint64_t last, std::uint64_t seq = 0,
                    std::int64_t timestamp_ns = 0);
    // Ends a quarantine: the book waits for a snapshot (L3: a reset) as by `resync`.
    void release() noexcept { quarantined_ = false; }

    // False when the side is empty.
    bool best(format::Side side, format::Level& out) const noexcept;
    TopRow top_row(std::int64_t timestamp_ns) const noexcept;
    // At most `n` levels, best first; how many there were.
    std::size_t top(format::Side side, std::size_t n, LevelRow* out) const;
    std::size_t level_count(format::Side side) const noexcept;
    // Sum of the sizes of the best `n` levels; at most the largest 64-bit number.
    std::int64_t depth(format::Side side, std::size_t n) const noexcept;
    // The best bid is not below the best ask.
    bool crossed() const noexcept;

    // XXH3-128 over every level, bids then asks, each best first: see docs/formats/book-payload.md.
    Hash128 hash() const;

    bool trusted() const noexcept { return distrust_ == Distrust::none; }
    Distrust distrust() const noexcept { return distrust_; }
    // A sentence for people; empty when trusted.
    std::string distrust_reason() const;
    bool quarantined() const noexcept { return quarantined_; }
    const std::vector<Gap>& gaps() const noexcept { return gaps_; }

    const Options& options() const noexcept { return options_; }
    std::uint64_t last_update() const noexcept { return last_update_; }  // S; 0: not known
    // Of the last event given, whatever became of it.
    std::uint64_t last_seq() const noexcept { return last_seq_; }
    std::int64_t last_timestamp_ns() const noexcept { return last_timestamp_ns_; }
    std::uint64_t last_exchange_ns() const noexcept { return last_exchange_ns_; }
    // kL3OpeningAuction, kL3ClosingAuction, kL3RestrictedCancel of the last L3 event.
    std::uint32_t phase() const noexcept { return phase_; }
    std::size_t waiting() const noexcept { return waiting_.size(); }  // diffs buffered

    // L3 only; an L2 book knows no order.
    bool order(std::uint64_t id, OrderRow& out) const noexcept;
    // What stands before this order at its price; false when it rests nowhere.
    bool queue_position(std::uint64_t id, std::uint64_t& orders_ahead,
                        std::int64_t& size_ahead) const noexcept;
    // First come first.
    std::vector<OrderRow> orders(format::Side side, std::int64_t price) const;
    std::uint32_t order_count(format::Side side, std::int64_t price) const noexcept;
    std::size_t order_count() const noexcept { return l3_.order_count(); }
    // Events that named an order which was not there, or added one that was.
    std::uint64_t unknown_count() const noexcept { return unknown_count_; }
    std::size_t memory_bytes() const noexcept;

    // What a snapshot file holds of a book; invalid_option for an untrusted one.
    void save(std::vector<std::byte>& out) const;
    // Throws corrupt_metadata or unsupported_version for any other bytes, and invalid_option where
    // the mode, the scales or the rules are not those of `options`.
    static Book load(std::span<const std::byte> payload, const Options& options);
    // The same of any book, with what an untrusted one waits with: to go on from, in this release.
    // No snapshot is made of it.
    void save_state(std::vector<std::byte>& out) const;
    static Book load_state(std::span<const std::byte> state, const Options& options);
    // Mode, scales and rules of a saved book; throws as load does. Policies are not saved.
    static Options saved_options(std::span<const std::byte> payload);

    bool consistent() const;  // for tests

  private:
    template <typename Sink>
    Applied apply_any(const market::BookEvent& event, std::uint64_t record_seq, Sink& sink);
    template <typename F>
    Applied guarded(F&& take);
    template <typename Sink>
    Applied apply_l2(const market::BookEvent& event, std::uint64_t record_seq, Sink& sink);
    template <typename Sink>
    Applied apply_diff(const market::BookEvent& event, std::uint64_t record_seq, Sink& sink);
    template <typename Sink>
    bool apply_levels(const market::BookEvent& event, Sink& sink);
    template <typename Sink>
    bool apply_deltas(const market::BookEvent& event, Sink& sink);
    Applied apply_snapshot(const market::BookEvent& event);
    Applied hold(const market::BookEvent& diff, std::uint64_t record_seq);
    bool rescale(const market::BookEvent& event, market::BookEvent& out);

    Applied apply_l3(const format::L3Event& order, std::uint8_t price_scale,
                     std::uint8_t size_scale);
    Applied apply_order(const format::L3Event& e);
    Applied add_order(const format::L3Event& e);
    Applied cancel_order(const format::L3Event& e);
    Applied modify_order(const format::L3Event& e);
    Applied trade(const format::L3Event& e);
    Applied unknown(std::uint64_t id, Distrust cause);
    bool is_unpriced(const format::L3Event& e) const noexcept;
    void await_price(std::uint32_t slot, std::int64_t price);
    void settle();

    // Whether an event may come in at all, and what is kept of each.
    void note(format::BookMode mode, std::uint16_t venue_id, std::uint32_t market_id,
              std::uint64_t record_seq, std::uint64_t ingest_ts_ns, std::uint64_t exchange_ts_ns) {
        if (mode != options_.mode || market_id != market_id_ || venue_id != venue_id_ || !bound_)
            [[unlikely]]
            check_ours(mode, venue_id, market_id);
        last_seq_ = record_seq;
        last_timestamp_ns_ = static_cast<std::int64_t>(ingest_ts_ns);
        if (exchange_ts_ns != 0) last_exchange_ns_ = exchange_ts_ns;
    }
    void put_payload(std::vector<std::byte>& out) const;
    void check_ours(format::BookMode mode, std::uint16_t venue_id, std::uint32_t market_id);
    Applied distrust(Distrust cause, std::uint64_t first = 0, std::uint64_t last = 0);
    void trust() noexcept;
    void throw_if_raised();

    // SZSE: what a market order leaves over rests at the price it last traded at, once the next
    // event is about something else.
    struct Settling {
        bool on = false;
        std::uint64_t id = 0;
        std::int64_t price = 0;
    };

    Options options_;
    Distrust distrust_;
    bool quarantined_ = false;
    bool to_raise_ = false;  // distrust() was called since apply() was
    bool bound_ = false;     // venue_id_ and market_id_ are known
    std::uint16_t venue_id_ = 0;
    std::uint32_t market_id_ = 0;
    std::uint32_t phase_ = 0;
    std::uint64_t last_update_ = 0;
    std::uint64_t last_seq_ = 0;
    std::int64_t last_timestamp_ns_ = 0;
    std::uint64_t last_exchange_ns_ = 0;
    std::uint64_t unknown_count_ = 0;
    Settling settling_;
    L2 l2_;
    L3 l3_;
    WaitingDiffs waiting_;
    std::vector<format::Level> rescaled_;
    std::vector<Gap> gaps_;
};

inline bool Book::best(format::Side s, format::Level& out) const noexcept {
    if (options_.mode == format::BookMode::l2) {
        const L2::Side& side = l2_.side(s);
        if (side.empty()) return false;
        out = {side.best_price(), side.best_value()};
    } else {
        const auto& side = l3_.side(s);
        if (side.empty()) return false;
        out = {side.best_price(), l3_.level(side.best_value()).size};
    }
    return true;
}

inline TopRow Book::top_row(std::int64_t timestamp_ns) const noexcept {
    TopRow row{timestamp_ns, 0, 0, 0, 0};
    if (!trusted()) return row;
    format::Level level;
    if (best(format::Side::buy, level)) {
        row.bid_price = level.price;
        row.bid_size = level.size;
    }
    if (best(format::Side::sell, level)) {
        row.ask_price = level.price;
        row.ask_size = level.size;
    }
    return row;
}

}  // namespace tapewire::book
