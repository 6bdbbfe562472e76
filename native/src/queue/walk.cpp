#include "tapewire/queue/walk.hpp"

#include "tapewire/error.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;

namespace {

// A valid record, or an empty segment: then a walk needs no sequence number.
bool begins_right(const Segment& segment) {
    const std::byte* at = segment.data() + kSegmentDataOffset;
    const Commit commit = Commit::at(at);
    if (!commit) return rest_of_header_is_zero(at);
    return commit.header().type_id != format::kPadType &&
           check_record(commit, segment.seed(), kSegmentDataOffset, segment.size()) == Fault::none;
}

// The numbers after all records of a segment below the last one. A walk ends at zeros; records may
// follow them.
std::optional<Numbering> numbers_after(const Segment& segment,
                                       const std::optional<Numbering>& before) {
    CandidateBudget budget(segment.size());
    for (Walk walk(segment, kSegmentDataOffset, before);;) {
        while (walk.step()) {
        }
        const std::uint64_t end = walk.offset();
        if (end + format::kRecordHeaderBytes > segment.size() || segment.is_zero_from(end))
            return walk.numbers();
        const std::uint64_t found =
            find_right_record(search_after(segment, end), end, walk.numbers(), budget);
        if (found == segment.size()) return walk.numbers();
        walk = Walk(segment, found, walk.numbers());
    }
}

// Further back the sequence number counts as unknown, as it does if the segments are deleted.
constexpr std::uint32_t kMostSegmentsBack = 64;

}  // namespace

Search search_after(const Segment& segment, std::uint64_t offset) {
    return {segment.data(), segment.size(), segment.seed(), !segment.sparse(),
            segment.written_end(offset)};
}

std::optional<Numbering> numbers_below(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id) {
    std::uint32_t from = id;
    bool known = false;
    while (!known && from > 0 && id - from < kMostSegmentsBack) {
        const auto below = open_or_nothing(layout, geometry, from - 1);
        if (!below) return std::nullopt;
        --from;
        known = begins_right(*below) && load_commit(below->data() + kSegmentDataOffset) != 0;
    }
    if (!known && from != 0) return std::nullopt;
    std::optional<Numbering> numbers;
    if (!known)
        numbers = {geometry.first_seq,
                   kSegmentDataOffset};  // the log's very first record is damaged
    for (; from < id; ++from) {
        const auto below = open_or_nothing(layout, geometry, from);
        if (!below) return std::nullopt;
        numbers = in_next_segment(numbers_after(*below, numbers), geometry.segment_bytes);
    }
    return numbers;
}

std::optional<Segment> open_or_nothing(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id) {
    try {
        return Segment::open(layout, geometry, id, Mapping::Access::read_only);
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::optional<Numbering> numbers_before(const Layout& layout, const Geometry& geometry,
                                        const Segment& segment, std::uint64_t offset) {
    std::optional<Numbering> numbers;
    if (offset == kSegmentDataOffset || !begins_right(segment)) {
        numbers = numbers_below(layout, geometry, segment.id());
    }
    Walk walk(segment, kSegmentDataOffset, numbers);
    while (walk.step() && walk.offset() < offset) numbers = walk.numbers();
    return numbers;
}

bool lies_ahead(const Layout& layout, const Geometry& geometry, const Segment& segment) {
    if (segment.id() == 0) return false;
    const auto below = open_or_nothing(layout, geometry, segment.id() - 1);
    if (!below || below->sealed()) return false;
    CandidateBudget budget(segment.size());
    for (Walk walk(segment, kSegmentDataOffset); walk.step();) {
        const Commit commit = Commit::at(segment.data() + walk.offset());
        if (budget.allows(commit) && check_payload(commit) == Fault::none) return false;
    }
    return true;
}

Walk walk_from_start(const Layout& layout, const Geometry& geometry, const Segment& segment) {
    if (begins_right(segment)) return Walk(segment, kSegmentDataOffset);
    return Walk(segment, kSegmentDataOffset,
                numbers_before(layout, geometry, segment, kSegmentDataOffset));
}

}  // namespace tapewire::queue
