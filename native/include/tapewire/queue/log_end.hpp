// Checks whether an apparent end of a log is its real end. A single word that became 0 looks like
// an end, so an end is accepted only if no trace of the writer indicates that the log continued.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tapewire/format/record.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

struct LostEnd {
    std::string why;             // the evidence
    std::uint64_t reached = 0;   // proven, in this segment; 0: the records up to there are unknown
    std::uint64_t next_seq = 0;  // of the record that follows; 0: unknown
};

// Called for a position without a committed record while no writer is alive: in the segment where
// the log ends, or in one that is `over`, sealed or followed by another. Empty: it is the end.
std::optional<LostEnd> contradicts_end(const Layout& layout, const Control& control,
                                       const Segment& segment, std::uint64_t offset, bool over);

// Whether records of a later segment than `id` were on disk, according to the checkpoint.
bool lies_in_later_segment(const TailCheckpoint& checkpoint, std::uint32_t id) noexcept;

// While a writer is alive and its hint shows that it has reached `written`: whether a record in
// between lost its commit word. A wrong hint alone does not count.
bool hides_record(const Segment& segment, std::uint64_t offset, std::uint64_t written);

// The furthest position that a killed writer of the current boot can have reached in a segment: if
// a word is 0 there, nothing was committed after it.
struct Written {
    std::uint64_t offset;
    bool here;  // it was in this segment; a segment that it has left has a recorded end
};

// According to the hint. Empty: unknown, as after a loss of power.
std::optional<Written> written_to(const Control& control, const Segment& segment) noexcept;

// For recovery: the offset up to which the segment certainly held records, according to what its
// writers recorded, and the sequence number after them (0: unknown). Offset 0: unknown.
SegmentEnd proven_end(const Layout& layout, const Control& control,
                      const std::optional<TailCheckpoint>& checkpoint, const Segment& segment);

// The header of a record that occupied [at, to) and lost its commit word, recovered by means of its
// remaining check.
std::optional<format::RecordHeader> lost_header(const Segment& segment, std::uint64_t at,
                                                std::uint64_t to) noexcept;

// The maximum number of records that [at, to), whose first header is damaged, can have held: one if
// the rest of the header shows it; otherwise as many as fit.
std::uint64_t most_records(const Segment& segment, std::uint64_t at, std::uint64_t to) noexcept;

}  // namespace tapewire::queue
