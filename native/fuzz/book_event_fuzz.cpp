// The payload of a book event: decoding throws an Error that names a field, or returns an event
// whose every level can be read and which, encoded again, decodes to the same event.
#include <algorithm>
#include <cstring>
#include <memory>

#include "fuzz_kit.hpp"
#include "mutate.hpp"
#include "tapewire/market/columns.hpp"
#include "tapewire/market/encode.hpp"
#include "tapewire/market/event.hpp"

namespace {

using namespace fuzz;
namespace format = tapewire::format;
namespace market = tapewire::market;
using format::BookEventHeader;

// The levels are in a block of exactly their size: AddressSanitizer detects a read past them.
std::int64_t read_levels(const std::byte* levels, std::uint32_t count) {
    std::uint64_t sum = 0;
    for (std::uint32_t i = 0; i < count; ++i) {
        const format::Level level = market::level_at(levels, i);
        sum += static_cast<std::uint64_t>(level.price) ^ static_cast<std::uint64_t>(level.size);
    }
    return static_cast<std::int64_t>(sum);
}

void check_meaning(const market::BookEvent& event) {
    REQUIRE(event.price_scale <= format::kMaxScale && event.size_scale <= format::kMaxScale,
            "scales");
    REQUIRE(event.head.event_type >= 1 && event.head.event_type <= 4, "event type");
    if (event.mode() == format::BookMode::l3) {
        REQUIRE(event.order.event_type >= 1 && event.order.event_type <= 6, "order type");
        REQUIRE(event.order.side <= 2, "side");
        REQUIRE(event.bid_count == 0 && event.ask_count == 0, "an order has no levels");
    } else {
        REQUIRE(event.order.event_type == 0, "a level has no order");
    }
}

// Encodes the same event with our own encoder and decodes it again.
void check_written_again(const market::BookEvent& event) {
    market::EventHead head;
    head.timestamp_ns = event.head.ingest_ts_ns;
    head.exchange_ts_ns = event.head.exchange_ts_ns;
    head.native_seq = event.head.native_seq;
    head.market_id = event.head.market_id;
    head.stream_id = event.head.stream_id;
    head.venue_id = event.head.venue_id;
    head.price_scale = event.price_scale;
    head.size_scale = event.size_scale;
    const std::size_t levels =
        (std::size_t{event.bid_count} + event.ask_count) * sizeof(format::Level);
    std::vector<std::byte> bytes;
    if (event.mode() == format::BookMode::l3) {
        bytes.resize(market::kOrderBytes);
        market::encode_order(bytes.data(), head, event.order);
    } else if (event.type() == format::EventType::diff) {
        bytes.resize(market::kDiffHeadBytes + levels);
        std::byte* at = market::begin_diff(
            bytes.data(), head, {event.update_first, event.update_last, event.update_prev},
            event.delta, static_cast<std::uint16_t>(event.bid_count),
            static_cast<std::uint16_t>(event.ask_count));
        if (levels != 0) std::memcpy(at, event.bids, levels);
    } else if (event.type() == format::EventType::snapshot) {
        bytes.resize(market::kSnapshotHeadBytes + levels);
        std::byte* at =
            market::begin_snapshot(bytes.data(), head, event.bid_count, event.ask_count);
        if (levels != 0) std::memcpy(at, event.bids, levels);
    } else {
        return;
    }
    const market::BookEvent again = market::decode_book_payload(bytes);
    REQUIRE(again.bid_count == event.bid_count && again.ask_count == event.ask_count, "counts");
    REQUIRE(again.update_last == event.update_last && again.update_prev == event.update_prev,
            "ids");
    REQUIRE(again.delta == event.delta || event.mode() == format::BookMode::l3, "delta");
    REQUIRE(read_levels(again.bids, again.bid_count) == read_levels(event.bids, event.bid_count),
            "bids");
    REQUIRE(read_levels(again.asks, again.ask_count) == read_levels(event.asks, event.ask_count),
            "asks");
    REQUIRE(again.order.event_type == event.order.event_type &&
                again.order.price == event.order.price && again.order.qty == event.order.qty,
            "order");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    // A copy that ends where the payload ends and starts where no level is aligned.
    const auto room = std::make_unique<std::byte[]>(size + 1);
    std::byte* payload = room.get() + 1;
    if (size != 0) std::memcpy(payload, data, size);
    RecordView record;
    record.payload = payload;
    record.payload_len = static_cast<std::uint32_t>(size);
    record.type_id = format::kBookEvent;
    record.seq = 7;
    if (size >= sizeof(BookEventHeader))
        std::memcpy(&record.timestamp_ns, payload + offsetof(BookEventHeader, ingest_ts_ns), 8);
    market::OrderEvent order;
    const bool whole =
        market::decode_order_event(record.payload, record.payload_len, record.timestamp_ns, order);
    try {
        const market::BookEvent event = market::decode_book_event(record);
        REQUIRE(whole == (event.mode() == format::BookMode::l3 &&
                          event.type() == format::EventType::diff),
                "the short decoder takes exactly the events of orders");
        REQUIRE(!whole || std::memcmp(&order.order, &event.order, sizeof order.order) == 0,
                "both decoders give the same order");
        // Volatile: the compiler would drop an unused sum and with it the reads of the levels.
        [[maybe_unused]] const volatile std::int64_t sums[] = {
            read_levels(event.bids, event.bid_count), read_levels(event.asks, event.ask_count)};
        check_meaning(event);
        check_written_again(event);
    } catch (const Error& error) {
        REQUIRE(!whole, "refused by only one decoder");
        REQUIRE(error.code == Errc::corrupt_record || error.code == Errc::unsupported_version,
                error.message);
        REQUIRE(error.message.find('=') != std::string::npos, error.message);
    }
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (seed % 4 == 0 || size < sizeof(BookEventHeader)) return size;
    // Most inputs pass the header checks: the code after them is the harder part.
    BookEventHeader head;
    std::memcpy(&head, data, sizeof head);
    head.schema_version = static_cast<std::uint16_t>(2 + seed / 4 % 2);
    head.record_len = static_cast<std::uint32_t>(size);
    head.endianness = format::kLittleEndian;
    head.event_type = static_cast<std::uint8_t>(1 + seed / 8 % 4);
    head.book_mode = static_cast<std::uint8_t>(seed / 32 % 2);
    head.flags &= seed / 64 % 2 != 0 ? format::kEventFlags : format::kEventAbsolute;
    std::memcpy(data, &head, sizeof head);
    const bool l2 = head.book_mode == 0;
    std::uint8_t* const body = data + sizeof head;
    if (l2 && head.event_type == 2 && size >= market::kDiffHeadBytes) {
        format::L2Diff diff;
        std::memcpy(&diff, body, sizeof diff);
        const auto levels = (size - market::kDiffHeadBytes) / sizeof(format::Level);
        diff.bid_count = static_cast<std::uint16_t>(levels == 0 ? 0 : seed / 128 % (levels + 1));
        diff.ask_count = static_cast<std::uint16_t>(levels - diff.bid_count);
        if (seed / 64 % 2 == 0) diff.flags = 0;
        std::memcpy(body, &diff, sizeof diff);
        size = market::kDiffHeadBytes + levels * sizeof(format::Level);
    } else if (l2 && head.event_type == 1 && size >= market::kSnapshotHeadBytes) {
        format::L2Snapshot snapshot;
        std::memcpy(&snapshot, body, sizeof snapshot);
        const auto levels = (size - market::kSnapshotHeadBytes) / sizeof(format::Level);
        snapshot.bid_count = static_cast<std::uint32_t>(seed / 128 % (levels + 1));
        snapshot.ask_count = static_cast<std::uint32_t>(levels - snapshot.bid_count);
        std::memcpy(body, &snapshot, sizeof snapshot);
        size = market::kSnapshotHeadBytes + levels * sizeof(format::Level);
    } else if (!l2 && size >= market::kOrderBytes) {
        size = market::kOrderBytes;
    } else if (l2 && head.event_type > 2) {
        size = sizeof head;
    }
    head.record_len = static_cast<std::uint32_t>(size);
    std::memcpy(data, &head, sizeof head);
    return size;
}
