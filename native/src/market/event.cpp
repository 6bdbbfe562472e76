#include "tapewire/market/event.hpp"

#include <string>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"

namespace tapewire::market {

namespace {

using format::BookEventHeader;
using format::BookMode;
using format::EventType;
using format::L3Type;
using tapewire::detail::load_as;

[[noreturn, gnu::cold, gnu::noinline]] void corrupt(const char* rule, const char* name,
                                                    std::uint64_t value) {
    throw Error(Errc::corrupt_record,
                std::string(rule) + ": " + name + "=" + std::to_string(value));
}

[[noreturn, gnu::cold, gnu::noinline]] void not_equal(const char* rule, const char* a,
                                                      std::uint64_t a_value, const char* b,
                                                      std::uint64_t b_value) {
    throw Error(Errc::corrupt_record, std::string(rule) + ": " + a + "=" + std::to_string(a_value) +
                                          ", " + b + "=" + std::to_string(b_value));
}

[[noreturn, gnu::cold, gnu::noinline]] void other_version(std::uint64_t version) {
    const bool newer = version > format::kMarketVersion;
    throw Error(Errc::unsupported_version,
                "a book event's schema_version must be from " +
                    std::to_string(format::kMarketVersionOldest) + " to " +
                    std::to_string(format::kMarketVersion) +
                    ": schema_version=" + std::to_string(version),
                {}, -1,
                newer ? "read it with the release that wrote it, or upgrade Tapewire"
                      : "Tapewire never wrote versions before 2: write the event again");
}

[[noreturn, gnu::cold, gnu::noinline]] void other_type(const char* name, std::uint16_t want,
                                                       std::uint16_t type_id) {
    throw Error(Errc::corrupt_record, std::string("the record is no ") + name + ", which is " +
                                          hex(want) + ": type_id=" + hex(type_id));
}

void check_scales(std::uint8_t price_scale, std::uint8_t size_scale) {
    if (price_scale > format::kMaxScale)
        corrupt("a scale must be at most 18", "price_scale", price_scale);
    if (size_scale > format::kMaxScale)
        corrupt("a scale must be at most 18", "size_scale", size_scale);
}

void check_header(const BookEventHeader& head, std::size_t size) {
    const bool loss = head.event_type == static_cast<std::uint8_t>(EventType::loss) &&
                      head.schema_version == format::kMarketVersionLoss;
    if (head.schema_version < format::kMarketVersionOldest ||
        (head.schema_version > format::kMarketVersion && !loss))
        other_version(head.schema_version);
    if (head.endianness != format::kLittleEndian)
        corrupt("a book event must be little-endian, 0", "endianness", head.endianness);
    if (head.record_len != size)
        not_equal("record_len must be the size of the payload", "record_len", head.record_len,
                  "payload", size);
    if (head.event_type < 1 || head.event_type > 5)
        corrupt("an event must be of type 1 to 5", "event_type", head.event_type);
    if (head.book_mode > 1) corrupt("a book must be of mode 0 or 1", "book_mode", head.book_mode);
    if ((head.flags & ~format::kEventFlags) != 0)
        corrupt("an event has unknown flags", "flags", head.flags);
    constexpr auto kBoth = format::kEventAbsolute | format::kEventDelta;
    if ((head.flags & kBoth) == kBoth)
        corrupt("sizes must be absolute or delta, not both", "flags", head.flags);
}

// Bids, then asks, up to the end of the payload.
void take_levels(BookEvent& event, const std::byte* levels, std::size_t bytes,
                 std::uint64_t bid_count, std::uint64_t ask_count) {
    constexpr std::uint64_t kLevel = sizeof(format::Level);
    if ((bid_count + ask_count) * kLevel != bytes)
        throw Error(Errc::corrupt_record,
                    "the levels must fill the payload: bid_count=" + std::to_string(bid_count) +
                        ", ask_count=" + std::to_string(ask_count) +
                        ", bytes=" + std::to_string(bytes));
    event.bids = levels;
    event.bid_count = static_cast<std::uint32_t>(bid_count);
    event.asks = levels + bid_count * kLevel;
    event.ask_count = static_cast<std::uint32_t>(ask_count);
}

template <typename Body>
Body body_at(std::span<const std::byte> rest, const char* rule) {
    if (rest.size() < sizeof(Body))
        corrupt(rule, "record_len", sizeof(BookEventHeader) + rest.size());
    return load_as<Body>(rest.data());
}

void decode_diff(BookEvent& event, std::span<const std::byte> rest) {
    const auto diff = body_at<format::L2Diff>(rest, "a diff must have at least 96 bytes");
    check_scales(diff.price_scale, diff.size_scale);
    constexpr std::uint16_t kKind = format::kEventAbsolute | format::kEventDelta;
    const bool other = diff.flags != 0 && diff.flags != (event.head.flags & kKind);
    if (other)
        not_equal("a diff's flags must be 0 or the header's", "diff.flags", diff.flags, "flags",
                  event.head.flags);
    event.price_scale = diff.price_scale;
    event.size_scale = diff.size_scale;
    event.update_first = diff.update_id_first;
    event.update_last = diff.update_id_last;
    event.update_prev = diff.update_id_prev;
    take_levels(event, rest.data() + sizeof diff, rest.size() - sizeof diff, diff.bid_count,
                diff.ask_count);
}

void decode_snapshot(BookEvent& event, std::span<const std::byte> rest) {
    const auto snapshot =
        body_at<format::L2Snapshot>(rest, "a snapshot must have at least 76 bytes");
    check_scales(snapshot.price_scale, snapshot.size_scale);
    if (event.delta) corrupt("a snapshot's sizes must be absolute", "flags", event.head.flags);
    event.price_scale = snapshot.price_scale;
    event.size_scale = snapshot.size_scale;
    event.update_last = event.head.native_seq;
    take_levels(event, rest.data() + sizeof snapshot, rest.size() - sizeof snapshot,
                snapshot.bid_count, snapshot.ask_count);
}

void decode_order(BookEvent& event, std::span<const std::byte> rest) {
    if (rest.size() != sizeof(format::L3Event))
        corrupt("an order event must have 128 bytes", "record_len", event.head.record_len);
    event.order = load_as<format::L3Event>(rest.data());
    const format::L3Event& order = event.order;
    if (order.event_type < 1 || order.event_type > 6)
        corrupt("an order event must be of type 1 to 6", "order.event_type", order.event_type);
    const auto type = event.type();
    const L3Type kind{order.event_type};
    const bool agree = type == EventType::diff ||
                       (type == EventType::reset && kind == L3Type::reset) ||
                       (type == EventType::heartbeat && kind == L3Type::heartbeat);
    if (!agree)
        not_equal("the order event must match the header", "order.event_type", order.event_type,
                  "event_type", event.head.event_type);
    if (order.side > 2) corrupt("a side must be 0 to 2", "order.side", order.side);
    check_scales(order.price_scale, order.size_scale);
    if ((order.flags & ~format::kL3Flags) != 0)
        corrupt("an order event has unknown flags", "order.flags", order.flags);
    event.price_scale = order.price_scale;
    event.size_scale = order.size_scale;
}

void decode_loss(BookEvent& event, std::span<const std::byte> rest) {
    if (event.head.schema_version < format::kMarketVersionLoss)
        corrupt("a loss must be of version 4", "schema_version", event.head.schema_version);
    if (rest.size() != sizeof(format::Loss))
        corrupt("a loss must have 128 bytes", "record_len", event.head.record_len);
    event.loss = load_as<format::Loss>(rest.data());
    static_assert(format::kMaxLossCause == 8, "as the message says");
    if (event.loss.cause < 1 || event.loss.cause > format::kMaxLossCause)
        corrupt("the cause of a loss must be 1 to 8", "loss.cause", event.loss.cause);
    if (event.loss.first > event.loss.last)
        not_equal("the first missing number must not be above the last", "loss.first",
                  event.loss.first, "loss.last", event.loss.last);
    event.price_scale = event.size_scale = 0;
    event.order = {};
}

// Sets every field of `event` but `loss`, whatever it held before.
void decode_into(BookEvent& event, std::span<const std::byte> payload) {
    if (payload.size() < sizeof(BookEventHeader))
        corrupt("a book event must have at least 64 bytes", "payload", payload.size());
    event.head = load_as<BookEventHeader>(payload.data());
    check_header(event.head, payload.size());
    event.delta = (event.head.flags & format::kEventDelta) != 0;
    const auto rest = payload.subspan(sizeof(BookEventHeader));
    const EventType type = event.type();
    const bool l3 = event.mode() == BookMode::l3;
    if (!l3 && type == EventType::diff) {
        event.order = {};
        return decode_diff(event, rest);
    }
    event.update_first = event.update_last = event.update_prev = 0;
    if (!l3 && type == EventType::snapshot) {
        event.order = {};
        return decode_snapshot(event, rest);
    }
    event.bids = event.asks = nullptr;
    event.bid_count = event.ask_count = 0;
    if (type == EventType::loss) return decode_loss(event, rest);
    if (l3 && (type == EventType::diff || !rest.empty())) return decode_order(event, rest);
    if (l3 && type == EventType::snapshot)
        corrupt("a book of orders has no snapshot", "event_type", event.head.event_type);
    if (!rest.empty())
        corrupt("a reset or heartbeat must have 64 bytes", "record_len", event.head.record_len);
    event.price_scale = event.size_scale = 0;
    event.order = {};
    if (l3)
        event.order.event_type =
            static_cast<std::uint8_t>(type == EventType::reset ? L3Type::reset : L3Type::heartbeat);
}

}  // namespace

BookEvent decode_book_payload(std::span<const std::byte> payload) {
    BookEvent event;
    decode_into(event, payload);
    return event;
}

BookEvent decode_book_event(const RecordView& record) {
    BookEvent event;
    decode_book_event(record, event);
    return event;
}

void decode_book_event(const RecordView& record, BookEvent& event) {
    if (record.type_id != format::kBookEvent)
        other_type("BookEvent", format::kBookEvent, record.type_id);
    try {
        decode_into(event, {record.payload, record.payload_len});
        if (event.head.ingest_ts_ns != static_cast<std::uint64_t>(record.timestamp_ns))
            not_equal("ingest_ts_ns must be the record's time", "ingest_ts_ns",
                      event.head.ingest_ts_ns, "timestamp_ns",
                      static_cast<std::uint64_t>(record.timestamp_ns));
    } catch (Error& error) {
        error.message += ", seq=" + std::to_string(record.seq);
        throw;
    }
}

TradeView decode_trade(const RecordView& record) {
    if (record.type_id != format::kTradeTick)
        other_type("TradeTick", format::kTradeTick, record.type_id);
    if (record.payload_len != sizeof(format::TradeTick))
        corrupt("a TradeTick must have 64 bytes", "payload", record.payload_len);
    const auto tick = load_as<format::TradeTick>(record.payload);
    check_scales(tick.price_scale, tick.size_scale);
    if (tick.is_buyer_maker > format::kMakerUnknown)
        corrupt("is_buyer_maker must be 0 to 2", "is_buyer_maker", tick.is_buyer_maker);
    return {.timestamp_ns = tick.timestamp_ns,
            .price = tick.price,
            .size = tick.size,
            .trade_id = tick.trade_id,
            .buyer_order_id = tick.buyer_order_id,
            .seller_order_id = tick.seller_order_id,
            .symbol_hash = tick.symbol_hash,
            .market_id = tick.market_id,
            .price_scale = tick.price_scale,
            .size_scale = tick.size_scale,
            .is_buyer_maker = tick.is_buyer_maker};
}

}  // namespace tapewire::market
