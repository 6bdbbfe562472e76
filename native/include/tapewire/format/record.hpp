// One record of a queue segment: a 64-byte header, the payload, zero padding to 64.
//
//    0        4   5     8                16               24    26    28       32       36      64
//    +--------+---+-----+----------------+----------------+-----+-----+--------+--------+-------+
//    | commit |ver|  0  |      seq       |  timestamp_ns  |type |flags| crc32  | check  |   0   |
//    +--------+---+-----+----------------+----------------+-----+-----+--------+--------+-------+
//    |  payload (commit_len - 1 bytes) ...                               | zero to 64           |
//    +------------------------------------------------------------------------------------------+
//
// Storing commit_len makes the record exist: 0 = no record, else payload_len + 1. header_check is
// the CRC-32C of bytes 0..31. Its initial state is not all ones, but derived from the key of the
// queue, the segment and the offset of the record (HeaderSeed): the same bytes at another place, or
// in another queue, do not pass. In segments of version 2 it starts from all ones, and 0 means
// absent.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct RecordHeader {
    std::uint32_t commit_len;    // 0 = not committed, else payload_len + 1
    std::uint8_t version;        // kRecordVersion
    std::uint8_t reserved0[3];   // zero
    std::uint64_t seq;           // contiguous; strictly rising in a sparse log
    std::uint64_t timestamp_ns;  // ingest time, since the epoch
    std::uint16_t type_id;       // kPadType is internal
    std::uint16_t flags;         // low 8 bits: reserved; high 8 bits: the user's
    std::uint32_t payload_crc;   // CRC-32 (IEEE) of the payload
    std::uint32_t
        header_check;  // CRC-32C of bytes 0..31 with the final commit_len, seeded by place
    std::uint8_t reserved1[28];  // zero
};

inline constexpr std::size_t kRecordHeaderBytes = 64;
inline constexpr std::size_t kRecordAlign = 64;
inline constexpr std::size_t kHeaderCheckedBytes = 32;
inline constexpr std::size_t kCommitLenBytes = 4;
inline constexpr std::uint8_t kRecordVersion = 1;
inline constexpr std::uint16_t kPadType = 0xFFFF;
inline constexpr std::uint16_t kFlagNoChecksum = 0x0001;
inline constexpr std::uint16_t kSystemFlags = 0x00FF;
inline constexpr std::uint64_t kMaxPayloadBytes =
    0xFFFFFFFEull;  // 2^32 - 2: commit_len holds one more

static_assert(sizeof(RecordHeader) == kRecordHeaderBytes);
static_assert(offsetof(RecordHeader, commit_len) == 0);
static_assert(sizeof(RecordHeader::commit_len) == kCommitLenBytes);
static_assert(offsetof(RecordHeader, version) == 4);
static_assert(offsetof(RecordHeader, seq) == 8);
static_assert(offsetof(RecordHeader, timestamp_ns) == 16);
static_assert(offsetof(RecordHeader, type_id) == 24);
static_assert(offsetof(RecordHeader, flags) == 26);
static_assert(offsetof(RecordHeader, payload_crc) == 28);
static_assert(offsetof(RecordHeader, header_check) == kHeaderCheckedBytes);
static_assert(offsetof(RecordHeader, reserved1) == 36);

// The checked bytes of a header as words: commit_len to reserved0, seq, timestamp_ns, type_id to
// payload_crc.
using RecordHeaderWords = std::array<std::uint64_t, kHeaderCheckedBytes / 8>;

constexpr RecordHeaderWords header_words(std::uint32_t commit_len, std::uint64_t seq,
                                         std::uint64_t timestamp_ns, std::uint16_t type_id,
                                         std::uint16_t flags, std::uint32_t payload_crc) noexcept {
    return {(std::uint64_t{kRecordVersion} << 32) | commit_len, seq, timestamp_ns,
            type_id | (std::uint64_t{flags} << 16) | (std::uint64_t{payload_crc} << 32)};
}

static_assert([] {
    const auto fields = std::bit_cast<std::array<std::uint64_t, kRecordHeaderBytes / 8>>(
        RecordHeader{1, kRecordVersion, {}, 2, 3, 4, 5, 6, 0, {}});
    const RecordHeaderWords words = header_words(1, 2, 3, 4, 5, 6);
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] != fields[i]) return false;
    }
    return true;
}());

// The size of a record with `payload_len` bytes in a segment.
constexpr std::uint64_t record_bytes(std::uint64_t payload_len) noexcept {
    return (kRecordHeaderBytes + payload_len + (kRecordAlign - 1)) &
           ~std::uint64_t{kRecordAlign - 1};
}

}  // namespace tapewire::format
