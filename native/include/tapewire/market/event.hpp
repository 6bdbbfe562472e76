// Reads market data messages from records and validates them: what these functions return can be
// trusted.
//
// An invalid message throws corrupt_record (a field breaks a rule, which the text names) or
// unsupported_version (another release wrote it). Padding is not checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "tapewire/checksum.hpp"
#include "tapewire/cursor.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::market {

// One event of one book. The levels stay in the record and are valid as long as its payload is.
struct BookEvent {
    format::BookEventHeader head{};
    std::uint8_t price_scale = 0;
    std::uint8_t size_scale = 0;
    bool delta = false;  // sizes are changes, not absolute
    // The venue's ids of a diff, 0 if it has none. In a snapshot, update_last = native_seq.
    std::uint64_t update_first = 0;
    std::uint64_t update_last = 0;
    std::uint64_t update_prev = 0;
    const std::byte* bids = nullptr;  // format::Level[], possibly unaligned: use level_at
    const std::byte* asks = nullptr;
    std::uint32_t bid_count = 0;
    std::uint32_t ask_count = 0;
    // In book mode l3. A reset or heartbeat without an order sets only event_type.
    format::L3Event order{};
    format::Loss loss{};  // of a loss; otherwise undefined in an event that is reused

    format::EventType type() const noexcept { return format::EventType{head.event_type}; }
    format::BookMode mode() const noexcept { return format::BookMode{head.book_mode}; }
};

// Decodes a record of type kBookEvent; its ingest time must be the record's.
BookEvent decode_book_event(const RecordView& record);

// The same into an event that a loop reuses: clearing it each time would cost as much as the rest.
// After an Error its content is undefined.
void decode_book_event(const RecordView& record, BookEvent& event);

// A complete event of one order: nearly every record of an L3 book is one.
struct OrderEvent {
    std::uint64_t ingest_ts_ns, exchange_ts_ns;
    std::uint32_t market_id;
    std::uint16_t venue_id;
    format::L3Event order;
};

// Decodes the event of a record of type kBookEvent if it is an order event and every field is
// valid. After false, decode_book_event finds out what else it is, or what is invalid. For loops:
// one test instead of many, and nothing is copied just to be read again.
inline bool decode_order_event(const std::byte* payload, std::uint32_t payload_len,
                               std::int64_t timestamp_ns, OrderEvent& out) noexcept {
    using format::BookEventHeader;
    constexpr std::size_t kBytes = sizeof(BookEventHeader) + sizeof(format::L3Event);
    constexpr unsigned kBoth = format::kEventAbsolute | format::kEventDelta;
    if (payload_len != kBytes) return false;
#define TW_HEAD(field)                                                    \
    tapewire::detail::load_as<decltype(BookEventHeader::field)>(payload + \
                                                                offsetof(BookEventHeader, field))
    out.ingest_ts_ns = TW_HEAD(ingest_ts_ns);
    out.exchange_ts_ns = TW_HEAD(exchange_ts_ns);
    out.market_id = TW_HEAD(market_id);
    out.venue_id = TW_HEAD(venue_id);
    out.order = tapewire::detail::load_as<format::L3Event>(payload + sizeof(BookEventHeader));
    const auto version = TW_HEAD(schema_version);
    const auto flags = TW_HEAD(flags);
    const format::L3Event& order = out.order;
    // All tests combined, without a branch for each.
    return (version >= format::kMarketVersionOldest) & (version <= format::kMarketVersion) &
           (TW_HEAD(record_len) == kBytes) & (TW_HEAD(endianness) == format::kLittleEndian) &
           (TW_HEAD(event_type) == static_cast<std::uint8_t>(format::EventType::diff)) &
           (TW_HEAD(book_mode) == static_cast<std::uint8_t>(format::BookMode::l3)) &
           ((flags & ~format::kEventFlags) == 0) & ((flags & kBoth) != kBoth) &
           (out.ingest_ts_ns == static_cast<std::uint64_t>(timestamp_ns)) &
           (order.event_type - 1u < 6u) & (order.side <= 2) &
           (order.price_scale <= format::kMaxScale) & (order.size_scale <= format::kMaxScale) &
           ((order.flags & ~format::kL3Flags) == 0);
#undef TW_HEAD
}

// Decodes the event in bytes that are not (yet) the payload of a record.
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

// Decodes a record of type kTradeTick.
TradeView decode_trade(const RecordView& record);

}  // namespace tapewire::market
