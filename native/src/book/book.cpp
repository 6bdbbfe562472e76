#include "tapewire/book/book.hpp"

#include <cassert>
#include <type_traits>

#include "scale.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

using format::BookMode;
using format::EventType;
using format::Side;
using market::BookEvent;

namespace {

// The sink of events for which no rows are wanted.
struct NoRows {
    void level(const L2&) noexcept {}
    void undone() noexcept {}
    void event(const Book&) noexcept {}
};

// Whether a size is below 0: checked for all before the first is applied, since an event is applied
// entirely or not at all.
bool any_negative(const std::byte* levels, std::uint32_t count) noexcept {
    std::uint64_t signs = 0;
    for (std::uint32_t i = 0; i < count; ++i)
        signs |= static_cast<std::uint64_t>(market::level_at(levels, i).size);
    return signs >> 63 != 0;
}

// Reverts the first `count` deltas, the last one first: sizes return through their former values,
// so each fits again.
void undo_deltas(L2::Side& side, const std::byte* levels, std::uint32_t count) {
    while (count-- > 0) {
        const format::Level level = market::level_at(levels, count);
        L2::add(side, level.price, -level.size);
    }
}

struct RowPerLevel {
    std::vector<TopRow>& rows;
    std::int64_t timestamp_ns;
    std::size_t before = rows.size();

    void level(const L2& l2) {
        const L2::Side& bids = l2.side(Side::buy);
        const L2::Side& asks = l2.side(Side::sell);
        TopRow& row = rows.emplace_back(TopRow{timestamp_ns, 0, 0, 0, 0});
        if (!bids.empty()) {
            row.bid_price = bids.best_price();
            row.bid_size = bids.best_value();
        }
        if (!asks.empty()) {
            row.ask_price = asks.best_price();
            row.ask_size = asks.best_value();
        }
    }
    void undone() noexcept { rows.resize(before); }
    // For an event without a level.
    void event(const Book& book) {
        if (rows.size() == before) rows.push_back(book.top_row(timestamp_ns));
    }
};

}  // namespace

Book::Book(const Options& options)
    : options_(options),
      distrust_(options.mode == BookMode::l2 ? Distrust::no_snapshot : Distrust::none) {
    if (options.price_scale > format::kMaxScale || options.size_scale > format::kMaxScale)
        throw Error(Errc::invalid_option, "a scale must be at most 18: price_scale=" +
                                              std::to_string(options.price_scale) +
                                              ", size_scale=" + std::to_string(options.size_scale));
}

void Book::set_scales(std::uint8_t price_scale, std::uint8_t size_scale) noexcept {
    assert(level_count(Side::buy) == 0 && level_count(Side::sell) == 0 && order_count() == 0);
    assert(price_scale <= format::kMaxScale && size_scale <= format::kMaxScale);
    options_.price_scale = price_scale;
    options_.size_scale = size_scale;
}

Applied Book::apply(const BookEvent& event, std::uint64_t record_seq) {
    NoRows sink;
    return apply_any(event, record_seq, sink);
}

Applied Book::apply(const BookEvent& event, std::uint64_t record_seq, std::vector<TopRow>& tops) {
    RowPerLevel sink{tops, static_cast<std::int64_t>(event.head.ingest_ts_ns)};
    return apply_any(event, record_seq, sink);
}

template <typename Sink>
Applied Book::apply_any(const BookEvent& event, std::uint64_t record_seq, Sink& sink) {
    note(event.mode(), event.head.venue_id, event.head.market_id, record_seq,
         event.head.ingest_ts_ns, event.head.exchange_ts_ns);
    return guarded([&] {
        Applied applied = Applied::ignored;
        if (!quarantined_) [[likely]] {
            if (event.type() == EventType::loss) [[unlikely]] {
                applied = apply_loss(event.loss);
            } else if (options_.mode == BookMode::l2) {
                applied = apply_l2(event, record_seq, sink);
            } else {
                const std::uint32_t phase_before = phase_;
                if (event.head.record_len > sizeof event.head)
                    phase_ = event.order.flags & kL3Phase;
                applied = apply_l3(event.order, event.price_scale, event.size_scale, phase_before);
            }
        }
        sink.event(*this);
        return applied;
    });
}

Applied Book::apply(const market::OrderEvent& event, std::uint64_t record_seq) {
    note(BookMode::l3, event.venue_id, event.market_id, record_seq, event.ingest_ts_ns,
         event.exchange_ts_ns);
    return guarded([&] {
        if (quarantined_) [[unlikely]]
            return Applied::ignored;
        const std::uint32_t phase_before = phase_;
        phase_ = event.order.flags & kL3Phase;
        return apply_l3(event.order, event.order.price_scale, event.order.size_scale, phase_before);
    });
}

template <typename F>
Applied Book::guarded(F&& take) {
    Applied applied;
    try {
        applied = take();
    } catch (const Error&) {
        throw;  // thrown by a rule, before anything was changed
    } catch (...) {
        // Out of memory somewhere within the event. No gap is recorded: that would take memory.
        if (trusted()) distrust_ = Distrust::interrupted;
        to_raise_ = false;
        throw;
    }
    if (to_raise_) [[unlikely]]
        throw_if_raised();
    return applied;
}

void Book::check_ours(BookMode mode, std::uint16_t venue_id, std::uint32_t market_id) {
    if (mode != options_.mode)
        throw Error(Errc::invalid_option,
                    "event and book have different modes: event.book_mode=" +
                        std::to_string(static_cast<int>(mode)) +
                        ", book_mode=" + std::to_string(static_cast<int>(options_.mode)),
                    {}, -1, "apply levels (0) to an L2Book, orders (1) to an L3Book");
    if (bound_)
        throw Error(
            Errc::invalid_option,
            "the event belongs to another instrument: event.venue_id=" + std::to_string(venue_id) +
                ", event.market_id=" + std::to_string(market_id) + ", venue_id=" +
                std::to_string(venue_id_) + ", market_id=" + std::to_string(market_id_),
            {}, -1, "use one book per instrument, as replay.Replay does");
    bound_ = true;
    venue_id_ = venue_id;
    market_id_ = market_id;
}

// ---- levels ------------------------------------------------------------------------------------

template <typename Sink>
Applied Book::apply_l2(const BookEvent& event, std::uint64_t record_seq, Sink& sink) {
    switch (event.type()) {
        case EventType::diff:
            return apply_diff(event, record_seq, sink);
        case EventType::snapshot:
            return apply_snapshot(event);
        case EventType::reset:
            l2_.clear();
            waiting_.clear();  // ids restart: no later snapshot covers the earlier diffs
            last_update_ = 0;
            distrust_ = Distrust::reset;
            return Applied::changed;
        case EventType::heartbeat:
        case EventType::loss:
            break;
    }
    return Applied::unchanged;
}

template <typename Sink>
Applied Book::apply_diff(const BookEvent& event, std::uint64_t record_seq, Sink& sink) {
    const std::uint64_t prev = event.update_prev, last = event.update_last;
    const bool numbered = (prev | last) != 0;
    if (!trusted()) [[unlikely]] {
        const bool follows = numbered && last_update_ != 0 && prev >= last_update_;
        if (!follows || !is_loss(distrust_)) return hold(event, record_seq);
        trust_by_ids(prev);
        if (!trusted()) return hold(event, record_seq);
    }
    if (numbered && last_update_ != 0 && prev != last_update_) [[unlikely]] {
        if (last <= last_update_) return Applied::unchanged;
        if (prev > last_update_) {
            distrust(Distrust::venue_gap, last_update_ + 1, prev);
            return hold(event, record_seq);
        }
        if (event.delta) {
            distrust(Distrust::overlap);
            return hold(event, record_seq);
        }
    }
    // Also kept if it could not be applied: its ids then show which snapshot repairs the book.
    if (!apply_levels(event, sink)) [[unlikely]]
        return hold(event, record_seq);
    if (numbered) last_update_ = last;
    return unless_crossed();
}

// A venue that shows complete updates, and trades orders that match before, shows no crossed book.
Applied Book::unless_crossed() {
    if (options_.rules == Rules::continuous && l2_.crossed()) [[unlikely]]
        return distrust(Distrust::crossed);
    return Applied::changed;
}

template <typename Sink>
bool Book::apply_levels(const BookEvent& event, Sink& sink) {
    if (event.price_scale != options_.price_scale || event.size_scale != options_.size_scale)
        [[unlikely]] {
        BookEvent at_our_scale;
        return rescale(event, at_our_scale) && apply_levels(at_our_scale, sink);
    }
    L2::Side& bids = l2_.side(Side::buy);
    L2::Side& asks = l2_.side(Side::sell);
    if (event.delta) [[unlikely]]
        return apply_deltas(event, sink);
    if (any_negative(event.bids, event.bid_count) || any_negative(event.asks, event.ask_count))
        [[unlikely]] {
        distrust(Distrust::negative_size);
        return false;
    }
    const auto set_all = [&](L2::Side& side, const std::byte* levels, std::uint32_t count) {
        const auto level_at = [levels](std::uint32_t i) { return market::level_at(levels, i); };
        if constexpr (std::is_same_v<Sink, NoRows>) {
            side.set_all(count, level_at);
        } else {
            for (std::uint32_t i = 0; i < count; ++i) {
                const format::Level level = level_at(i);
                side.set(level.price, level.size);
                sink.level(l2_);
            }
        }
    };
    if (event.type() == EventType::snapshot) l2_.clear();
    set_all(bids, event.bids, event.bid_count);
    set_all(asks, event.asks, event.ask_count);
    return true;
}

template <typename Sink>
bool Book::apply_deltas(const BookEvent& event, Sink& sink) {
    L2::Sum sum = L2::Sum::done;
    const auto add_all = [&](L2::Side& side, const std::byte* levels, std::uint32_t count) {
        std::uint32_t done = 0;
        for (; done < count; ++done) {
            const format::Level level = market::level_at(levels, done);
            sum = L2::add(side, level.price, level.size);
            if (sum != L2::Sum::done) [[unlikely]]
                break;
            sink.level(l2_);
        }
        return done;
    };
    L2::Side& bids = l2_.side(Side::buy);
    L2::Side& asks = l2_.side(Side::sell);
    const std::uint32_t bids_done = add_all(bids, event.bids, event.bid_count);
    const std::uint32_t asks_done =
        sum == L2::Sum::done ? add_all(asks, event.asks, event.ask_count) : 0;
    if (sum == L2::Sum::done) return true;
    undo_deltas(asks, event.asks, asks_done);
    undo_deltas(bids, event.bids, bids_done);
    sink.undone();
    distrust(sum == L2::Sum::negative ? Distrust::negative_size : Distrust::does_not_fit);
    return false;
}

Applied Book::apply_snapshot(const BookEvent& event) {
    NoRows none;
    // An invalid snapshot is ignored: the book, and the diffs that wait for a valid one, stay.
    if (!apply_levels(event, none)) return Applied::ignored;
    last_update_ = event.update_last;
    trust();
    const Applied applied = unless_crossed();
    // Without an id it is unknown which of them it contains; in the log they came before it.
    if (last_update_ == 0) waiting_.clear();
    // Ends early if they have a gap too: apply_diff then buffers the rest again.
    if (!waiting_.empty())
        waiting_.drain([&](const BookEvent& diff, std::uint64_t seq) {
            if (!quarantined_) apply_diff(diff, seq, none);
        });
    return applied;
}

Applied Book::hold(const BookEvent& diff, std::uint64_t record_seq) {
    // Without ids it would be unknown whether a later snapshot contains it already.
    if (quarantined_ || (diff.update_prev | diff.update_last) == 0) return Applied::ignored;
    waiting_.push(diff, record_seq);
    return Applied::buffered;
}

bool Book::rescale(const BookEvent& event, BookEvent& out) {
    const Rescale price(event.price_scale, options_.price_scale);
    const Rescale size(event.size_scale, options_.size_scale);
    rescaled_.clear();
    rescaled_.reserve(std::size_t{event.bid_count} + event.ask_count);
    const auto convert = [&](const std::byte* levels, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) {
            format::Level level = market::level_at(levels, i);
            if (!price(level.price) || !size(level.size)) return false;
            rescaled_.push_back(level);
        }
        return true;
    };
    if (!convert(event.bids, event.bid_count) || !convert(event.asks, event.ask_count)) {
        distrust(Distrust::does_not_fit);
        return false;
    }
    out = event;
    out.price_scale = options_.price_scale;
    out.size_scale = options_.size_scale;
    out.bids = reinterpret_cast<const std::byte*>(rescaled_.data());
    out.asks = out.bids + std::size_t{event.bid_count} * sizeof(format::Level);
    return true;
}

}  // namespace tapewire::book
