// Reading market data messages out of records, checked: what these return can be believed.
//
// A message is refused as corrupt_record (a field breaks a rule; the text names it) or as
// unsupported_version (another release wrote it). Padding is not looked at.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tapewire/cursor.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::market {

// One event of one book. The levels stay in the record: valid as long as its payload is.
struct BookEvent {
    format::BookEventHeader head{};
    std::uint8_t price_scale = 0;
    std::uint8_t size_scale = 0;
    bool delta = false;  // sizes are changes, not what is there now
    // The venue's ids of a diff, 0 where it has none. A snapshot has update_last = native_seq.
    std::uint64_t update_first = 0;
    std::uint64_t update_last = 0;
    std::uint64_t update_prev = 0;
    const std::byte* bids = nullptr;  // format::Level[], maybe unaligned: level_at
    const std::byte* asks = nullptr;
    std::uint32_t bid_count = 0;
    std::uint32_t ask_count = 0;
    // Of book mode l3. Of an event without one, reset or heartbeat: only event_type is set.
    format::L3Event order{};

    format::EventType type() const noexcept { return format::EventType{head.event_type}; }
    format::BookMode mode() const noexcept { return format::BookMode{head.book_mode}; }
};

// The event in a record of type kBookEvent; its ingest time must be the record's.
BookEvent decode_book_event(const RecordView& record);

// The same into an event that a loop uses again and again: clearing it each time costs as much as the
// rest. What it holds after an Error means nothing.
void decode_book_event(const RecordView& record, BookEvent& event);

// The event in bytes that are no record's payload, or not yet.
BookEvent decode_book_payload(std::span<const std::byte> payload);

inline format::Level level_at(const std::byte* levels, std::uint32_t i) noexcept {
    format::Level level;
    std::memcpy(&level, levels + std::size_t{i} * sizeof level, sizeof level);
    return level;
}

struct TradeView {
    std::uint64_t timestamp_ns;  // the venue's
    std::int64_t price, size;
    std::uint64_t trade_id, buyer_order_id, seller_order_id, symbol_hash;
    std::uint32_t market_id;
    std::uint8_t price_scale, size_scale;
    std::uint8_t is_buyer_maker;  // 0, 1 or format::kMakerUnknown
};

// The trade in a record of type kTradeTick.
TradeView decode_trade(const RecordView& record);

}  // namespace tapewire::market
