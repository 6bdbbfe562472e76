#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;

namespace {

// A right record, or nothing at all: then no number is needed to walk on.
bool begins_right(const Segment& segment) {
    const std::byte* at = segment.data() + kSegmentDataOffset;
    const std::uint32_t commit = load_commit(at);
    if (commit == 0) return rest_of_header_is_zero(at);
    return header_at(at).type_id != format::kPadType &&
           check_record(at, commit, segment.size() - kSegmentDataOffset) == Fault::none;
}

}  // namespace

std::optional<std::uint64_t> number_at(const Layout& layout, std::uint64_t first_seq,
                                       const Segment& segment, std::uint64_t offset) {
    std::optional<std::uint64_t> expected;
    if (offset == kSegmentDataOffset || !begins_right(segment)) {
        if (segment.id() == 0) {
            expected = first_seq;
        } else if (const auto before = Segment::open(layout, segment.id() - 1, segment.size(),
                                                     Mapping::Access::read_only)) {
            expected = number_at(layout, first_seq, *before, before->size());
        }
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
