// How many records lie before a place of a segment, without reading them all: the seek index has an
// entry for every `stride`-th record, so its number among the entries says how many lie before it,
// and less than a stride is walked. Numbers would not do: they skip in a sparse log, where records
// were lost, and where another implementation began them anew.
#pragma once

#include <cstdint>
#include <optional>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

// A place up to which was counted. Counting goes on from here as long as nobody mends the segment.
struct Mark {
    std::uint64_t records = 0;
    std::uint64_t offset = format::kSegmentDataOffset;  // behind the last record counted
    std::optional<Numbering> numbers;
};

struct RecordPlace {
    std::uint64_t offset = 0;
    std::uint64_t seq = 0;
    std::uint64_t timestamp_ns = 0;
};

struct Tally {
    Mark mark;
    std::optional<RecordPlace> last;  // counted; empty when that was before where the walk began
    std::optional<RecordPlace> next;  // the first that was not counted
    std::uint64_t end = 0;            // of the walk: `next`, or where the next record will come
    std::uint64_t damage = 0;         // the first damaged place that the walk passed; 0: none
};

// Counts the records that end at or before `to`. `known` is an earlier count of the same segment;
// it helps when it is not beyond `to`. `hint` is where the records are believed to end, when `to`
// is beyond it.
Tally count_records(const Layout& layout, const Geometry& geometry, const Segment& segment,
                    std::uint64_t to, const std::optional<Mark>& known, std::uint64_t hint);

}  // namespace tapewire::queue
