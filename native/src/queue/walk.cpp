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

// A segment that is missing, or whose header is damaged, tells nothing.
std::optional<Segment> open_or_nothing(const Layout& layout, std::uint32_t id,
                                       std::uint64_t bytes) {
    try {
        return Segment::open(layout, id, bytes, Mapping::Access::read_only);
    } catch (const Error&) {
        return std::nullopt;
    }
}

// Further back the number is taken for unknown, as it is when the segments are gone.
constexpr std::uint32_t kMostSegmentsBack = 64;

// The number behind all that lies in the segments before `id`.
std::optional<std::uint64_t> number_before(const Layout& layout, std::uint64_t first_seq,
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
    std::optional<std::uint64_t> expected;
    if (!known) expected = first_seq;  // the log's very first record is the damaged one
    for (; from < id; ++from) {
        const auto below = open_or_nothing(layout, from, bytes);
        if (!below) return std::nullopt;
        Walk walk(*below, kSegmentDataOffset, expected);
        while (walk.step()) expected = walk.expected();
    }
    return expected;
}

}  // namespace

std::optional<std::uint64_t> number_at(const Layout& layout, std::uint64_t first_seq,
                                       const Segment& segment, std::uint64_t offset) {
    std::optional<std::uint64_t> expected;
    if (offset == kSegmentDataOffset || !begins_right(segment)) {
        expected = number_before(layout, first_seq, segment.id(), segment.size());
    }
    Walk walk(segment, kSegmentDataOffset, expected);
    while (walk.step() && walk.offset() < offset) expected = walk.expected();
    return expected;
}

Walk walk_from_start(const Layout& layout, std::uint64_t first_seq, const Segment& segment) {
    if (begins_right(segment)) return Walk(segment, kSegmentDataOffset);
    return Walk(segment, kSegmentDataOffset,
                number_at(layout, first_seq, segment, kSegmentDataOffset));
}

}  // namespace tapewire::queue
