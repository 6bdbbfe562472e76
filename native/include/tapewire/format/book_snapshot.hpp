// snapshots/<venue_id>/<market_id>/snapshot_<seq>.bin: the state of a book after record `seq` of
// its log. This header, then the output of Book::save.
//
//    0               8     10    12    14    16       20       24              32
//    +---------------+-----+-----+-----+-----+--------+--------+---------------+
//    |   CHRSNAP1    |ver=1| 128 | en=0|mode | venue  | market |    seq_num    |
//    +---------------+-----+-----+-----+-----+--------+--------+---------------+
//    | ingest start  |  ingest end   | exchange start  | exchange end          |   32 … 64
//    +---------------+---------------+-----------------+-----------------------+
//    |  book_hash, low 8 bytes first |   payload_len   |        flags          |   64 … 96
//    +-------------------------------+-----------------+-----------------------+
//    |                            32 zero bytes                                |   96 … 128
//    +-------------------------------------------------------------------------+
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

inline constexpr char kSnapshotMagic[8] = {'C', 'H', 'R', 'S', 'N', 'A', 'P', '1'};
inline constexpr std::uint16_t kSnapshotVersion = 1;
inline constexpr std::size_t kSnapshotHeaderBytes = 128;

// flags: if bit 0 is set, the upper 32 bits are the CRC-32C of the header with flags = 0. Without
// it (written by other software) there is no such check.
inline constexpr std::uint64_t kSnapshotHasCheck = 1;
inline constexpr std::uint64_t kSnapshotFlagBits = 0xFFFFFFFF;
inline constexpr int kSnapshotCheckShift = 32;

struct BookSnapshotHeader {
    char magic[8];
    std::uint16_t schema_version;
    std::uint16_t header_len;
    std::uint16_t endianness;  // 0 little
    std::uint16_t book_mode;   // 0 L2, 1 L3
    std::uint32_t venue_id;
    std::uint32_t market_id;
    std::uint64_t seq_num;               // the state is the one after this record
    std::uint64_t ingest_ts_ns_start;    // of the last event of the book up to there
    std::uint64_t ingest_ts_ns_end;      // of that record: the book did not change in between
    std::uint64_t exchange_ts_ns_start;  // the venue's time of the last event; 0 = absent
    std::uint64_t exchange_ts_ns_end;    // the same
    std::uint64_t book_hash_low;
    std::uint64_t book_hash_high;
    std::uint64_t payload_len;
    std::uint64_t flags;
    std::uint8_t reserved[32];
};

static_assert(sizeof(BookSnapshotHeader) == kSnapshotHeaderBytes);
static_assert(offsetof(BookSnapshotHeader, magic) == 0);
static_assert(offsetof(BookSnapshotHeader, schema_version) == 8);
static_assert(offsetof(BookSnapshotHeader, header_len) == 10);
static_assert(offsetof(BookSnapshotHeader, endianness) == 12);
static_assert(offsetof(BookSnapshotHeader, book_mode) == 14);
static_assert(offsetof(BookSnapshotHeader, venue_id) == 16);
static_assert(offsetof(BookSnapshotHeader, market_id) == 20);
static_assert(offsetof(BookSnapshotHeader, seq_num) == 24);
static_assert(offsetof(BookSnapshotHeader, ingest_ts_ns_start) == 32);
static_assert(offsetof(BookSnapshotHeader, ingest_ts_ns_end) == 40);
static_assert(offsetof(BookSnapshotHeader, exchange_ts_ns_start) == 48);
static_assert(offsetof(BookSnapshotHeader, exchange_ts_ns_end) == 56);
static_assert(offsetof(BookSnapshotHeader, book_hash_low) == 64);
static_assert(offsetof(BookSnapshotHeader, book_hash_high) == 72);
static_assert(offsetof(BookSnapshotHeader, payload_len) == 80);
static_assert(offsetof(BookSnapshotHeader, flags) == 88);
static_assert(offsetof(BookSnapshotHeader, reserved) == 96);

}  // namespace tapewire::format
