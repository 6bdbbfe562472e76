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

// What a book needs of the header of an order's event.
struct OrderHead {
    std::uint64_t ingest_ts_ns = 0, exchange_ts_ns = 0;
    std::uint32_t market_id = 0;
    std::uint16_t venue_id = 0;
};

// A complete event of one order: nearly every record of an L3 book is one.
struct OrderEvent : OrderHead {
    format::L3Event order;
};

namespace detail {

// schema_version to record_len, and event_type to reserved3, of the header of an order's event.
inline bool is_order_head(std::uint64_t version_and_len, std::uint64_t type_and_flags) noexcept {
    constexpr std::uint64_t kLen = sizeof(format::BookEventHeader) + sizeof(format::L3Event);
    constexpr std::uint64_t kOldest = kLen << 32 | format::kMarketVersionOldest;
    constexpr std::uint64_t kVersions = format::kMarketVersion - format::kMarketVersionOldest;
    constexpr std::uint64_t kReserved = 0xFFFF0000;
    constexpr std::uint32_t kType = static_cast<std::uint32_t>(format::EventType::diff) |
                                    static_cast<std::uint32_t>(format::BookMode::l3) << 8;
    constexpr std::uint32_t kFlags = std::uint32_t{format::kEventFlags} << 16;
    constexpr std::uint32_t kBoth = std::uint32_t{format::kEventAbsolute | format::kEventDelta}
                                    << 16;
    const auto type = static_cast<std::uint32_t>(type_and_flags);
    return ((version_and_len & ~kReserved) - kOldest <= kVersions) & ((type & ~kFlags) == kType) &
           ((type & kBoth) != kBoth);
}

// event_type to reserved0 of an order: four fields of a byte that have an upper limit. Each is
// added to what is left of 127 at its limit: the sum has the upper bit only beyond it.
inline bool is_order_body(std::uint64_t fields) noexcept {
    constexpr std::uint64_t kTypes = 6, kSides = 2;
    constexpr std::uint64_t kLeft = (127 - (kTypes - 1)) | (127 - kSides) << 8 |
                                    std::uint64_t{127 - format::kMaxScale} << 32 |
                                    std::uint64_t{127 - format::kMaxScale} << 40;
    constexpr std::uint64_t kChecked = 0x0000'FFFF'0000'FFFF, kUpper = 0x0000'8080'0000'8080;
    const std::uint64_t from_0 = (fields & kChecked) - 1;  // the least type is 1
    return ((from_0 | (from_0 + kLeft)) & kUpper) == 0;
}

}  // namespace detail

// Decodes the event of a record of type kBookEvent if it is an order event and every field is
// valid. After false, decode_book_event finds out what else it is, or what is invalid. For loops:
// several fields are tested at once, as words of eight bytes.
inline bool decode_order_event(const std::byte* payload, std::uint32_t payload_len,
                               std::int64_t timestamp_ns, OrderEvent& out) noexcept {
    constexpr std::size_t kBytes = sizeof(format::BookEventHeader) + sizeof(format::L3Event);
    if (payload_len != kBytes) return false;
    const auto word = [&](std::size_t at) {
        return tapewire::detail::load_as<std::uint64_t>(payload + at);
    };
    const std::uint64_t instrument = word(offsetof(format::BookEventHeader, endianness));
    out.ingest_ts_ns = word(offsetof(format::BookEventHeader, ingest_ts_ns));
    out.exchange_ts_ns = word(offsetof(format::BookEventHeader, exchange_ts_ns));
    out.market_id = static_cast<std::uint32_t>(instrument >> 32);
    out.venue_id = static_cast<std::uint16_t>(instrument >> 16);
    out.order =
        tapewire::detail::load_as<format::L3Event>(payload + sizeof(format::BookEventHeader));
    // All tests combined, without a branch for each.
    return detail::is_order_head(word(offsetof(format::BookEventHeader, schema_version)),
                                 word(offsetof(format::BookEventHeader, event_type))) &
           (static_cast<std::uint8_t>(instrument) == format::kLittleEndian) &
           (out.ingest_ts_ns == static_cast<std::uint64_t>(timestamp_ns)) &
           detail::is_order_body(word(sizeof(format::BookEventHeader))) &
           ((out.order.flags & ~format::kL3Flags) == 0);
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
