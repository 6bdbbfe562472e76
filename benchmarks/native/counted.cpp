// What benchmarks/counted.py counts the instructions of, under callgrind: the native calls for one
// record of 64 bytes, as the Python binding makes them. Collection is on inside `measured`
// alone.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "tapewire/clock.hpp"
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

// A count of something else than was meant must not become a baseline.
void require(bool right) {
    if (!right) std::abort();
}

}  // namespace

extern "C" {

// The barriers keep both from becoming jumps: callgrind must see a call and a return.
__attribute__((noinline)) void measured(void (*work)(long), long records) {
    work(records);
    asm volatile("" ::: "memory");
}

// For ctypes, whose libffi comes without the call frames by which callgrind knows a function.
void measure(void (*work)(long), long records) {
    measured(work, records);
    asm volatile("" ::: "memory");
}

// One segment holds everything: a roll is no part of what is counted.
void open_queue(const char* root, std::uint64_t segment_bytes) {
    batch_payloads.resize(segment_bytes);
    WriterOptions options;
    options.segment_bytes = segment_bytes;
    writer = std::make_unique<Writer>(root, options);
    reader = std::make_unique<Reader>(root, ReaderOptions{});
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

}  // extern "C"
