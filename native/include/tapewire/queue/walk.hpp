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
    // `numbers` is what is known of those before `from`: without it a copy of a record inside a
    // damaged payload cannot be told from a record.
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

    // Moves to the next record; false at the end (no committed record behind).
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
    // Of what lies before the next step: the last record stepped to, or what the walk began with.
    const std::optional<Numbering>& numbers() const noexcept { return numbers_; }
    // Where the damage lies that the last steps hopped over; 0 = none.
    std::uint64_t damage() const noexcept { return damage_; }
    void forget_damage() noexcept { damage_ = 0; }

  private:
    // From a place that holds no right record to the next one that does.
    bool hop() noexcept {
        // A header of zeros is the end, unless the writer has recorded another one.
        if (!commit_ && at_ >= recorded_end_ && rest_of_header_is_zero(base_ + at_)) return false;
        const std::uint64_t found =
            find_right_record({base_, end_, seed_, dense_, end_}, at_, numbers_, budget_);
        if (!commit_ && load_commit(base_ + at_) != 0) {
            next_ = at_;  // it was being written just now, and is there
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

// The end of a segment is the first record's place in the next.
inline std::optional<Numbering> in_next_segment(std::optional<Numbering> numbers,
                                                std::uint64_t segment_bytes) noexcept {
    if (numbers) {
        numbers->counted_to -=
            static_cast<std::int64_t>(segment_bytes - format::kSegmentDataOffset);
    }
    return numbers;
}

// Behind all that lies in the segments before `id`, in its own offsets. Empty: they cannot tell.
std::optional<Numbering> numbers_below(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id);

// The numbers before `offset` of `segment`, by what lies before it. Empty: nothing that could tell is
// there any more. Looks into earlier segments, a limited number, only while the first record of each is
// damaged.
std::optional<Numbering> numbers_before(const Layout& layout, const Geometry& geometry,
                                        const Segment& segment, std::uint64_t offset);

// Valid records of a segment are looked for after `offset`, and not in the hole that its file ends with: in a
// file in memory each page of it that is read would be allocated.
Search search_after(const Segment& segment, std::uint64_t offset);

// The same segment read-only; empty when it is missing or its header is damaged: then it tells nothing.
std::optional<Segment> open_or_nothing(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id);

// After a loss of power a segment ahead of the log may hold something that looks like records: the one
// below is open, and of none here the payload is right. Recovery will set it aside.
bool lies_ahead(const Layout& layout, const Geometry& geometry, const Segment& segment);

// A walk from the segment's start, which knows its number when the first record is damaged.
Walk walk_from_start(const Layout& layout, const Geometry& geometry, const Segment& segment);

}  // namespace tapewire::queue
