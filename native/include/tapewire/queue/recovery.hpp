// Finding the end of a log whose writer may have been killed, and repairing what must be repaired,
// before a writer appends again. What was committed and is valid stays; what is damaged in the
// middle is fenced off by a PAD and kept in a copy; nothing is cut away.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/queue/control.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/reader_meta.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

// So many sealed segments at the most wait for their sync, each with a descriptor and a mapping.
inline constexpr std::uint32_t kUnsyncedMost = 32;

// Part of a segment that was written by a predecessor and may not be on disk. The kernel may even
// call it clean after a failed write: it is on disk once it was dirtied and synced again.
struct UnsyncedSpan {
    std::uint32_t segment;
    std::uint64_t from;
    std::uint64_t to;
};

struct RecoveredTail {
    std::optional<Segment> segment;  // the one to append to; always set on return
    std::uint64_t offset = 0;
    std::uint64_t next_seq = 0;
    bool sparse = false;
    std::unique_ptr<IndexBuilder> index;  // of that segment
    // Of segments up to that one, oldest first: a predecessor's records, or our repairs.
    std::vector<UnsyncedSpan> unsynced;
    std::uint32_t lowest_segment = 0;
    std::uint32_t last_record_segment = 0;  // highest that holds a record
    std::uint64_t pads = 0;
    std::uint64_t damaged_spans = 0;
    std::uint64_t gaps = 0;
    bool numbers_lost = false;        // `next_seq` is higher than the last record that is left says
    std::vector<std::string> report;  // one line for each thing that was found and done
};

struct RecoveryOptions {
    std::uint32_t index_stride = format::kSeekIndexStrideDefault;
    bool sparse = false;   // of a queue that has no segment yet
    bool created = false;  // just now, by us: there is nothing to look for
    // Looks at every record of every segment, wherever the checkpoint is, and writes damaged
    // segment headers again: repair, not the opening of a writer.
    bool everything = false;
};

// Called with the writer's lock held. Does not wake readers: opening the writer does.
RecoveredTail recover(const Layout& layout, Control& control, const RecoveryOptions& options);

// Everything before `position` was on disk when this was stored.
struct TailCheckpoint {
    Position position;
    std::uint64_t next_seq = 0;  // of the record after it, or lower; 0: not recorded
    bool checked = true;         // by a CRC: what it says is proven
};

// `key`: of the queue, 0 without one. Empty: missing, damaged, or another queue's.
std::optional<TailCheckpoint> load_tail_checkpoint(const Layout& layout, std::uint64_t key);
void store_tail_checkpoint(const File& file, const TailCheckpoint& checkpoint, std::uint64_t key);

// Makes control.meta again, from what the headers of the segments say. Throws when none is valid.
void rebuild_control(const Layout& layout);
// Whether control.meta and the segments are of one queue, as far as segments have valid headers.
bool fits_segments(const Layout& layout, const Geometry& geometry);

}  // namespace tapewire::queue
