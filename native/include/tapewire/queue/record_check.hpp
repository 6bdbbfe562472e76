// Is this record right? The one place where record bytes are judged; reader, recovery, seeking and
// index building all ask here.
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

// Where a record ends is known only from its header, so whoever steps over many asks for the lines ahead:
// else each header would be a cache miss of its own. A prefetch past the mapping does nothing.
inline constexpr std::size_t kPrefetchBytes = 2048;

// What the commit word of a record said. Header and payload are reached through this and nothing else, so
// that whoever looks at them has loaded the word before, with acquire; a build with assertions ends where
// that word was 0.
class Commit {
  public:
    Commit() = default;
    static Commit at(const std::byte* record) noexcept {
        return Commit(record, load_commit(record, std::memory_order_acquire));
    }
    // Of a record in a file that is not mapped: `into` becomes a copy of its header, read after the
    // word. Not committed also when the file ends before it.
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

// `offset` is the record's place in its segment, which ends at `end`.
inline Fault check_header(Commit commit, HeaderSeed seed, std::uint64_t offset,
                          std::uint64_t end) noexcept {
    if (commit.record_bytes() > end - offset) [[unlikely]]
        return Fault::length;
    const format::RecordHeader& header = commit.header();
    // The check must be of the very word that was loaded: recovery may be putting a PAD here just now.
    const bool checked =
        header.header_check == crc32c_32bytes(&header, seed.at(offset)) && commit.still_there();
    if (!checked && (header.header_check != 0 || seed.keyed())) [[unlikely]]
        return Fault::header_check;
    if (header.version != format::kRecordVersion) [[unlikely]] {
        // With a valid check it is not damage, but the work of a later release.
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

// The highest number of all was never given: behind it they would begin anew.
inline bool has_no_successor(Commit commit) noexcept {
    return commit.header().type_id != format::kPadType && commit.header().seq == ~std::uint64_t{0};
}

// Both, for a record that is judged off the hot path. A PAD has no payload to check.
Fault check_record(Commit commit, HeaderSeed seed, std::uint64_t offset,
                   std::uint64_t end) noexcept;

// The 60 bytes behind an uncommitted word: nothing was ever begun here when they are zero.
bool rest_of_header_is_zero(const std::byte* at) noexcept;
bool all_zero(const std::byte* from, std::size_t bytes) noexcept;
bool file_is_zero(const File& file, std::uint64_t from);

// Whoever looks for records behind damage computes a CRC over all that a candidate says it holds. Hostile bytes
// can say that at every step: this is how much is spent in one segment before candidates are passed over.
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

// What is known of the numbers before some place of a segment.
struct Numbering {
    std::uint64_t next;  // behind the last record that had one
    std::int64_t
        counted_to;  // where that record ends; below the first record's place: in a segment before
};

// Where valid records are looked for after a damaged place.
struct Search {
    const std::byte* base;  // of the segment
    std::uint64_t end;      // of the segment: no record reaches beyond it
    HeaderSeed seed;
    bool dense;           // sequence numbers are contiguous
    std::uint64_t until;  // candidates begin before this; `end` unless something is known
};

// What is known of the numbers after `bad`, a place that holds no valid record. A header that is valid by its
// own check vouches for its sequence number: what is missing before it is missing, and does not count against
// those after it.
std::optional<Numbering> numbers_past(const Search& search, std::uint64_t bad,
                                      const std::optional<Numbering>& numbers) noexcept;

// Looks on after `bad`, a place that holds no valid record, in steps of 64 bytes, for a valid one. Its
// sequence number must not be below the next one. Without a key a payload may hold a copy of some other
// record: in a dense log the number must not be above the next one by more than the steps since the last
// numbered record either, each of which may have held one that was lost. Returns `end` when there is none.
std::uint64_t find_right_record(const Search& search, std::uint64_t bad,
                                const std::optional<Numbering>& numbers,
                                CandidateBudget& budget) noexcept;

// Fills the fixed fields of a PAD that spans [offset, offset + bytes) and commits it last.
void write_pad(std::byte* base, HeaderSeed seed, std::uint64_t offset,
               std::uint64_t bytes) noexcept;

}  // namespace tapewire::queue
