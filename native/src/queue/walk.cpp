#include "tapewire/queue/walk.hpp"

#include "tapewire/error.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;

namespace {

// A right record, or nothing at all: then no number is needed to walk on.
bool begins_right(const Segment& segment) {
    const std::byte* at = segment.data() + kSegmentDataOffset;
    const Commit commit = Commit::at(at);
    if (!commit) return rest_of_header_is_zero(at);
    return commit.header().type_id != format::kPadType &&
           check_record(commit, segment.size() - kSegmentDataOffset) == Fault::none;
}

// Further back the number is taken for unknown, as it is when the segments are gone.
constexpr std::uint32_t kMostSegmentsBack = 64;

}  // namespace

std::optional<Numbering> numbers_below(const Layout& layout, std::uint64_t first_seq,
                                       std::uint32_t id, std::uint64_t bytes) {
    std::uint32_t from = id;
    bool known = false;
    while (!known && from > 0 && id - from < kMostSegmentsBack) {
        const auto below = open_or_nothing(layout, from - 1, bytes);
        if (!below) return std::nullopt;
        --from;
        known = begins_right(*below) && load_commit(below->data() + kSegmentDataOffset) != 0;
    }
    if (!known && from != 0) return std::nullopt;
    std::optional<Numbering> numbers;
    if (!known)
        numbers = {first_seq, kSegmentDataOffset};  // the log's very first record is damaged
    for (; from < id; ++from) {
        const auto below = open_or_nothing(layout, from, bytes);
        if (!below) return std::nullopt;
        Walk walk(*below, kSegmentDataOffset, numbers);
        while (walk.step()) {
        }
        numbers = in_next_segment(walk.numbers(), bytes);
    }
    return numbers;
}

std::optional<Segment> open_or_nothing(const Layout& layout, std::uint32_t id,
                                       std::uint64_t bytes) {
    try {
        return Segment::open(layout, id, bytes, Mapping::Access::read_only);
    } catch (const Error&) {
        return std::nullopt;
    }
}

std::optional<Numbering> numbers_before(const Layout& layout, std::uint64_t first_seq,
                                        const Segment& segment, std::uint64_t offset) {
    std::optional<Numbering> numbers;
    if (offset == kSegmentDataOffset || !begins_right(segment)) {
        numbers = numbers_below(layout, first_seq, segment.id(), segment.size());
    }
    Walk walk(segment, kSegmentDataOffset, numbers);
    while (walk.step() && walk.offset() < offset) numbers = walk.numbers();
    return numbers;
}

bool lies_ahead(const Layout& layout, const Segment& segment) {
    if (segment.id() == 0) return false;
    const auto below = open_or_nothing(layout, segment.id() - 1, segment.size());
    if (!below || below->sealed()) return false;
    CandidateBudget budget(segment.size());
    for (Walk walk(segment, kSegmentDataOffset); walk.step();) {
        const Commit commit = Commit::at(segment.data() + walk.offset());
        if (budget.allows(commit) && check_payload(commit) == Fault::none) return false;
    }
    return true;
}

Walk walk_from_start(const Layout& layout, std::uint64_t first_seq, const Segment& segment) {
    if (begins_right(segment)) return Walk(segment, kSegmentDataOffset);
    return Walk(segment, kSegmentDataOffset,
                numbers_before(layout, first_seq, segment, kSegmentDataOffset));
}

}  // namespace tapewire::queue
