// The code whose instructions benchmarks/counted.py counts under callgrind: the native calls for
// one record of 64 bytes, as the Python binding makes them, and a change of a book. Collection is
// on only inside `measured`.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/market/encode.hpp"
#include "tapewire/market/event.hpp"
#include "tapewire/queue/reader.hpp"
#include "tapewire/queue/writer.hpp"

namespace {

using tapewire::BatchColumns;
using tapewire::RecordView;
using tapewire::queue::BatchRows;
using tapewire::queue::Reader;
using tapewire::queue::ReaderOptions;
using tapewire::queue::Writer;
using tapewire::queue::WriterOptions;

constexpr std::uint16_t kType = 0x1001;
constexpr std::uint32_t kPayloadBytes = 64;

std::unique_ptr<Writer> writer;
std::unique_ptr<Reader> reader;
std::vector<std::byte> batch_payloads;

// A count of anything else must not become a baseline.
void require(bool right) {
    if (!right) std::abort();
}

// Pseudo-random numbers, the same everywhere.
struct Sequence {
    std::uint64_t state = 1;
    std::uint64_t below(std::uint64_t limit) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        return (state >> 33) % limit;
    }
};

constexpr std::int64_t kMiddle = 600'000;
constexpr std::uint16_t kLevelsPerSide = 8;
constexpr long kLiveOrders = 4'096;

const tapewire::market::EventHead kHead{.timestamp_ns = 1, .market_id = 1, .venue_id = 1};

std::unique_ptr<tapewire::book::Book> levels_book, orders_book;
std::vector<tapewire::book::TopRow> tops;
Sequence sequence;
std::uint64_t last_order = 0;

std::unique_ptr<tapewire::book::Book> open_book(tapewire::format::BookMode mode) {
    tapewire::book::Options options;
    options.mode = mode;
    options.price_scale = options.size_scale = 0;
    return std::make_unique<tapewire::book::Book>(options);
}

void give(tapewire::book::Book& book, const std::vector<std::byte>& payload) {
    const auto applied = book.apply(tapewire::market::decode_book_payload(payload), 1, tops);
    require(applied == tapewire::book::Applied::changed);
    if (tops.size() > 1'000) tops.clear();
}

void put_side(std::byte*& at, int sign) {
    for (int i = 0; i < kLevelsPerSide; ++i) {
        const auto away = static_cast<std::int64_t>(1 + sequence.below(1'000));
        const auto size = static_cast<std::int64_t>(sequence.below(8));  // 0, in one of eight
        const tapewire::format::Level level{kMiddle - sign * away, size};
        std::memcpy(at, &level, sizeof level);
        at += sizeof level;
    }
}

// One event of an order: adds one near the middle, or cancels the one added kLiveOrders before.
void order_event(std::vector<std::byte>& payload, bool add) {
    tapewire::format::L3Event order{};
    order.event_type = static_cast<std::uint8_t>(add ? tapewire::format::L3Type::add
                                                     : tapewire::format::L3Type::cancel);
    order.order_id = add ? ++last_order : last_order - kLiveOrders;
    order.side = static_cast<std::uint8_t>(1 + order.order_id % 2);
    const auto away = static_cast<std::int64_t>(1 + sequence.below(100));
    order.price = order.side == 1 ? kMiddle - away : kMiddle + away;
    order.qty = add ? 10 : 0;
    tapewire::market::encode_order(payload.data(), kHead, order);
    give(*orders_book, payload);
}

}  // namespace

extern "C" {

void native_l2_level(long levels);

// The barriers prevent tail calls: callgrind must see a call and a return.
__attribute__((noinline)) void measured(void (*work)(long), long records) {
    work(records);
    asm volatile("" ::: "memory");
}

// For ctypes: its libffi lacks the call frames by which callgrind recognises a function.
void measure(void (*work)(long), long records) {
    measured(work, records);
    asm volatile("" ::: "memory");
}

// One segment holds everything: rolls are not counted.
void open_queue(const char* root, std::uint64_t segment_bytes) {
    batch_payloads.resize(segment_bytes);
    WriterOptions options;
    options.segment_bytes = segment_bytes;
    options.require_prealloc =
        true;  // the complete segment is prepared: no call prepares a part of it
    writer = std::make_unique<Writer>(root, options);
    reader = std::make_unique<Reader>(root, ReaderOptions{});
}

// Fill both books to their steady size.
void open_books() {
    levels_book = open_book(tapewire::format::BookMode::l2);
    orders_book = open_book(tapewire::format::BookMode::l3);
    std::vector<std::byte> snapshot(tapewire::market::kSnapshotHeadBytes);
    tapewire::market::begin_snapshot(snapshot.data(), kHead, 0, 0);
    give(*levels_book, snapshot);
    native_l2_level(65'536);
    std::vector<std::byte> payload(tapewire::market::kOrderBytes);
    for (long i = 0; i < kLiveOrders; ++i) order_event(payload, true);
}

void close_queue() {
    reader.reset();
    writer->close();
    writer.reset();
}

void native_append(long records) {
    static const std::byte payload[kPayloadBytes] = {std::byte{1}};
    for (long i = 0; i < records; ++i) {
        const std::uint64_t now = static_cast<std::uint64_t>(tapewire::wall_ns());
        require(
            writer->try_append(kType, 0, writer->next_seq(), now, payload, sizeof payload, true));
        require(!writer->lost());
    }
}

void native_next(long records) {
    RecordView record;
    for (long i = 0; i < records; ++i) require(reader->next(record));
}

void native_append_batch(long records) {
    BatchRows rows;
    rows.count = static_cast<std::uint64_t>(records);
    rows.base = batch_payloads.data();
    rows.stride = kPayloadBytes;
    rows.row_bytes = kPayloadBytes;
    rows.type_id = kType;
    rows.timestamp_ns = 1;
    std::uint64_t done = 0;
    writer->append_batch(rows, done);
    require(done == rows.count);
}

void native_read_batch(long records) {
    BatchColumns columns;
    require(reader->read_batch(columns, static_cast<std::size_t>(records)) ==
            static_cast<std::size_t>(records));
}

// Per level, in diffs of sixteen: encode (a few stores), decode and check, apply, read the top.
void native_l2_level(long levels) {
    constexpr std::size_t kBytes = 2 * kLevelsPerSide * sizeof(tapewire::format::Level);
    std::vector<std::byte> payload(tapewire::market::kDiffHeadBytes + kBytes);
    for (long i = 0; i < levels; i += 2 * kLevelsPerSide) {
        std::byte* at = tapewire::market::begin_diff(payload.data(), kHead, {}, false,
                                                     kLevelsPerSide, kLevelsPerSide);
        put_side(at, 1);
        put_side(at, -1);
        give(*levels_book, payload);
    }
}

// The same for orders: one added, one cancelled, in turn.
void native_l3_event(long events) {
    std::vector<std::byte> payload(tapewire::market::kOrderBytes);
    for (long i = 0; i < events; ++i) order_event(payload, i % 2 == 0);
}

}  // extern "C"
