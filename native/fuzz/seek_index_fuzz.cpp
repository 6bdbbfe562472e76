// NNNNNNNNN.idx: an index helps a seek or is ignored; it never changes where a seek ends. A
// recovery that continues from one finds the same end as a recovery without.
#include <fcntl.h>

#include <algorithm>
#include <cstring>

#include "fuzz_kit.hpp"
#include "mutate.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/format/seek_index.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/segment.hpp"

namespace {

using namespace fuzz;
namespace format = tapewire::format;
using tapewire::queue::Control;
using tapewire::queue::load_index;
using tapewire::queue::LoadedIndex;
using tapewire::queue::Segment;

constexpr std::uint64_t kSegmentBytes = 1024;
constexpr std::uint64_t kFirstSeq = 5;

struct Log {
    std::string control, segments[2];
    Tape tape;
};

// Two segments of records of 64 and 128 bytes, with times that sometimes decrease; the second is
// open.
const Log& log() {
    static const Log made = [] {
        const Layout layout = fresh_queue();
        const tapewire::queue::Geometry geometry{kSegmentBytes, kFirstSeq, kKey};
        Segment::prepare(layout, geometry, 0, false).publish(layout);
        Control::create(layout, geometry);
        WriterOptions options;
        options.preallocate = false;
        {
            Writer writer(layout.root, options);
            for (std::uint64_t i = 0; i < 15; ++i) {
                kit::append(writer, std::string(i % 3 == 0 ? 40 : 0, 'i'),
                            100 + 10 * i - (i % 4) * 25);
            }
        }
        for (std::uint32_t id : {0u, 1u}) tapewire::remove_file(layout.index(id));
        return Log{get_file(layout.control()),
                   {get_file(layout.segment(0)), get_file(layout.segment(1))},
                   *read_all(layout)};
    }();
    return made;
}

std::uint64_t ns(const Shown& record) { return static_cast<std::uint64_t>(record.timestamp_ns); }

// Whether its times are correct. If its checksums are valid it may contain any times, and is
// trusted.
bool is_truthful(const LoadedIndex& index, std::uint32_t id) {
    std::uint64_t highest = 0;
    std::size_t known = 0;
    for (const Shown& record : log().tape.shown) {
        if (record.at.segment != id) continue;
        highest = std::max(highest, ns(record));
        for (const auto& entry : index.entries) {
            if (entry.offset != record.at.offset) continue;
            if (entry.timestamp_ns != highest || entry.seq != record.seq) return false;
            ++known;
        }
    }
    if (known != index.entries.size()) return false;
    return !index.complete || (!index.entries.empty() && index.times.max_ns == highest);
}

void check_loaded(const LoadedIndex& index) {
    std::uint64_t last = 0;
    for (const auto& entry : index.entries) {
        REQUIRE(entry.offset > last && entry.offset % 64 == 0, std::to_string(entry.offset));
        REQUIRE(entry.offset + 64 <= kSegmentBytes, std::to_string(entry.offset));
        last = entry.offset;
    }
    REQUIRE(index.stride != 0, "a stride of 0");
}

// The checkpoint covers everything, so the scan begins at the last valid entry of the index.
void check_recovery(const Layout& layout, bool truthful) {
    const Position end = log().tape.end;
    {
        const tapewire::File file(layout.tail_checkpoint(), O_RDWR | O_CREAT);
        tapewire::queue::store_tail_checkpoint(file, {end}, 0);
    }
    Control control = Control::open(layout, true);
    auto tail = recover(layout, control, {});
    REQUIRE(tail.segment->id() == end.segment && tail.offset == end.offset,
            place({tail.segment->id(), tail.offset}));
    REQUIRE(tail.next_seq == log().tape.shown.back().seq + 1, std::to_string(tail.next_seq));
    REQUIRE(tail.report.empty(), tail.report.front());
    tail.index->add(tail.next_seq, 1000, tail.offset);
    tail.index->write(layout, true);
    const auto rewritten = load_index(layout, *tail.segment);
    REQUIRE(!truthful || (rewritten && rewritten->complete && rewritten->running_max),
            "the rewritten index is incomplete");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Log& written = log();
    const Layout layout = fresh_queue();
    put_file(layout.control(), written.control.data(), written.control.size());
    bool truthful = true;
    for (std::uint32_t id : {0u, 1u}) {
        put_file(layout.segment(id), written.segments[id].data(), written.segments[id].size());
        put_file(layout.index(id), data, size);
        if (const auto index = load_index(layout, {kSegmentBytes}, id)) {
            check_loaded(*index);
            truthful = truthful && is_truthful(*index, id);
        }
    }
    const std::uint64_t seq = size > 48 ? data[48] : 0;
    if (truthful) {
        check_seeks(layout, written.tape, seq, size > 64 ? data[64] : 0);
    } else {
        check_seeks_by_number(layout, written.tape, seq);
    }
    check_recovery(layout, truthful);
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    format::SeekIndexHeader header;
    if (seed % 4 == 0 || size < sizeof header) return size;
    std::memcpy(&header, data, sizeof header);
    std::memcpy(header.magic, format::kSeekIndexMagic, sizeof header.magic);
    header.version = format::kSeekIndexVersion;
    header.header_len = format::kSeekIndexHeaderBytes;
    header.segment_id = seed / 4 % 2;
    header.segment_size = kSegmentBytes;
    header.data_offset = 64;
    if (seed / 8 % 8 == 0) header.flags = seed / 64 % 4;
    if (seed / 256 % 8 == 0) header.entry_stride = 1 + seed / 2048 % 3;
    const std::size_t room = size - sizeof header;
    header.entry_count = std::min<std::size_t>(room / sizeof(format::SeekIndexEntry), 15);
    if (seed / 16384 % 4 != 0 && header.entry_count != 0) {
        // An entry with a valid sequence number and offset; its time is left unchanged.
        const auto& shown = log().tape.shown;
        const Shown& record = shown[seed / 65536 % shown.size()];
        format::SeekIndexEntry entry;
        std::uint8_t* const at =
            data + sizeof header + seed / 4 % header.entry_count * sizeof entry;
        std::memcpy(&entry, at, sizeof entry);
        entry.seq = record.seq;
        entry.offset = record.at.offset;
        // Sometimes with any offset, up to the end of the segment and past it.
        if (seed / 1048576 % 4 == 0) entry.offset = 64 * (seed / 4194304 % 18);
        std::memcpy(at, &entry, sizeof entry);
        header.segment_id = record.at.segment;
    }
    const std::size_t end = sizeof header + header.entry_count * sizeof(format::SeekIndexEntry);
    std::memcpy(data, &header, sizeof header);
    format::SeekIndexTrailer trailer{};
    if (end + sizeof trailer > max_size) return size;
    std::memcpy(trailer.magic, format::kSeekIndexTrailerMagic, sizeof trailer.magic);
    trailer.header_crc = tapewire::crc32c(&header, sizeof header);
    trailer.entries_crc = tapewire::crc32c(data + sizeof header, end - sizeof header);
    std::memcpy(data + end, &trailer, sizeof trailer);
    return end + sizeof trailer;
}
