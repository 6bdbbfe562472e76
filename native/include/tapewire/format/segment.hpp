// Header of a segment file NNNNNNNNN.q. Records start at kSegmentDataOffset; the file is exactly
// `segment_bytes` long from the moment it is visible under its name.
//
//    0        4        8        12       16       20                                          64
//    +--------+--------+--------+--------+--------+-------------------------------------------+
//    | magic  |version |   id   | flags  | check  |                   zero                    |
//    +--------+--------+--------+--------+--------+-------------------------------------------+
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct SegmentHeader {
    std::uint32_t magic;       // kSegmentMagic
    std::uint32_t version;     // kSegmentVersion
    std::uint32_t segment_id;  // equals the number in the file's name
    std::uint32_t flags;  // kSegmentSealed | kSegmentSparse; SEALED is set while readers look on
    std::uint32_t header_check;  // CRC-32C of bytes 0..11; 0 = absent
    std::uint8_t reserved[44];   // zero
};

inline constexpr std::uint32_t kSegmentMagic = 0x53454730;  // "SEG0"
inline constexpr std::uint32_t kSegmentVersion = 2;
inline constexpr std::uint32_t kSegmentSealed = 1u << 0;
inline constexpr std::uint32_t kSegmentSparse = 1u << 1;
inline constexpr std::size_t kSegmentDataOffset = 64;
inline constexpr std::size_t kSegmentCheckedBytes = 12;

inline constexpr std::uint64_t kSegmentBytesMin = 8 * 1024;  // of a new queue
inline constexpr std::uint64_t kSegmentBytesMax = 2ull * 1024 * 1024 * 1024;
inline constexpr std::uint64_t kSegmentBytesMultiple = 4096;
inline constexpr std::uint64_t kSegmentBytesDefault = 128ull * 1024 * 1024;
inline constexpr std::uint64_t kSegmentBytesReadableMin = 128;  // of a queue written elsewhere
inline constexpr std::uint32_t kSegmentIdMax = 999'999'999;     // nine digits

static_assert(sizeof(SegmentHeader) == 64);
static_assert(offsetof(SegmentHeader, magic) == 0);
static_assert(offsetof(SegmentHeader, version) == 4);
static_assert(offsetof(SegmentHeader, segment_id) == 8);
static_assert(offsetof(SegmentHeader, flags) == kSegmentCheckedBytes);
static_assert(offsetof(SegmentHeader, header_check) == 16);
static_assert(offsetof(SegmentHeader, reserved) == 20);

}  // namespace tapewire::format
