#include "tapewire/queue/record_check.hpp"

#include <cassert>
#include <vector>

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::RecordHeader;

const char* describe(Fault fault) noexcept {
    switch (fault) {
        case Fault::none:
            return "the record is valid";
        case Fault::uncommitted:
            return "an uncommitted record where a committed one is expected";
        case Fault::length:
            return "commit_len exceeds the segment";
        case Fault::version:
            return "unknown record version";
        case Fault::later_version:
            return "a record has a version that this release cannot read";
        case Fault::header_check:
            return "header_check does not match the header";
        case Fault::payload_crc:
            return "the payload does not match its CRC-32";
    }
    return "?";
}

// Word and header in a single read would come in no particular order: a copy is not an acquire.
Commit Commit::read(const File& file, std::uint64_t offset,
                    std::span<std::byte, kRecordHeaderBytes> into) {
    std::uint32_t word = 0;
    if (file.read_at(&word, sizeof word, offset) != sizeof word || word == 0) return {};
    std::atomic_thread_fence(std::memory_order_acquire);  // SYNC commit: pairs with Writer::publish
    if (file.read_at(into.data(), into.size(), offset) != into.size()) return {};
    return at(into.data());
}

Fault check_record(Commit commit, HeaderSeed seed, std::uint64_t offset,
                   std::uint64_t end) noexcept {
    const Fault fault = check_header(commit, seed, offset, end);
    if (fault != Fault::none || commit.header().type_id == format::kPadType) return fault;
    return check_payload(commit);
}

bool rest_of_header_is_zero(const std::byte* at) noexcept {
    return all_zero(at + format::kCommitLenBytes, kRecordHeaderBytes - format::kCommitLenBytes);
}

bool all_zero(const std::byte* from, std::size_t bytes) noexcept {
    // Blocks of 4 KiB, or-ed without a branch inside, so that the compiler vectorises it.
    while (bytes >= 4096) {
        std::uint64_t any = 0;
        for (std::size_t i = 0; i < 4096; i += 8) {
            std::uint64_t word;
            std::memcpy(&word, from + i, 8);
            any |= word;
        }
        if (any != 0) return false;
        from += 4096;
        bytes -= 4096;
    }
    for (std::size_t i = 0; i < bytes; ++i) {
        if (from[i] != std::byte{0}) return false;
    }
    return true;
}

bool file_is_zero(const File& file, std::uint64_t from) {
    std::vector<std::byte> page(65536);
    for (std::uint64_t at = from;; at += page.size()) {
        const std::size_t got = file.read_at(page.data(), page.size(), at);
        if (!all_zero(page.data(), got)) return false;
        if (got < page.size()) return true;
    }
}

namespace {

std::uint64_t find_from(const Search& search, std::uint64_t from,
                        const std::optional<Numbering>& numbers, CandidateBudget& budget) noexcept {
    for (std::uint64_t at = from; at < search.until && at + kRecordHeaderBytes <= search.end;
         at += format::kRecordAlign) {
        const Commit commit = Commit::at(search.base + at);
        if (!commit) continue;
        const RecordHeader& header = commit.header();
        if (header.type_id == format::kPadType || has_no_successor(commit)) {
            // With a key a PAD is trusted, and the bytes it covers are not searched.
            if (search.seed.keyed() && header.type_id == format::kPadType &&
                check_header(commit, search.seed, at, search.end) == Fault::none) {
                at += commit.record_bytes() - format::kRecordAlign;
            }
            continue;
        }
        if (numbers) {
            if (header.seq < numbers->next) continue;
            const auto passed =
                static_cast<std::uint64_t>(static_cast<std::int64_t>(at) - numbers->counted_to);
            if (search.dense && !search.seed.keyed() &&
                header.seq - numbers->next > passed / format::kRecordAlign) {
                continue;
            }
        }
        if (check_header(commit, search.seed, at, search.end) != Fault::none ||
            !budget.allows(commit)) {
            continue;
        }
        if (check_payload(commit) == Fault::none) return at;
    }
    return search.end;
}

// A header that is valid by its own check proves its length, so the bytes of its damaged payload
// are not searched: they may hold copies of records.
bool vouches(const Search& search, std::uint64_t bad, Commit commit) noexcept {
    return commit && (search.seed.keyed() || commit.header().header_check != 0) &&
           check_header(commit, search.seed, bad, search.end) == Fault::none;
}

}  // namespace

std::optional<Numbering> numbers_past(const Search& search, std::uint64_t bad,
                                      const std::optional<Numbering>& numbers) noexcept {
    const Commit commit = Commit::at(search.base + bad);
    if (!vouches(search, bad, commit) || commit.header().type_id == format::kPadType ||
        has_no_successor(commit) || (numbers && commit.header().seq < numbers->next)) {
        return numbers;
    }
    return Numbering{commit.header().seq + 1,
                     static_cast<std::int64_t>(bad + commit.record_bytes())};
}

std::uint64_t find_right_record(const Search& search, std::uint64_t bad,
                                const std::optional<Numbering>& numbers,
                                CandidateBudget& budget) noexcept {
    assert(bad < search.end && is_record_boundary(bad, search.end));
    const Commit commit = Commit::at(search.base + bad);
    const std::uint64_t from =
        bad + (vouches(search, bad, commit) ? commit.record_bytes() : format::kRecordAlign);
    return find_from(search, from, numbers_past(search, bad, numbers), budget);
}

void write_pad(std::byte* base, HeaderSeed seed, std::uint64_t offset,
               std::uint64_t bytes) noexcept {
    assert(offset % format::kRecordAlign == 0 && bytes % format::kRecordAlign == 0);
    assert(bytes >= kRecordHeaderBytes);
    std::byte* const at = base + offset;
    auto& header = *reinterpret_cast<RecordHeader*>(at);
    std::atomic_ref commit(header.commit_len);
    commit.store(
        0, std::memory_order_seq_cst);  // a damaged header may be committed: withdraw it first
    RecordHeader pad{};
    pad.commit_len = static_cast<std::uint32_t>(bytes - kRecordHeaderBytes + 1);
    pad.version = format::kRecordVersion;
    pad.type_id = format::kPadType;
    pad.header_check = crc32c_32bytes(&pad, seed.at(offset));
    std::memcpy(at + format::kCommitLenBytes,
                reinterpret_cast<const std::byte*>(&pad) + format::kCommitLenBytes,
                kRecordHeaderBytes - format::kCommitLenBytes);
    commit.store(pad.commit_len, std::memory_order_seq_cst);
}

}  // namespace tapewire::queue
