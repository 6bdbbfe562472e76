#include "tapewire/queue/log_end.hpp"

#include <algorithm>
#include <cassert>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;

namespace {

std::string at_offset(std::uint64_t offset) { return "offset " + std::to_string(offset); }

bool holds_valid_record(const Segment& segment, std::uint64_t from, std::uint64_t until) {
    CandidateBudget budget(segment.size());
    Search search = search_after(segment, from);
    search.until = std::min(search.until, until);
    return find_right_record(search, from, std::nullopt, budget) != segment.size();
}

std::optional<LostEnd> by_checkpoint(const std::optional<TailCheckpoint>& checkpoint,
                                     const Segment& segment, std::uint64_t offset, bool over) {
    if (!checkpoint || !checkpoint->checked) return std::nullopt;
    const Position at = checkpoint->position;
    if (at.offset % format::kRecordAlign != 0) return std::nullopt;  // no writer was ever there
    if (at.segment == segment.id() && at.offset > offset && at.offset <= segment.size()) {
        return LostEnd{"records up to " + at_offset(at.offset) + " were on disk", at.offset,
                       checkpoint->next_seq};
    }
    if (!over && lies_in_later_segment(*checkpoint, segment.id())) {
        return LostEnd{"records up to segment " + std::to_string(at.segment) + ", " +
                           at_offset(at.offset) + " were on disk",
                       0, checkpoint->next_seq};
    }
    return std::nullopt;
}

std::optional<LostEnd> by_seek_index(const Layout& layout, const Segment& segment,
                                     std::uint64_t offset) {
    const auto index = load_index(layout, segment);
    if (!index || !index->running_max || index->entries.empty()) return std::nullopt;
    const auto& last = index->entries.back();
    if (last.offset < offset) return std::nullopt;
    // The length of that record is unknown: at least its header.
    return LostEnd{"the seek index has an entry at " + at_offset(last.offset),
                   last.offset + format::kRecordHeaderBytes, last.seq + 1};
}

}  // namespace

bool lies_in_later_segment(const TailCheckpoint& checkpoint, std::uint32_t id) noexcept {
    // The start of the next segment is stored when this one is sealed: there is no record in
    // between.
    return Position{std::uint64_t{id} + 1, kSegmentDataOffset} < checkpoint.position;
}

std::optional<Written> written_to(const Control& control, const Segment& segment) noexcept {
    const auto hint = control.position();
    if (!hint || !control.written_in_this_boot() || hint->first < segment.id()) return std::nullopt;
    if (hint->second % format::kRecordAlign != 0 || hint->second > segment.size())
        return std::nullopt;  // it was never there
    const bool here = hint->first == segment.id();
    return Written{here ? hint->second : segment.size(), here};
}

bool hides_record(const Segment& segment, std::uint64_t offset, std::uint64_t written) {
    if (written <= offset || offset + format::kRecordHeaderBytes > segment.size()) return false;
    if (!rest_of_header_is_zero(segment.data() + offset)) return true;
    return holds_valid_record(segment, offset, std::min(written, segment.size()));
}

std::optional<LostEnd> contradicts_end(const Layout& layout, const Control& control,
                                       const Segment& segment, std::uint64_t offset, bool over) {
    const auto end = segment.end();
    if (end && end->offset > offset) {
        return LostEnd{"the writer ended the segment at " + at_offset(end->offset), end->offset,
                       end->next_seq};
    }
    const auto checkpoint = load_tail_checkpoint(layout, control.geometry().key);
    if (auto lost = by_checkpoint(checkpoint, segment, offset, over)) return lost;
    // A lower end: the pages of a later writer reached the disk and its withdrawal of the end did
    // not.
    if (end && end->offset == offset) return std::nullopt;
    if (offset + format::kRecordHeaderBytes > segment.size()) return std::nullopt;
    if (!over) {
        if (auto lost = by_seek_index(layout, segment, offset)) return lost;
    }
    if (segment.is_zero_from(offset)) return std::nullopt;
    if (over) return LostEnd{"bytes follow in a segment that the writer has left", 0, 0};
    const auto written = written_to(control, segment);
    if (written && written->here && written->offset > offset)
        return LostEnd{"the writer had reached " + at_offset(written->offset), written->offset, 0};
    // Killed in the middle of an append: the record being written may contain anything. With a key
    // no copy of a record in it is valid.
    if (written && !control.geometry().keyed()) return std::nullopt;
    if (holds_valid_record(segment, offset, segment.size()))
        return LostEnd{"a valid record follows", 0, 0};
    return std::nullopt;
}

SegmentEnd proven_end(const Layout& layout, const Control& control,
                      const std::optional<TailCheckpoint>& checkpoint, const Segment& segment) {
    SegmentEnd reached{0, 0};
    const bool same_boot = control.written_in_this_boot();
    // The end of a sealed segment is stored before its records are synced, that of a closed log
    // after. A kill loses neither.
    const bool complete = !segment.sealed() || !checkpoint ||
                          segment.id() < checkpoint->position.segment || same_boot;
    if (const auto end = segment.end(); end && complete) reached = *end;
    if (checkpoint && checkpoint->checked && checkpoint->position.segment == segment.id() &&
        checkpoint->position.offset <= segment.size() &&
        checkpoint->position.offset % format::kRecordAlign == 0 &&
        checkpoint->position.offset > reached.offset) {
        reached = {checkpoint->position.offset, checkpoint->next_seq};
    }
    if (!same_boot || segment.end() || segment.sealed()) return reached;
    // Nor does a kill lose what an index has. (After a loss of power an index may have outlived its
    // records, and a segment that is sealed without a recorded end may be from an earlier boot.)
    if (const auto index = load_index(layout, segment);
        index && index->running_max && !index->entries.empty() &&
        index->entries.back().offset >= reached.offset) {
        const auto& last = index->entries.back();
        reached = {last.offset + format::kRecordHeaderBytes, last.seq + 1};
    }
    return reached;
}

std::optional<format::RecordHeader> lost_header(const Segment& segment, std::uint64_t at,
                                                std::uint64_t to) noexcept {
    assert(at < to && is_record_boundary(at, segment.size()) &&
           is_record_boundary(to, segment.size()));
    format::RecordHeader header;
    std::memcpy(&header, segment.data() + at, sizeof header);
    const std::uint64_t longest = to - at - format::kRecordHeaderBytes;
    for (std::uint64_t less = 0; less < format::kRecordAlign && less <= longest; ++less) {
        header.commit_len = static_cast<std::uint32_t>(longest - less + 1);
        if (crc32c_32bytes(&header, segment.seed().at(at)) == header.header_check) return header;
    }
    return std::nullopt;
}

std::uint64_t most_records(const Segment& segment, std::uint64_t at, std::uint64_t to) noexcept {
    if (const Commit commit = Commit::at(segment.data() + at);
        commit && at + commit.record_bytes() == to)
        return 1;
    return lost_header(segment, at, to) ? 1 : (to - at) / format::kRecordAlign;
}

}  // namespace tapewire::queue
