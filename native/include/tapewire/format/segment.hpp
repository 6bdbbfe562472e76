// Header of a segment file NNNNNNNNN.q. Records start at kSegmentDataOffset. From the moment the
// file has its name, its length is exactly `segment_bytes`.
//
//    0        4        8        12       16       20       24               32               40
//    +--------+--------+--------+--------+--------+--------+----------------+----------------+
//    | magic  |version |   id   | flags  | check  | units  |      key       |   first_seq    |
//    +--------+--------+--------+--------+--------+--------+----------------+----------------+
//    |   end_offset    |     end_seq     |end_chk |   0    |   40 ... 64
//    +-----------------+-----------------+--------+--------+
//
// Version 2 (chronicle-rs, and Tapewire before version 3) has zeros from offset 20 on.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct SegmentHeader {
    std::uint32_t magic;       // kSegmentMagic
    std::uint32_t version;     // kSegmentVersion, or kSegmentVersionUnkeyed
    std::uint32_t segment_id;  // equals the number in the file's name
    std::uint32_t flags;  // kSegmentSealed | kSegmentSparse; SEALED is set while readers use it
    // CRC-32C of bytes 0..11, then (version 3) of the flags without SEALED, then of bytes 20..39.
    // 0 = absent (version 2 only).
    std::uint32_t header_check;
    std::uint32_t segment_units;  // length of the file in units of 64 bytes. Version 3
    std::uint64_t key;            // of the queue, as in control.meta
    std::uint64_t first_seq;      // of the queue, as in control.meta

    // End of the records of this segment: stored when it is sealed, and by a clean close. Zero
    // while a writer uses it, or if the writer was killed in it.
    std::uint64_t end_offset;
    std::uint64_t end_seq;    // sequence number of the record after the last one
    std::uint32_t end_check;  // CRC-32C of bytes 40..55, started from the segment's state
    std::uint8_t reserved1[4];
};

inline constexpr std::uint32_t kSegmentMagic = 0x53454730;  // "SEG0"
inline constexpr std::uint32_t kSegmentVersion = 3;
inline constexpr std::uint32_t kSegmentVersionUnkeyed = 2;
inline constexpr std::uint32_t kSegmentSealed = 1u << 0;
inline constexpr std::uint32_t kSegmentSparse = 1u << 1;
inline constexpr std::size_t kSegmentDataOffset = 64;
inline constexpr std::size_t kSegmentCheckedBytes = 12;       // from offset 0
inline constexpr std::size_t kSegmentCheckedFixedBytes = 20;  // from `segment_units`
inline constexpr std::size_t kSegmentEndCheckedBytes = 16;    // from `end_offset`

inline constexpr std::uint64_t kSegmentBytesMin = 8 * 1024;  // of a new queue
inline constexpr std::uint64_t kSegmentBytesMax = 2ull * 1024 * 1024 * 1024;
inline constexpr std::uint64_t kSegmentBytesMultiple = 4096;
inline constexpr std::uint64_t kSegmentUnitBytes = 64;
inline constexpr std::uint64_t kSegmentBytesDefault = 128ull * 1024 * 1024;
inline constexpr std::uint64_t kSegmentBytesReadableMin = 128;  // of a queue written elsewhere
inline constexpr std::uint32_t kSegmentIdMax = 999'999'999;     // nine digits

static_assert(sizeof(SegmentHeader) == 64);
static_assert(offsetof(SegmentHeader, magic) == 0);
static_assert(offsetof(SegmentHeader, version) == 4);
static_assert(offsetof(SegmentHeader, segment_id) == 8);
static_assert(offsetof(SegmentHeader, flags) == kSegmentCheckedBytes);
static_assert(offsetof(SegmentHeader, header_check) == 16);
static_assert(offsetof(SegmentHeader, segment_units) == 20);
static_assert(offsetof(SegmentHeader, key) == 24);
static_assert(offsetof(SegmentHeader, first_seq) == 32);
static_assert(offsetof(SegmentHeader, end_offset) == 40);
static_assert(offsetof(SegmentHeader, end_seq) == 48);
static_assert(offsetof(SegmentHeader, end_check) == 56);
static_assert(offsetof(SegmentHeader, reserved1) == 60);

}  // namespace tapewire::format
