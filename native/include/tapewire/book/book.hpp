// The book of one instrument: its levels or orders, and whether it can be trusted.
//
// An L2 book is untrusted until its first snapshot, then follows the venue's update ids. With S the
// last id applied, a diff (prev, last] is
//
//   prev == S          the next one                            applied
//   last <= S          already applied                         unchanged
//   prev <  S < last   the first after a snapshot, or an       applied, unless it holds deltas
//                      overlap of absolute sizes
//   prev >  S          S+1 … prev are missing: a gap           by GapPolicy
//
// A diff without ids (prev and last 0) is always applied. After a snapshot without an id
// (native_seq 0), the next diff sets S. An L3 book starts empty and trusted; a reset ends whatever
// made it untrusted (see Distrust). A loss event makes either book untrusted; a diff with prev == S
// shows that no diff was lost, and ends that.
//
// An untrusted book is frozen at its last state. A book belongs to one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
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
    std::int64_t price = 0;  // 0 if it has no price
    std::int64_t remaining = 0;
    format::Side side = format::Side::unknown;
    bool rests = false;  // has a price
};

class Book {
  public:
    explicit Book(const Options& options);
    Book(Book&&) noexcept = default;
    Book& operator=(Book&&) noexcept = default;

    // Throws, depending on the policy, gap_detected(first, last), corrupt_record (a size below 0, a
    // number that does not fit) or unknown_order; then the event has changed nothing but the trust
    // in the book, and the next event may follow. std::bad_alloc leaves the book untrusted. Throws
    // invalid_option, with nothing changed, for an event of the other mode or of another instrument
    // than the first event.
    Applied apply(const market::BookEvent& event, std::uint64_t record_seq);
    Applied apply(const market::OrderHead& head, const format::L3Event& order,
                  std::uint64_t record_seq);
    // The same; adds a row for each level of an applied diff, or one row for any other event.
    Applied apply(const market::BookEvent& event, std::uint64_t record_seq,
                  std::vector<TopRow>& tops);

    // Of a book that has no levels and no orders yet.
    void set_scales(std::uint8_t price_scale, std::uint8_t size_scale) noexcept;

    // For loops that know which orders come next.
    const L3& l3() const noexcept { return l3_; }

    // The log lacks these records. Throws as apply does.
    void record_gap(std::uint64_t first, std::uint64_t last, std::uint64_t seq = 0,
                    std::int64_t timestamp_ns = 0);
    // Ends a quarantine: the book waits for a snapshot (L3: a reset) as with `resync`.
    void release() noexcept { quarantined_ = false; }

    // False if the side is empty.
    bool best(format::Side side, format::Level& out) const noexcept;
    TopRow top_row(std::int64_t timestamp_ns) const noexcept;
    // At most `n` levels, best first; returns how many it wrote.
    std::size_t top(format::Side side, std::size_t n, LevelRow* out) const;
    // Calls f(price, size) for the levels, best first, until it returns false; returns f.
    template <typename F>
    F walk_levels(format::Side side, F f) const;
    std::size_t level_count(format::Side side) const noexcept;
    // Sum of the sizes of the best `n` levels, capped at the largest 64-bit number.
    std::int64_t depth(format::Side side, std::size_t n) const noexcept;
    // Whether the best bid is not below the best ask.
    bool crossed() const noexcept;

    // XXH3-128 over every level, bids then asks, each best first: see docs/formats/book-payload.md.
    Hash128 hash() const;

    bool trusted() const noexcept { return distrust_ == Distrust::none; }
    Distrust distrust() const noexcept { return distrust_; }
    // A readable sentence; empty if trusted.
    std::string distrust_reason() const;
    bool quarantined() const noexcept { return quarantined_; }
    const std::vector<Gap>& gaps() const noexcept { return gaps_; }

    const Options& options() const noexcept { return options_; }
    std::uint64_t last_update() const noexcept { return last_update_; }  // S; 0: unknown
    // Of the last event passed to apply(), whatever the result.
    std::uint64_t last_seq() const noexcept { return last_seq_; }
    std::int64_t last_timestamp_ns() const noexcept { return last_timestamp_ns_; }
    std::uint64_t last_exchange_ns() const noexcept { return last_exchange_ns_; }
    // kL3OpeningAuction, kL3ClosingAuction and kL3RestrictedCancel of the last L3 event.
    std::uint32_t phase() const noexcept { return phase_; }
    std::size_t waiting() const noexcept { return waiting_.size(); }  // diffs buffered

    // L3 only; false in an L2 book, which has no orders.
    bool order(std::uint64_t id, OrderRow& out) const noexcept;
    // The orders ahead of this order at its price; false if it has no price.
    bool queue_position(std::uint64_t id, std::uint64_t& orders_ahead,
                        std::int64_t& size_ahead) const noexcept;
    // In queue order, oldest first.
    std::vector<OrderRow> orders(format::Side side, std::int64_t price) const;
    std::uint32_t order_count(format::Side side, std::int64_t price) const noexcept;
    std::size_t order_count() const noexcept { return l3_.order_count(); }
    // Events that named an order not in the book, or added one that is.
    std::uint64_t unknown_count() const noexcept { return unknown_count_; }
    std::size_t memory_bytes() const noexcept;

    // The content of a snapshot file for this book; throws invalid_option if it is untrusted.
    void save(std::vector<std::byte>& out) const;
    // Throws corrupt_metadata or unsupported_version for invalid bytes, and invalid_option if the
    // mode, the scales or the rules differ from those of `options`.
    static Book load(std::span<const std::byte> payload, const Options& options);
    // The same for any book, with the diffs that wait for a snapshot if it is untrusted: for
    // resuming in the same release. Snapshot files are not made from it.
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
    Applied unless_crossed();
    Applied hold(const market::BookEvent& diff, std::uint64_t record_seq);
    bool rescale(const market::BookEvent& event, market::BookEvent& out);

    Applied apply_l3(const format::L3Event& event, std::uint8_t price_scale,
                     std::uint8_t size_scale);
    Applied take_l3(const format::L3Event& event, std::uint8_t price_scale,
                    std::uint8_t size_scale);
    Applied apply_reset();
    Applied apply_rescaled(const format::L3Event& event, std::uint8_t price_scale,
                           std::uint8_t size_scale);
    Applied apply_loss(const format::Loss& loss);
    Applied apply_order(const format::L3Event& e, std::uint32_t phase_before);
    Applied apply_by_type(const format::L3Event& e);
    Applied add_order(const format::L3Event& e);
    Applied add_at(const format::L3Event& e, std::int64_t price);
    Applied add_specially(const format::L3Event& e);
    Applied cancel_order(const format::L3Event& e);
    Applied modify_order(const format::L3Event& e);
    Applied trade(const format::L3Event& e);
    Applied trade_both(const format::L3Event& e);
    void fill(const L3::Place& place, const format::L3Event& e);
    Applied unknown(std::uint64_t id, Distrust cause);
    bool is_unpriced(const format::L3Event& e) const noexcept;
    bool contradicts(const format::L3Event& e, std::uint32_t slot,
                     format::Side side) const noexcept;
    void await_price(std::uint32_t slot, std::int64_t price);
    void settle();

    // Checks that an event may be applied, and stores its times and sequence number.
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
    // After a loss: a diff that continues from the update id `prev` shows what was lost.
    void trust_by_ids(std::uint64_t prev);
    void throw_if_raised();

    // SZSE: the rest of a market order gets the price of its last trade as soon as the next event
    // is about something else.
    struct Settling {
        bool on = false;
        std::uint64_t id = 0;
        std::int64_t price = 0;
    };

    Options options_;
    Distrust distrust_;
    bool quarantined_ = false;
    bool to_raise_ = false;  // distrust() was called during this apply()
    bool bound_ = false;     // venue_id_ and market_id_ are set
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

template <typename F>
F Book::walk_levels(format::Side s, F f) const {
    if (options_.mode == format::BookMode::l2) return l2_.side(s).walk(std::move(f));
    struct WithSize {
        const L3& l3;
        F f;
        bool operator()(std::int64_t price, std::uint32_t at) {
            return f(price, l3.level(at).size);
        }
    };
    return l3_.side(s).walk(WithSize{l3_, std::move(f)}).f;
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
