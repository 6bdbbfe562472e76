#include "tapewire/queue/record_check.hpp"

#include <vector>

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::RecordHeader;

const char* describe(Fault fault) noexcept {
    switch (fault) {
        case Fault::none:
            return "record is right";
        case Fault::uncommitted:
            return "an uncommitted record stands where a committed one must be";
        case Fault::length:
            return "commit_len reaches beyond the segment";
        case Fault::version:
            return "unknown record version";
        case Fault::later_version:
            return "a record has a version this release cannot read";
        case Fault::header_check:
            return "header check does not match the header";
        case Fault::payload_crc:
            return "payload does not match its CRC-32";
    }
    return "?";
}

// Word and header in one read would come in no particular order: a copy is not an acquire.
Commit Commit::read(const File& file, std::uint64_t offset,
                    std::span<std::byte, kRecordHeaderBytes> into) {
    std::uint32_t word = 0;
    if (file.read_at(&word, sizeof word, offset) != sizeof word || word == 0) return {};
    std::atomic_thread_fence(std::memory_order_acquire);  // SYNC commit: pairs with Writer::publish
    if (file.read_at(into.data(), into.size(), offset) != into.size()) return {};
    return at(into.data());
}

Fault check_record(Commit commit, std::uint64_t room) noexcept {
    const Fault fault = check_header(commit, room);
    if (fault != Fault::none || commit.header().type_id == format::kPadType) return fault;
    return check_payload(commit);
}

bool rest_of_header_is_zero(const std::byte* at) noexcept {
    return all_zero(at + 4, kRecordHeaderBytes - 4);
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

std::uint64_t find_from(const std::byte* base, std::uint64_t from, std::uint64_t end,
                        const std::optional<Numbering>& numbers, bool dense,
                        CandidateBudget& budget) noexcept {
    for (std::uint64_t at = from; at + kRecordHeaderBytes <= end; at += format::kRecordAlign) {
        const Commit commit = Commit::at(base + at);
        if (!commit) continue;
        const RecordHeader& header = commit.header();
        if (header.type_id == format::kPadType || has_no_successor(commit)) continue;
        if (numbers) {
            if (header.seq < numbers->next) continue;
            const auto passed =
                static_cast<std::uint64_t>(static_cast<std::int64_t>(at) - numbers->counted_to);
            if (dense && header.seq - numbers->next > passed / format::kRecordAlign) continue;
        }
        if (check_header(commit, end - at) != Fault::none || !budget.allows(commit)) continue;
        if (check_payload(commit) == Fault::none) return at;
    }
    return end;
}

}  // namespace

std::uint64_t find_right_record(const std::byte* base, std::uint64_t bad, std::uint64_t end,
                                const std::optional<Numbering>& numbers, bool dense,
                                CandidateBudget& budget) noexcept {
    const Commit commit = Commit::at(base + bad);
    const bool vouched = commit && commit.header().header_check != 0 &&
                         check_header(commit, end - bad) == Fault::none;
    if (!vouched) return find_from(base, bad + format::kRecordAlign, end, numbers, dense, budget);
    // A header that is right by its own check vouches for its length, so the bytes of its damaged payload
    // are not looked at: they may hold copies of records. It vouches for its number, too: what is
    // missing before it is missing, and does not count against those behind.
    const std::uint64_t behind = bad + commit.record_bytes();
    if (commit.header().type_id != format::kPadType &&
        (!numbers || commit.header().seq >= numbers->next)) {
        const Numbering own{commit.header().seq + 1, static_cast<std::int64_t>(behind)};
        return find_from(base, behind, end, own, dense, budget);
    }
    return find_from(base, behind, end, numbers, dense, budget);
}

void write_pad(std::byte* at, std::uint64_t bytes) noexcept {
    auto& header = *reinterpret_cast<RecordHeader*>(at);
    std::atomic_ref commit(header.commit_len);
    commit.store(
        0, std::memory_order_seq_cst);  // a damaged header may be committed: take it back first
    RecordHeader pad{};
    pad.commit_len = static_cast<std::uint32_t>(bytes - kRecordHeaderBytes + 1);
    pad.version = format::kRecordVersion;
    pad.type_id = format::kPadType;
    pad.header_check = crc32c_32bytes(&pad);
    std::memcpy(at + 4, reinterpret_cast<std::byte*>(&pad) + 4, kRecordHeaderBytes - 4);
    commit.store(pad.commit_len, std::memory_order_seq_cst);
}

}  // namespace tapewire::queue
