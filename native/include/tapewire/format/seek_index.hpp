// NNNNNNNNN.idx: the seek index of one segment. An 80-byte header, then one entry for every
// `entry_stride`-th record, then (Tapewire's own files) a 16-byte trailer with checksums.
//
//    0        8    10   12      16           24            32       36       40        48
//    +--------+----+----+-------+------------+-------------+--------+--------+---------+---------+
//    |CHRIDX1 |ver |len | flags | segment_id | segment_size|data_off| stride | min_seq | max_seq |
//    +--------+----+----+-------+------------+-------------+--------+--------+---------+---------+
//    56          64          72           80
//    +-----------+-----------+------------+
//    | min_ts_ns | max_ts_ns |entry_count |   entries: seq u64 | timestamp_ns u64 | offset u64
//    +-----------+-----------+------------+   trailer: "TWIX" | header crc32c | entries crc32c | 0
//
// The trailer exists because a corrupt time in an entry cannot be detected with the segment alone:
// a flipped bit would make seek_time skip records silently. Readers that do not know the trailer
// stop at entry_count. In a queue with a key, both checksums start from the state of the segment,
// as the check of its end does: the index of another queue or segment is rejected.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct SeekIndexHeader {
    char magic[8];  // kSeekIndexMagic
    std::uint16_t version;
    std::uint16_t header_len;
    std::uint32_t flags;
    std::uint64_t segment_id;
    std::uint64_t segment_size;
    std::uint32_t data_offset;
    std::uint32_t entry_stride;  // in records
    std::uint64_t min_seq;
    std::uint64_t max_seq;
    std::uint64_t min_ts_ns;
    std::uint64_t max_ts_ns;
    std::uint64_t entry_count;
};

struct SeekIndexEntry {
    std::uint64_t seq;
    std::uint64_t
        timestamp_ns;  // with kSeekIndexRunningMax: highest time up to and including this record
    std::uint64_t offset;
};

struct SeekIndexTrailer {
    char magic[4];  // kSeekIndexTrailerMagic
    std::uint32_t header_crc;
    std::uint32_t entries_crc;
    std::uint32_t reserved;
};

inline constexpr char kSeekIndexMagic[8] = {'C', 'H', 'R', 'I', 'D', 'X', '1', '\0'};
inline constexpr char kSeekIndexTrailerMagic[4] = {'T', 'W', 'I', 'X'};
inline constexpr std::uint16_t kSeekIndexVersion = 1;
inline constexpr std::uint16_t kSeekIndexHeaderBytes = 80;
inline constexpr std::uint32_t kSeekIndexPartial = 1u << 0;
inline constexpr std::uint32_t kSeekIndexRunningMax = 1u << 1;
inline constexpr std::uint32_t kSeekIndexStrideDefault = 4096;

static_assert(sizeof(SeekIndexHeader) == kSeekIndexHeaderBytes);
static_assert(offsetof(SeekIndexHeader, magic) == 0);
static_assert(offsetof(SeekIndexHeader, version) == 8);
static_assert(offsetof(SeekIndexHeader, header_len) == 10);
static_assert(offsetof(SeekIndexHeader, flags) == 12);
static_assert(offsetof(SeekIndexHeader, segment_id) == 16);
static_assert(offsetof(SeekIndexHeader, segment_size) == 24);
static_assert(offsetof(SeekIndexHeader, data_offset) == 32);
static_assert(offsetof(SeekIndexHeader, entry_stride) == 36);
static_assert(offsetof(SeekIndexHeader, min_seq) == 40);
static_assert(offsetof(SeekIndexHeader, max_seq) == 48);
static_assert(offsetof(SeekIndexHeader, min_ts_ns) == 56);
static_assert(offsetof(SeekIndexHeader, max_ts_ns) == 64);
static_assert(offsetof(SeekIndexHeader, entry_count) == 72);
static_assert(sizeof(SeekIndexEntry) == 24);
static_assert(offsetof(SeekIndexEntry, seq) == 0);
static_assert(offsetof(SeekIndexEntry, timestamp_ns) == 8);
static_assert(offsetof(SeekIndexEntry, offset) == 16);
static_assert(sizeof(SeekIndexTrailer) == 16);
static_assert(offsetof(SeekIndexTrailer, magic) == 0);
static_assert(offsetof(SeekIndexTrailer, header_crc) == 4);
static_assert(offsetof(SeekIndexTrailer, entries_crc) == 8);
static_assert(offsetof(SeekIndexTrailer, reserved) == 12);

}  // namespace tapewire::format
