// readers/NAME.meta: the position of a named reader, in two slots that are written alternately, so
// that a reader killed in the middle of a store always leaves one valid slot.
//
//    0            8            16                  24            32       36      40
//    +------------+------------+-------------------+-------------+--------+-------+
//    | segment_id |   offset   | last_heartbeat_ns | generation  | crc32  | flags |   slot 0
//    +------------+------------+-------------------+-------------+--------+-------+
//    |                            the same                                        |   slot 1
//    +----------------------------------------------------------------------------+
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct ReaderMetaSlot {
    std::uint64_t segment_id;
    std::uint64_t offset;
    std::uint64_t last_heartbeat_ns;
    std::uint64_t generation;  // from 1; slot = generation % 2; the higher valid one counts
    std::uint32_t crc;         // CRC-32 (IEEE) of the 32 bytes before it
    std::uint32_t flags;       // 0 = not pinned; anything else is pinned: a flipped bit keeps data
};

struct ReaderMeta {
    ReaderMetaSlot slots[2];
};

inline constexpr std::uint32_t kReaderPinned = 0xFFFFFFFF;
// Never reached. A slot at or above it is invalid, so that every valid generation has a successor.
inline constexpr std::uint64_t kReaderGenerationEnd = std::uint64_t{1} << 63;
inline constexpr std::size_t kReaderMetaCheckedBytes = 32;
inline constexpr std::size_t kReaderMetaBytes = 80;

static_assert(sizeof(ReaderMetaSlot) == 40);
static_assert(offsetof(ReaderMetaSlot, segment_id) == 0);
static_assert(offsetof(ReaderMetaSlot, offset) == 8);
static_assert(offsetof(ReaderMetaSlot, last_heartbeat_ns) == 16);
static_assert(offsetof(ReaderMetaSlot, generation) == 24);
static_assert(offsetof(ReaderMetaSlot, crc) == kReaderMetaCheckedBytes);
static_assert(offsetof(ReaderMetaSlot, flags) == 36);
static_assert(sizeof(ReaderMeta) == kReaderMetaBytes);

}  // namespace tapewire::format
