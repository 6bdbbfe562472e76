// Steps through a segment by its headers, payloads untouched, across damaged places.
#pragma once

#include <cassert>
#include <cstdint>
#include <optional>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

class Walk {
  public:
    // `numbers` is what is known before `from`: without it, a copy of a record inside a damaged
    // payload cannot be distinguished from a record.
    Walk(const Segment& segment, std::uint64_t from,
         std::optional<Numbering> numbers = std::nullopt) noexcept
        : base_(segment.data()),
          end_(segment.size()),
          recorded_end_(segment.end().value_or(SegmentEnd{}).offset),
          seed_(segment.seed()),
          next_(from),
          numbers_(numbers),
          dense_(!segment.sparse()),
          budget_(segment.size()) {
        assert(is_record_boundary(from, segment.size()));
    }

    // Moves to the next record; false at the end (no committed record follows).
    bool step() noexcept {
        for (;;) {
            at_ = next_;
            if (at_ + format::kRecordHeaderBytes > end_) return false;
            commit_ = Commit::at(base_ + at_);
            __builtin_prefetch(base_ + at_ + kPrefetchBytes);
            if (!commit_ || check_header(commit_, seed_, at_, end_) != Fault::none) [[unlikely]] {
                if (!hop()) return false;
                continue;
            }
            next_ = at_ + commit_.record_bytes();
            if (header().type_id == format::kPadType) continue;
            // A lower sequence number is a restart of the numbers only if the record is valid.
            if (numbers_ && header().seq < numbers_->next && check_payload(commit_) != Fault::none)
                [[unlikely]] {
                if (!hop()) return false;
                continue;
            }
            numbers_ = {header().seq + 1, static_cast<std::int64_t>(next_)};
            return true;
        }
    }

    const format::RecordHeader& header() const noexcept { return commit_.header(); }
    std::uint64_t offset() const noexcept { return at_; }  // of the record, or of the end
    // The numbers before the next step: after the last record, or as passed to the constructor.
    const std::optional<Numbering>& numbers() const noexcept { return numbers_; }
    // The offset of the first damage that was skipped since forget_damage(); 0 = none.
    std::uint64_t damage() const noexcept { return damage_; }
    void forget_damage() noexcept { damage_ = 0; }

  private:
    // From a place without a valid record to the next valid one.
    bool hop() noexcept {
        // A header of zeros is the end, unless the writer has recorded another one.
        if (!commit_ && at_ >= recorded_end_ && rest_of_header_is_zero(base_ + at_)) return false;
        const std::uint64_t found =
            find_right_record({base_, end_, seed_, dense_, end_}, at_, numbers_, budget_);
        if (!commit_ && load_commit(base_ + at_) != 0) {
            next_ = at_;  // it has been committed meanwhile
            return true;
        }
        if (found == end_) return false;
        if (damage_ == 0) damage_ = at_;
        next_ = found;
        return true;
    }

    const std::byte* base_;
    std::uint64_t end_;
    std::uint64_t recorded_end_;
    HeaderSeed seed_;
    std::uint64_t next_;
    std::uint64_t at_ = 0;
    Commit commit_;  // at at_
    std::uint64_t damage_ = 0;
    std::optional<Numbering> numbers_;
    bool dense_;
    CandidateBudget budget_;
};

// Converts from the offsets of a segment to those of the next one.
inline std::optional<Numbering> in_next_segment(std::optional<Numbering> numbers,
                                                std::uint64_t segment_bytes) noexcept {
    if (numbers) {
        numbers->counted_to -=
            static_cast<std::int64_t>(segment_bytes - format::kSegmentDataOffset);
    }
    return numbers;
}

// The numbers after all segments before `id`, in offsets of `id`. Empty if unknown.
std::optional<Numbering> numbers_below(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id);

// The numbers before `offset` of `segment`, according to the records before it. Empty if unknown.
// Looks into earlier segments, a limited number, only while the first record of each is damaged.
std::optional<Numbering> numbers_before(const Layout& layout, const Geometry& geometry,
                                        const Segment& segment, std::uint64_t offset);

// A search of a segment for valid records after `offset`, without the hole at the end of its file:
// in tmpfs, each page read from a hole would be allocated.
Search search_after(const Segment& segment, std::uint64_t offset);

// The segment, read-only; empty if it is missing or its header is damaged.
std::optional<Segment> open_or_nothing(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id);

// Whether a segment is past the end of the log although it contains apparent records, as a loss of
// power can leave it: the segment before is open, and no payload here is valid. Recovery will
// rename it.
bool lies_ahead(const Layout& layout, const Geometry& geometry, const Segment& segment);

// A walk from the start of a segment, with its numbers if the first record is damaged.
Walk walk_from_start(const Layout& layout, const Geometry& geometry, const Segment& segment);

}  // namespace tapewire::queue
