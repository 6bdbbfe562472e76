// index.meta: the writer's tail checkpoint. Everything before (segment_id, offset) was on disk when
// it was written. It shortens the recovery scan and proves that the log once reached that far; when
// it is missing, short or invalid, recovery scans more.
//
//    0            8            16       20      24           32       36      40
//    +------------+------------+--------+-------+------------+--------+-------+
//    | segment_id |   offset   | crc32  |   0   |  next_seq  | crc32  |   0   |
//    +------------+------------+--------+-------+------------+--------+-------+
//
// 24 bytes without next_seq (Tapewire before segment version 3) and 16 bytes without a CRC
// (chronicle-rs) are accepted in a queue without a key. In a queue with a key it must be complete
// and belong to this queue.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct TailCheckpoint {
    std::uint64_t segment_id;
    std::uint64_t offset;
    std::uint32_t crc;  // CRC-32 (IEEE) of the 16 bytes before it
    std::uint32_t reserved0;
    std::uint64_t next_seq;  // no record after this position has a lower sequence number
    std::uint32_t
        next_crc;  // CRC-32 (IEEE) of the 32 bytes before it, then of the queue's key if any
    std::uint32_t reserved1;
};

inline constexpr std::size_t kTailCheckpointBytes = 40;
inline constexpr std::size_t kTailCheckpointCheckedBytes = 16;
inline constexpr std::size_t kTailCheckpointNextCheckedBytes = 32;
inline constexpr std::size_t kTailCheckpointShortBytes = 24;  // without next_seq

static_assert(sizeof(TailCheckpoint) == kTailCheckpointBytes);
static_assert(offsetof(TailCheckpoint, segment_id) == 0);
static_assert(offsetof(TailCheckpoint, offset) == 8);
static_assert(offsetof(TailCheckpoint, crc) == kTailCheckpointCheckedBytes);
static_assert(offsetof(TailCheckpoint, next_seq) == kTailCheckpointShortBytes);
static_assert(offsetof(TailCheckpoint, next_crc) == kTailCheckpointNextCheckedBytes);

}  // namespace tapewire::format
