// How a queue image is mutated. Random changes of bytes fail a checksum and reach nothing past it;
// these steps know the format of a record.
#include <algorithm>
#include <cstring>
#include <random>

#include "mutate.hpp"
#include "queue_image.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/queue/segment.hpp"

namespace fuzz {

namespace format = tapewire::format;
using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

namespace {

using Bytes = std::vector<std::byte>;
using tapewire::queue::Geometry;
using tapewire::queue::HeaderSeed;
using Random = std::minstd_rand;

std::uint64_t below(Random& random, std::uint64_t n) { return n == 0 ? 0 : random() % n; }

format::RecordHeader header_of(const Bytes& segment, std::uint64_t at) {
    format::RecordHeader header;
    std::memcpy(&header, segment.data() + at, sizeof header);
    return header;
}

bool fits(const Bytes& segment, std::uint64_t at, const format::RecordHeader& header) {
    return header.commit_len != 0 &&
           format::record_bytes(header.commit_len - 1) <= segment.size() - at;
}

// Stores `header` with valid checksums for it and for the payload after it.
void seal_record(Bytes& segment, const HeaderSeed& seed, std::uint64_t at,
                 format::RecordHeader header, bool foreign) {
    if (fits(segment, at, header)) {
        header.payload_crc =
            tapewire::crc32(segment.data() + at + kRecordHeaderBytes, header.commit_len - 1);
    }
    header.header_check = 0;
    if (!foreign) header.header_check = tapewire::crc32c_32bytes(&header, seed.at(at));
    std::memcpy(segment.data() + at, &header, sizeof header);
}

// The offsets of the records, as far as lengths can be followed, and the end of the last of them.
std::vector<std::uint64_t> places(const Bytes& segment) {
    std::vector<std::uint64_t> found;
    std::uint64_t at = kSegmentDataOffset;
    while (at + kRecordHeaderBytes <= segment.size()) {
        found.push_back(at);
        const auto header = header_of(segment, at);
        if (header.commit_len == 0) break;
        at += fits(segment, at, header) ? format::record_bytes(header.commit_len - 1)
                                        : format::kRecordAlign;
    }
    return found;
}

void make_segment_right(Bytes& segment, const Geometry& geometry, std::uint32_t id) {
    format::SegmentHeader header;
    std::memcpy(&header, segment.data(), sizeof header);
    const std::uint32_t flags = header.flags;
    const format::SegmentHeader before = header;
    header = tapewire::queue::new_segment_header(geometry, id, false);
    header.flags = flags;
    if (geometry.keyed()) {  // the recorded end stays, and so does its check
        header.end_offset = before.end_offset;
        header.end_seq = before.end_seq;
        header.end_check = before.end_check;
    }
    std::memcpy(segment.data(), &header, sizeof header);
    for (std::uint64_t at : places(segment)) {
        const auto record = header_of(segment, at);
        if (record.commit_len != 0) {
            seal_record(segment, HeaderSeed(geometry.key, id), at, record,
                        record.header_check == 0);
        }
    }
}

format::RecordHeader next_record(Random& random, const QueueImage& image, std::uint32_t id,
                                 const std::vector<std::uint64_t>& records) {
    const Bytes& segment = image.segments[id];
    const std::uint64_t space = segment.size() - records.back() - kRecordHeaderBytes;
    format::RecordHeader record{};
    const std::uint64_t most = below(random, 4) == 0 ? space : std::min<std::uint64_t>(space, 96);
    record.commit_len = static_cast<std::uint32_t>(below(random, most + 1) + 1);
    record.version = format::kRecordVersion;
    record.type_id = static_cast<std::uint16_t>(below(random, 3));
    record.seq = image.head.first_seq + below(random, 4);
    record.timestamp_ns = below(random, 64);
    const Bytes* before = records.size() > 1 ? &segment
                          : id > 0           ? &image.segments[id - 1]
                                             : nullptr;
    if (before == nullptr) return record;
    const auto known = places(*before);
    const std::size_t back = before == &segment ? 2 : 1;
    if (known.size() >= back) {
        const auto last = header_of(*before, known[known.size() - back]);
        record.seq = last.seq + 1 + (below(random, 8) == 0 ? below(random, 5) : 0);
        record.timestamp_ns = last.timestamp_ns + below(random, 9) - 2;
    }
    return record;
}

void edit_field(Random& random, std::uint64_t step, format::RecordHeader& header) {
    if (step == 6) header.type_id = header.type_id == format::kPadType ? 7 : format::kPadType;
    if (step == 8) header.flags ^= format::kFlagNoChecksum;
    if (step == 9) header.seq += below(random, 9) - 4;
    if (step == 10) header.timestamp_ns += below(random, 33) - 16;
}

void record_end(Bytes& segment, const HeaderSeed& seed, std::uint64_t offset, std::uint64_t seq) {
    format::SegmentHeader edited;
    std::memcpy(&edited, segment.data(), sizeof edited);
    edited.end_offset = offset;
    edited.end_seq = seq;
    edited.end_check =
        tapewire::crc32c(&edited.end_offset, format::kSegmentEndCheckedBytes, ~seed.of_segment());
    std::memcpy(segment.data(), &edited, sizeof edited);
}

// Copies a record elsewhere: into a payload, or to where there is no record.
void copy_record(Bytes& segment, std::uint64_t from, std::uint64_t to) {
    const format::RecordHeader header = header_of(segment, from);
    if (!fits(segment, from, header)) return;
    const std::uint64_t n =
        std::min<std::uint64_t>(format::record_bytes(header.commit_len - 1), segment.size() - to);
    std::memmove(segment.data() + to, segment.data() + from, n);
}

}  // namespace

void QueueImage::make_checks_valid() {
    for (std::uint32_t id = 0; id < segments.size(); ++id)
        make_segment_right(segments[id], geometry(), id);
    head.checkpoint.crc = tapewire::crc32(&head.checkpoint, format::kTailCheckpointCheckedBytes);
}

void QueueImage::mutate(std::uint32_t random_seed) {
    Random random(random_seed);
    Bytes& segment = segments[below(random, segments.size())];
    const std::uint32_t id = static_cast<std::uint32_t>(&segment - segments.data());
    const HeaderSeed seed(geometry().key, id);
    const auto records = places(segment);
    const std::uint64_t anywhere =
        kSegmentDataOffset + 64 * below(random, (segment.size() - kSegmentDataOffset) / 64);
    const std::uint64_t at = records.empty() ? anywhere : records[below(random, records.size())];
    format::RecordHeader header = header_of(segment, at);
    const bool foreign = header.header_check == 0 && header.commit_len != 0;
    const std::uint64_t step = below(random, 15);
    switch (step) {
        case 0:
        case 1:  // a record after the last one, most often with the next sequence number
            if (!records.empty())
                seal_record(segment, seed, records.back(), next_record(random, *this, id, records),
                            foreign);
            break;
        case 2:
            copy_record(segment, at, anywhere);
            break;
        case 3:  // a hole
            std::memset(segment.data() + anywhere, 0,
                        64 * (1 + below(random, (segment.size() - anywhere) / 64)));
            break;
        case 4:  // a commit that was never stored, or was lost
            std::memset(segment.data() + at, 0, sizeof header.commit_len);
            break;
        case 5: {
            format::SegmentHeader edited;
            std::memcpy(&edited, segment.data(), sizeof edited);
            edited.flags ^= below(random, 3) == 0 ? format::kSegmentSparse : format::kSegmentSealed;
            std::memcpy(segment.data(), &edited, sizeof edited);
            break;
        }
        case 6:
        case 7:  // written by another implementation, or not
        case 8:
        case 9:
        case 10:
            edit_field(random, step, header);
            seal_record(segment, seed, at, header, step == 7 ? !foreign : foreign);
            break;
        case 11:  // a checkpoint at some record, valid or without a checksum
            head.checkpoint.segment_id = id;
            head.checkpoint.offset = at;
            head.checkpoint.crc =
                tapewire::crc32(&head.checkpoint, format::kTailCheckpointCheckedBytes);
            head.checkpoint_bytes = below(random, 2) == 0 ? 24 : 16;
            break;
        case 12:
            head.seek_seq = header.seq + below(random, 3) - 1;
            head.seek_ns = header.timestamp_ns + below(random, 3) - 1;
            break;
        case 13: {  // an end as a writer records it, correct or not
            const std::uint64_t end = below(random, 2) == 0 ? at : anywhere;
            const std::uint64_t seq = header.seq + below(random, 3);
            if (geometry().keyed()) record_end(segment, seed, end, seq);
            break;
        }
        default:  // a flipped bit
            segment[at + below(random, segment.size() - at)] ^=
                std::byte{static_cast<unsigned char>(1u << below(random, 8))};
            return;
    }
}

std::size_t mutate_image(std::uint8_t* data, std::size_t size, std::size_t max_size,
                         unsigned seed) {
    Random random(seed);
    if (below(random, 3) == 0) {
        size = LLVMFuzzerMutate(data, size, max_size);
        if (below(random, 2) == 0) return size;
    }
    QueueImage image({data, size});
    for (std::uint64_t steps = 1 + below(random, 3); steps > 0; --steps)
        image.mutate(static_cast<std::uint32_t>(random()));
    if (below(random, 2) == 0) image.make_checks_valid();
    const std::vector<std::uint8_t> bytes = image.bytes();
    const std::size_t n = std::min(bytes.size(), max_size);
    if (n != 0) std::memcpy(data, bytes.data(), n);
    return n;
}

}  // namespace fuzz
