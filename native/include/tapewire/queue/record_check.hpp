// Validation of records: the only place that decides whether the bytes of a record are valid, for
// readers, recovery, seeks and index building.
#pragma once

#include <atomic>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

#include "tapewire/checksum.hpp"
#include "tapewire/file.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/queue/geometry.hpp"

namespace tapewire::queue {

enum class Fault : std::uint8_t {
    none,
    uncommitted,  // where a committed record must be
    length,
    version,
    later_version,
    header_check,
    payload_crc
};

const char* describe(Fault fault) noexcept;

inline std::uint32_t load_commit(const std::byte* at,
                                 std::memory_order order = std::memory_order_acquire) noexcept {
    auto* header = reinterpret_cast<format::RecordHeader*>(const_cast<std::byte*>(at));
    return std::atomic_ref(header->commit_len)
        .load(order);  // SYNC commit: pairs with Writer::publish
}

// The end of a record is known only from its header, so a walk over many records prefetches ahead:
// otherwise each header would be a cache miss. A prefetch past the mapping does nothing.
inline constexpr std::size_t kPrefetchBytes = 2048;

// The loaded commit word of a record. Header and payload are accessed only through this, hence
// after an acquire load of the word; a build with assertions aborts if that word was 0.
class Commit {
  public:
    Commit() = default;
    static Commit at(const std::byte* record) noexcept {
        return Commit(record, load_commit(record, std::memory_order_acquire));
    }
    // The same for a record in a file that is not mapped: `into` gets a copy of its header, read
    // after the word. Also false if the file ends before it.
    static Commit read(const File& file, std::uint64_t offset,
                       std::span<std::byte, format::kRecordHeaderBytes> into);

    explicit operator bool() const noexcept { return word_ != 0; }
    std::uint32_t word() const noexcept { return word_; }
    const format::RecordHeader& header() const noexcept {
        assert(word_ != 0);
        return *reinterpret_cast<const format::RecordHeader*>(record_);
    }
    const std::byte* payload() const noexcept {
        assert(word_ != 0);
        return record_ + format::kRecordHeaderBytes;
    }
    std::uint32_t payload_len() const noexcept {
        assert(word_ != 0);
        return word_ - 1;
    }
    std::uint64_t record_bytes() const noexcept { return format::record_bytes(payload_len()); }
    bool still_there() const noexcept {
        return load_commit(record_, std::memory_order_relaxed) == word_;
    }

  private:
    Commit(const std::byte* record, std::uint32_t word) noexcept : record_(record), word_(word) {}

    const std::byte* record_ = nullptr;
    std::uint32_t word_ = 0;
};

// `offset` is the place of the record in its segment, which ends at `end`.
inline Fault check_header(Commit commit, HeaderSeed seed, std::uint64_t offset,
                          std::uint64_t end) noexcept {
    if (commit.record_bytes() > end - offset) [[unlikely]]
        return Fault::length;
    const format::RecordHeader& header = commit.header();
    // The check must cover the word that was loaded: recovery may be writing a PAD here at the same
    // time.
    const bool checked =
        header.header_check == crc32c_32bytes(&header, seed.at(offset)) && commit.still_there();
    if (!checked && (header.header_check != 0 || seed.keyed())) [[unlikely]]
        return Fault::header_check;
    if (header.version != format::kRecordVersion) [[unlikely]] {
        // With a valid check it is not damage: a later release wrote it.
        return checked && (header.header_check != 0 || seed.keyed()) ? Fault::later_version
                                                                     : Fault::version;
    }
    return Fault::none;
}

inline Fault check_payload(Commit commit) noexcept {
    const format::RecordHeader& header = commit.header();
    if ((header.flags & format::kFlagNoChecksum) == 0 &&
        header.payload_crc != crc32(commit.payload(), commit.payload_len())) [[unlikely]] {
        return Fault::payload_crc;
    }
    return Fault::none;
}

// The highest sequence number is never assigned, since it has no successor.
inline bool has_no_successor(Commit commit) noexcept {
    return commit.header().type_id != format::kPadType && commit.header().seq == ~std::uint64_t{0};
}

// Both checks, off the hot path. A PAD has no payload to check.
Fault check_record(Commit commit, HeaderSeed seed, std::uint64_t offset,
                   std::uint64_t end) noexcept;

// Whether the 60 bytes after the commit word are zero: then no record was begun here.
bool rest_of_header_is_zero(const std::byte* at) noexcept;
bool all_zero(const std::byte* from, std::size_t bytes) noexcept;
bool file_is_zero(const File& file, std::uint64_t from);

// A search for records after damage computes a CRC over the claimed length of each candidate.
// Hostile bytes can claim a large one at every step: this limits the total work per segment.
struct CandidateBudget {
    explicit CandidateBudget(std::uint64_t segment_bytes) noexcept
        : bytes(16 * segment_bytes + (std::uint64_t{1} << 20)) {}

    bool allows(Commit commit) noexcept {
        if (commit.word() > bytes) return false;
        bytes -= commit.word();
        return true;
    }

    std::uint64_t bytes;
};

// What is known about the sequence numbers before a place of a segment.
struct Numbering {
    std::uint64_t next;  // the one after the last record
    std::int64_t
        counted_to;  // where that record ends; below kSegmentDataOffset: in an earlier segment
};

// Where valid records are looked for after a damaged place.
struct Search {
    const std::byte* base;  // of the segment
    std::uint64_t end;      // of the segment: no record extends past it
    HeaderSeed seed;
    bool dense;           // sequence numbers are contiguous
    std::uint64_t until;  // candidates begin before this; `end` unless something is known
};

// What is known about the sequence numbers after `bad`, a place without a valid record. If the
// header there is valid by its own check, its sequence number is trusted.
std::optional<Numbering> numbers_past(const Search& search, std::uint64_t bad,
                                      const std::optional<Numbering>& numbers) noexcept;

// Searches after `bad`, a place without a valid record, in steps of 64 bytes, for a valid one. Its
// sequence number must not be below the next one. Without a key, a payload may contain a copy of
// another record: in a dense log the sequence number must then not exceed the next one by more than
// the steps since the last record, each of which may have been a record that was lost. Returns
// `end` if there is none.
std::uint64_t find_right_record(const Search& search, std::uint64_t bad,
                                const std::optional<Numbering>& numbers,
                                CandidateBudget& budget) noexcept;

// Fills the fixed fields of a PAD that spans [offset, offset + bytes) and commits it last.
void write_pad(std::byte* base, HeaderSeed seed, std::uint64_t offset,
               std::uint64_t bytes) noexcept;

}  // namespace tapewire::queue
