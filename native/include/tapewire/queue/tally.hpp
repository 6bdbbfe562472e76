// Counts the records before a position in a segment without reading them all: the seek index has an
// entry for every `stride`-th record, so the index of an entry gives the count before it, and less
// than a stride is walked. Sequence numbers cannot be used: they skip values in a sparse log and
// where records were lost, and restart where another implementation restarted them.
#pragma once

#include <cstdint>
#include <optional>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

// A position with the count of the records before it. Counting continues from it as long as the
// segment is not repaired.
struct Mark {
    std::uint64_t records = 0;
    std::uint64_t offset = format::kSegmentDataOffset;  // after the last record counted
    std::optional<Numbering> numbers;
};

struct RecordPlace {
    std::uint64_t offset = 0;
    std::uint64_t seq = 0;
    std::uint64_t timestamp_ns = 0;
};

struct Tally {
    Mark mark;
    std::optional<RecordPlace> last;  // counted; empty if it is before the start of the walk
    std::optional<RecordPlace> next;  // the first record not counted
    std::uint64_t end = 0;            // of the walk: `next`, or the end of the records
    std::uint64_t damage = 0;         // the first damaged place in the walk; 0: none
};

// Counts the records that end at or before `to`. `known` is an earlier count of the same segment,
// used if it is not past `to`. `hint` is the supposed end of the records, if `to` is past it.
Tally count_records(const Layout& layout, const Geometry& geometry, const Segment& segment,
                    std::uint64_t to, const std::optional<Mark>& known, std::uint64_t hint);

}  // namespace tapewire::queue
