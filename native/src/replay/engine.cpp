#include "tapewire/replay/engine.hpp"

#include <algorithm>
#include <cassert>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/market.hpp"
#include "tapewire/format/record.hpp"

namespace tapewire::replay {

namespace {

// The wall clock is read once in this many records.
constexpr std::uint64_t kClockEvery = 4096;

template <class T>
T field(const RecordView& record, std::size_t offset) noexcept {
    T value;
    std::memcpy(&value, record.payload + offset, sizeof value);
    return value;
}

// Where a message of this type has its symbol_hash and market_id; payload_bytes 0: it has none.
struct SymbolPlace {
    std::uint32_t payload_bytes;
    std::size_t symbol_hash;
    std::size_t market_id;  // 0: none
};

SymbolPlace symbol_place(std::uint16_t type_id) noexcept {
    using namespace format;
    switch (type_id) {
        case kTradeTick:
            return {sizeof(TradeTick), offsetof(TradeTick, symbol_hash),
                    offsetof(TradeTick, market_id)};
        case kQuote:
            return {sizeof(Quote), offsetof(Quote, symbol_hash), offsetof(Quote, market_id)};
        case kTrade:
            return {sizeof(Trade), offsetof(Trade, symbol_hash), 0};
        case kBookTicker:
            return {sizeof(BookTicker), offsetof(BookTicker, symbol_hash), 0};
        default:
            return {0, 0, 0};
    }
}

Kind kind_of(std::uint16_t type_id) noexcept {
    if (type_id == format::kTradeTick) return Kind::trade;
    return type_id == format::kQuote ? Kind::quote : Kind::other;
}

bool is_damage(Errc code) noexcept {
    return code == Errc::corrupt_record || code == Errc::checksum_mismatch ||
           code == Errc::segment_missing || code == Errc::corrupt_metadata;
}

// A reset or heartbeat may consist of its header alone, and a loss has no levels either.
bool has_scales(const market::BookEvent& event) noexcept {
    return event.type() != format::EventType::loss && event.head.record_len > sizeof event.head;
}

// A valid record with an invalid message, or one of another release, or for another kind of book.
bool is_unreadable(Errc code) noexcept {
    return code == Errc::corrupt_record || code == Errc::unsupported_version ||
           code == Errc::invalid_option;
}

}  // namespace

Engine::Engine(Cursor& cursor, const EngineOptions& options) : cursor_(cursor), options_(options) {}

// ---- instruments --------------------------------------------------------------------------------

Market& Engine::add(std::uint16_t venue_id, std::uint32_t market_id, std::uint64_t symbol_hash,
                    std::optional<book::Options> options) {
    auto made = std::make_unique<Market>();
    made->venue_id = venue_id;
    made->market_id = market_id;
    if (const auto there = by_key_.find(made->key()); there != by_key_.end()) return *there->second;
    made->symbol_hash = symbol_hash;
    made->index = static_cast<std::uint32_t>(markets_.size());
    made->options = options;
    Market& market = *made;
    markets_.push_back(std::move(made));
    by_key_.emplace(market.key(), &market);
    if (symbol_hash != 0) by_symbol_.emplace(symbol_hash, &market);
    const auto [same_id, is_first] = by_market_id_.emplace(market_id, &market);
    if (!is_first) same_id->second = nullptr;
    return market;
}

void Engine::warm(Market& market, std::shared_ptr<book::Book> book, std::uint16_t source,
                  std::uint64_t seq, std::int64_t timestamp_ns) {
    assert(book && market.index < markets_.size() && markets_[market.index].get() == &market);
    market.book = std::move(book);
    market.warm_source = source;
    market.warm_seq = seq;
    market.warm_ns = timestamp_ns;
    market.sources.assign(1, source);
    market.rebuild_from = seq + 1;
    market.changed = false;
}

void Engine::saved(Market& market) noexcept {
    market.rebuild_from = last_seq_.value_or(0) + 1;
    market.changed = false;
}

void Engine::lost_before(std::uint16_t source, std::uint64_t first, std::uint64_t last) {
    TapeGap gap;
    gap.first = first;
    gap.last = last;
    gap.seq = first == 0 ? 0 : first - 1;
    gap.source = source;
    note_gap(std::move(gap), nullptr);
}

Market* Engine::market_of_event(const RecordView& record) {
    const auto venue = field<std::uint16_t>(record, offsetof(format::BookEventHeader, venue_id));
    const auto id = field<std::uint32_t>(record, offsetof(format::BookEventHeader, market_id));
    const std::uint64_t key = (std::uint64_t{venue} << 32) | id;
    if (last_market_ != nullptr && last_market_->key() == key) return last_market_;
    const auto there = by_key_.find(key);
    if (there != by_key_.end()) return last_market_ = there->second;
    return options_.only_added ? nullptr : (last_market_ = &add(venue, id));
}

Market* Engine::market_of_symbol(std::uint64_t symbol_hash,
                                 std::uint32_t market_id) const noexcept {
    if (const auto there = by_symbol_.find(symbol_hash); there != by_symbol_.end()) {
        return there->second;
    }
    if (market_id == 0) return nullptr;
    // Only the market id is available: sufficient if the instrument's own hash is unknown.
    const auto there = by_market_id_.find(market_id);
    if (there == by_market_id_.end() || there->second == nullptr) return nullptr;
    return there->second->symbol_hash == 0 ? there->second : nullptr;
}

// ---- gaps ---------------------------------------------------------------------------------------

std::uint16_t Engine::failed_source() const noexcept {
    return static_cast<std::uint16_t>(std::max(cursor_.failed(), 0));
}

// With GapPolicy::raise the book throws: the caller already has that error, or has reported it.
void Engine::distrust(Market& market, const TapeGap& gap) {
    try {
        market.book->record_gap(gap.first, gap.last, gap.seq, gap.timestamp_ns);
    } catch (const Error& e) {
        if (e.code != Errc::gap_detected) throw;
    }
}

// For all instruments of which the source had records, or for one.
void Engine::note_gap(TapeGap gap, Market* only) {
    for (const auto& market : markets_) {
        if (!market->book || (only != nullptr && only != market.get())) continue;
        if (std::find(market->sources.begin(), market->sources.end(), gap.source) ==
            market->sources.end()) {
            continue;
        }
        // A gap before the record of its snapshot does not affect it.
        if (market->warm_seq && market->warm_source == gap.source &&
            gap.last <= *market->warm_seq) {
            continue;
        }
        distrust(*market, gap);
        gap.markets.push_back(market.get());
    }
    tape_gaps_.push_back(std::move(gap));
    ++gap_changes_;
}

void Engine::show_gap(Step& out) {
    assert(!tape_gaps_.empty());
    const TapeGap& gap = tape_gaps_.back();
    out = Step();
    out.kind = Kind::gap;
    out.source = gap.source;
    out.record.seq = gap.seq;
    out.record.timestamp_ns = gap.timestamp_ns;
    out.time_ns = clock_ns_;
    out.gap = &gap;
    if (gap.markets.size() == 1) {
        out.market = gap.markets.front();
        out.book = out.market->book.get();
    }
}

// The record to process next. False at the end; `gap` is set if records are missing before it.
bool Engine::peek(RecordView& record, Step& out, bool& gap) {
    try {
        return cursor_.peek(record);
    } catch (const Error& e) {
        TapeGap lost;
        lost.source = failed_source();
        const bool any = lost.source < given_.size() && given_[lost.source].has_value();
        if (any) {
            lost.seq = given_[lost.source]->seq;
            lost.timestamp_ns = given_[lost.source]->timestamp_ns;
        }
        if (e.code == Errc::gap_detected) {
            lost.first = e.numbers[0];
            lost.last = e.numbers[1];
        } else if (options_.skip_damaged && is_damage(e.code)) {
            const Skipped skipped = cursor_.skip_damaged();
            if (skipped.bytes == 0) throw;  // no valid record after it yet
            lost.cause = TapeGap::Cause::damaged;
            lost.counted = skipped.numbers_known && skipped.last_seq >= skipped.first_seq;
            lost.first = lost.counted ? skipped.first_seq : lost.seq + 1;
            lost.last = lost.counted ? skipped.last_seq : lost.seq + 1;
        } else {
            throw;
        }
        if (!any && lost.first > 0) lost.seq = lost.first - 1;
        note_gap(std::move(lost), nullptr);
        if (options_.on_gap == book::GapPolicy::raise) throw;
        show_gap(out);
        gap = true;
        return true;
    }
}

// ---- records ------------------------------------------------------------------------------------

bool Engine::is_at_end(const RecordView& record) noexcept {
    ended_by_seq_ = options_.ends_at_seq && record.seq >= options_.end_seq;
    if (ended_by_seq_) return true;
    // The first record of that time or later is where the replay reaches it.
    if (options_.end_ns > record.timestamp_ns ||
        options_.end_ns == std::numeric_limits<std::int64_t>::max()) {
        return false;
    }
    ahead_ns_ = std::max(clock_ns_, record.timestamp_ns);
    ahead_seq_ = record.seq;
    return true;
}

bool Engine::is_shown() const noexcept {
    return clock_ns_ >= options_.show_from_ns &&
           (options_.show_from_seq == 0 || (last_seq_ && *last_seq_ >= options_.show_from_seq));
}

// Whether the snapshot from which the book was loaded already contains this record.
bool Engine::is_known(const Market& market, const RecordView& record,
                      std::uint16_t source) const noexcept {
    return market.warm_source == source ? record.seq <= *market.warm_seq
                                        : record.timestamp_ns <= market.warm_ns;
}

void Engine::make_book(Market& market, const market::BookEvent& event, std::uint16_t source) {
    assert(!market.book);
    book::Options options = market.options.value_or(book::Options{});
    options.mode = event.mode();
    if (!market.options) {
        options.price_scale = event.price_scale;
        options.size_scale = event.size_scale;
        market.scales_known = has_scales(event);
    }
    options.on_gap = options_.on_gap;
    options.unknown = options_.unknown;
    market.book = std::make_shared<book::Book>(options);
    market.rebuild_from = last_seq_.value_or(0);
    // Records lost before its first event may have belonged to it.
    for (TapeGap& gap : tape_gaps_) {
        if (gap.source != source || gap.cause == TapeGap::Cause::unreadable) continue;
        distrust(market, gap);
        gap.markets.push_back(&market);
    }
}

void Engine::apply(Market& market, const market::BookEvent& event, const RecordView& record,
                   Step& out) {
    book::Book& book = *market.book;
    const bool trusted = book.trusted();
    const std::size_t gaps = book.gaps().size();
    const auto note = [&] {
        if (trusted != book.trusted() || gaps != book.gaps().size()) ++gap_changes_;
    };
    try {
        out.applied = book.apply(event, record.seq);
    } catch (const Error&) {
        note();
        throw;
    }
    note();
    ++events_;
    // In an L3 book any event may give another order a price without changing the one it names.
    if (out.applied == book::Applied::changed || event.mode() == format::BookMode::l3)
        market.changed = true;
}

// A record without a valid message: skipped like damage if that is allowed.
bool Engine::take_unreadable(const RecordView& record, Step& out) {
    if (!options_.skip_damaged) return false;
    TapeGap lost;
    lost.cause = TapeGap::Cause::unreadable;
    lost.first = lost.last = lost.seq = record.seq;
    lost.timestamp_ns = record.timestamp_ns;
    lost.source = out.source;
    const bool named = record.type_id == format::kBookEvent &&
                       record.payload_len >= sizeof(format::BookEventHeader);
    Market* const market = named ? market_of_event(record) : nullptr;
    if (record.type_id == format::kBookEvent) {
        note_gap(std::move(lost), market);
    } else {  // no book is created for it
        tape_gaps_.push_back(std::move(lost));
        ++gap_changes_;
    }
    show_gap(out);
    return true;
}

Engine::Taken Engine::take_book(const RecordView& record, Step& out) {
    if (record.payload_len < sizeof(format::BookEventHeader)) {
        throw Error(Errc::corrupt_record, "a book event is shorter than its header: payload_len=" +
                                              std::to_string(record.payload_len));
    }
    Market* const market = market_of_event(record);
    if (market == nullptr) return Taken::passed;
    if (market->warm_seq && is_known(*market, record, out.source)) return Taken::passed;

    market::BookEvent& event = event_;
    market::decode_book_event(record, event);
    out.kind = Kind::book;
    out.market = market;
    if (!market->book) make_book(*market, event, out.source);
    if (!market->scales_known && has_scales(event)) [[unlikely]] {
        market->book->set_scales(event.price_scale, event.size_scale);
        market->scales_known = true;
    }
    auto& sources = market->sources;
    if (std::find(sources.begin(), sources.end(), out.source) == sources.end()) {
        sources.push_back(out.source);
    }
    out.book = market->book.get();
    apply(*market, event, record, out);
    return Taken::shown;
}

Engine::Taken Engine::take(const RecordView& record, Step& out) {
    if (record.type_id == format::kBookEvent) return take_book(record, out);
    out.kind = kind_of(record.type_id);
    const SymbolPlace place = symbol_place(record.type_id);
    if (place.payload_bytes != 0 && record.payload_len >= place.payload_bytes) {
        const auto id = place.market_id == 0 ? 0 : field<std::uint32_t>(record, place.market_id);
        out.market = market_of_symbol(field<std::uint64_t>(record, place.symbol_hash), id);
    }
    if (options_.only_added && out.market == nullptr) return Taken::passed;
    if (out.market != nullptr) out.book = out.market->book.get();
    if (out.kind == Kind::trade) out.trade = market::decode_trade(record);
    return Taken::shown;
}

Engine::Found Engine::advance(Step& out, std::uint64_t max_passed) {
    for (std::uint64_t passed = 0; passed < max_passed; ++passed) {
        RecordView record;
        bool gap = false;
        ahead_ns_.reset();
        if (!peek(record, out, gap)) {
            ended_by_seq_ = cursor_.is_over();
            finished_ = finished_ || ended_by_seq_;
            return Found::end;
        }
        if (gap && is_shown()) return Found::step;
        if (gap) continue;
        if (is_at_end(record)) {
            finished_ = true;
            return Found::end;
        }
        out.kind = Kind::other;
        out.applied = book::Applied::unchanged;
        out.market = nullptr;
        out.book = nullptr;
        out.gap = nullptr;
        out.record = record;
        cursor_.pass(record);
        out.source = cursor_.source();
        ++records_;
        bytes_ += format::record_bytes(record.payload_len);
        last_seq_ = record.seq;
        last_timestamp_ns_ = record.timestamp_ns;
        if (given_.size() <= out.source) given_.resize(out.source + std::size_t{1});
        given_[out.source] = Given{record.seq, record.timestamp_ns};
        clock_ns_ = std::max(clock_ns_, record.timestamp_ns);
        out.time_ns = clock_ns_;
        if (const Mapping* segment = record.owner->get(); segment != segment_) {
            rolls_ += segment_ != nullptr;
            segment_ = segment;
        }
        Taken taken;
        try {
            taken = take(record, out);
        } catch (const Error& e) {
            if (!is_unreadable(e.code) || !take_unreadable(record, out)) throw;
            taken = Taken::shown;
        }
        if (taken == Taken::shown && is_shown()) return Found::step;
    }
    return Found::pause;
}

bool Engine::next(Step& out) {
    for (;;) {
        const Found found = advance(out, kClockEvery);
        if (found != Found::pause) return found == Found::step;
    }
}

Stop Engine::run(const Limits& limits) {
    Step step;
    const std::uint64_t records = records_, bytes = bytes_, rolls = rolls_;
    std::uint64_t gaps = gap_changes_;
    const std::int64_t deadline = limits.slice_ns > 0 ? mono_ns() + limits.slice_ns : 0;
    std::uint64_t look_at = records_ + kClockEvery;
    for (;;) {
        const std::uint64_t before = records_;
        if (advance(step, 1) == Found::end) return Stop::end;
        if (limits.at_gap && gaps != gap_changes_) return Stop::gap;
        gaps = gap_changes_;
        if (before == records_) continue;  // a gap, and no record yet
        if (records_ - records >= limits.records) return Stop::records;
        if (bytes_ - bytes >= limits.bytes) return Stop::bytes;
        if (clock_ns_ >= limits.until_ns) return Stop::time;
        if (limits.at_roll && rolls != rolls_) return Stop::roll;
        if (deadline != 0 && records_ >= look_at) {
            look_at = records_ + kClockEvery;
            if (mono_ns() >= deadline) return Stop::slice;
        }
    }
}

Hash128 Engine::hash() const {
    std::vector<const Market*> sorted;
    for (const auto& market : markets_) {
        if (market->book) sorted.push_back(market.get());
    }
    std::sort(sorted.begin(), sorted.end(),
              [](const Market* a, const Market* b) { return a->key() < b->key(); });
    Xxh3 hash;
    for (const Market* market : sorted) {
        const std::uint32_t ids[2] = {market->venue_id, market->market_id};
        const Hash128 book = market->book->hash();
        hash.update(ids, sizeof ids);
        hash.update(&book, sizeof book);
    }
    return hash.digest();
}

}  // namespace tapewire::replay
