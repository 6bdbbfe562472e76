// Is the place where a log seems to end its end? One word that became 0 looks like it. So an end
// counts only when nothing that a writer left says that the log went further.
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
    std::string why;  // what says so
    std::uint64_t reached =
        0;  // of this segment, and proven; 0: the records up to there are not known
    std::uint64_t next_seq = 0;  // of the record that follows; 0: not known
};

// Asked of a place without a committed record while no writer lives: in the segment where the log
// ends, or in one that is `over`, sealed or followed by another. Empty: it is the end.
std::optional<LostEnd> contradicts_end(const Layout& layout, const Control& control,
                                       const Segment& segment, std::uint64_t offset, bool over);

// Whether records of a later segment than `id` were on disk.
bool lies_in_later_segment(const TailCheckpoint& checkpoint, std::uint32_t id) noexcept;

// While a writer lives it has come to `written`, by its hint: whether a record in between lost its
// commit word. A wrong hint alone is no such record.
bool hides_record(const Segment& segment, std::uint64_t offset, std::uint64_t written);

// Up to where a killed writer of this boot of the machine can have come in a segment: after a word
// that is 0 there, nothing was ever committed.
struct Written {
    std::uint64_t offset;
    bool here;  // it was in this very segment; one that it has left has a recorded end
};

// By the hint. Empty: not known, as after a loss of power.
std::optional<Written> written_to(const Control& control, const Segment& segment) noexcept;

// For recovery: up to where the segment certainly held records, by what its writers have recorded,
// and the sequence number after them (0: not known). Offset 0: not known.
SegmentEnd proven_end(const Layout& layout, const Control& control,
                      const std::optional<TailCheckpoint>& checkpoint, const Segment& segment);

// The header of a record that took [at, to) and lost its commit word, by the check that is left of
// it.
std::optional<format::RecordHeader> lost_header(const Segment& segment, std::uint64_t at,
                                                std::uint64_t to) noexcept;

// How many records can have been in [at, to), whose first header is damaged: one, where what is
// left of it says so; else as many as fit.
std::uint64_t most_records(const Segment& segment, std::uint64_t at, std::uint64_t to) noexcept;

}  // namespace tapewire::queue
