#include "tapewire/book/book.hpp"

#include "scale.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

using format::BookMode;
using format::EventType;
using format::Side;
using market::BookEvent;

namespace {

// What is told after each level: nothing, or the top of the book.
struct NoRows {
    void level(const L2&) noexcept {}
    void event(const Book&) noexcept {}
};

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
    // Of an event that had no level to tell of.
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
    if (event.mode() != options_.mode || event.head.market_id != market_id_ ||
        event.head.venue_id != venue_id_ || !bound_) [[unlikely]]
        check_ours(event);
    last_seq_ = record_seq;
    last_timestamp_ns_ = static_cast<std::int64_t>(event.head.ingest_ts_ns);
    if (event.head.exchange_ts_ns != 0) last_exchange_ns_ = event.head.exchange_ts_ns;
    Applied applied = Applied::ignored;
    if (!quarantined_) [[likely]] {
        applied =
            options_.mode == BookMode::l2 ? apply_l2(event, record_seq, sink) : apply_l3(event);
    }
    sink.event(*this);
    if (to_raise_) [[unlikely]]
        throw_if_raised();
    return applied;
}

void Book::check_ours(const BookEvent& event) {
    if (event.mode() != options_.mode)
        throw Error(Errc::invalid_option,
                    "an event must be of the book's mode: event.book_mode=" +
                        std::to_string(event.head.book_mode) +
                        ", book_mode=" + std::to_string(static_cast<int>(options_.mode)),
                    {}, -1, "levels (0) go to an L2 book, orders (1) to an L3 book");
    if (bound_)
        throw Error(
            Errc::invalid_option,
            "a book is of one instrument: event.venue_id=" + std::to_string(event.head.venue_id) +
                ", event.market_id=" + std::to_string(event.head.market_id) + ", venue_id=" +
                std::to_string(venue_id_) + ", market_id=" + std::to_string(market_id_),
            {}, -1, "a book for each; replay.Replay keeps them");
    bound_ = true;
    venue_id_ = event.head.venue_id;
    market_id_ = event.head.market_id;
}

// ---- levels
// --------------------------------------------------------------------------------------

template <typename Sink>
Applied Book::apply_l2(const BookEvent& event, std::uint64_t record_seq, Sink& sink) {
    switch (event.type()) {
        case EventType::diff:
            return apply_diff(event, record_seq, sink);
        case EventType::snapshot:
            return apply_snapshot(event);
        case EventType::reset:
            l2_.clear();
            waiting_.clear();  // ids begin anew: what came before belongs to no snapshot to come
            last_update_ = 0;
            distrust_ = Distrust::reset;
            return Applied::changed;
        case EventType::heartbeat:
            break;
    }
    return Applied::unchanged;
}

template <typename Sink>
Applied Book::apply_diff(const BookEvent& event, std::uint64_t record_seq, Sink& sink) {
    if (!trusted()) [[unlikely]]
        return hold(event, record_seq);
    const std::uint64_t prev = event.update_prev, last = event.update_last;
    const bool numbered = (prev | last) != 0;
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
    // Held also when it could not be applied: by the chain of ids it then tells which snapshot
    // mends that.
    if (!apply_levels(event, sink)) [[unlikely]]
        return hold(event, record_seq);
    if (numbered) last_update_ = last;
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
    if (event.delta)
        return apply_side<true>(bids, event.bids, event.bid_count, sink) &&
               apply_side<true>(asks, event.asks, event.ask_count, sink);
    return apply_side<false>(bids, event.bids, event.bid_count, sink) &&
           apply_side<false>(asks, event.asks, event.ask_count, sink);
}

template <bool kDelta, typename Sink>
bool Book::apply_side(L2::Side& side, const std::byte* levels, std::uint32_t count, Sink& sink) {
    for (std::uint32_t i = 0; i < count; ++i) {
        const format::Level level = market::level_at(levels, i);
        if constexpr (kDelta) {
            const L2::Sum sum = L2::add(side, level.price, level.size);
            if (sum != L2::Sum::done) [[unlikely]] {
                distrust(sum == L2::Sum::negative ? Distrust::negative_size
                                                  : Distrust::does_not_fit);
                return false;
            }
        } else {
            if (level.size < 0) [[unlikely]] {
                distrust(Distrust::negative_size);
                return false;
            }
            side.set(level.price, level.size);
        }
        sink.level(l2_);
    }
    return true;
}

Applied Book::apply_snapshot(const BookEvent& event) {
    l2_.clear();
    last_update_ = event.update_last;
    trust();
    NoRows none;
    if (!apply_levels(event, none)) return Applied::ignored;
    // Ends early where there is a gap in them too: apply_diff then holds the rest again.
    if (!waiting_.empty())
        waiting_.drain([&](const BookEvent& diff, std::uint64_t seq) {
            if (!quarantined_) apply_diff(diff, seq, none);
        });
    return Applied::changed;
}

Applied Book::hold(const BookEvent& diff, std::uint64_t record_seq) {
    // Without ids nobody could tell whether a later snapshot has it already.
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
