// index.meta: the writer's tail checkpoint. Everything before (segment_id, offset) was on disk when
// it was written. It only shortens the recovery scan: missing, short or wrong, recovery scans more.
//
//    0            8            16       20      24
//    +------------+------------+--------+-------+
//    | segment_id |   offset   | crc32  |   0   |      (16 bytes without a CRC are accepted)
//    +------------+------------+--------+-------+
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct TailCheckpoint {
    std::uint64_t segment_id;
    std::uint64_t offset;
    std::uint32_t crc;  // CRC-32 (IEEE) of the 16 bytes before it
    std::uint32_t reserved;
};

inline constexpr std::size_t kTailCheckpointBytes = 24;
inline constexpr std::size_t kTailCheckpointCheckedBytes = 16;

static_assert(sizeof(TailCheckpoint) == kTailCheckpointBytes);
static_assert(offsetof(TailCheckpoint, segment_id) == 0);
static_assert(offsetof(TailCheckpoint, offset) == 8);
static_assert(offsetof(TailCheckpoint, crc) == kTailCheckpointCheckedBytes);

}  // namespace tapewire::format
