// Finds the end of a log whose writer may have been killed, and makes the necessary repairs before
// a writer appends again. Committed and valid records stay; damage in the middle is covered by a
// PAD and copied first; nothing is truncated.
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

// The maximum number of sealed segments that wait for their sync, each with a descriptor and a
// mapping.
inline constexpr std::uint32_t kUnsyncedMost = 32;

// Part of a segment that was written by a previous writer and may not be on disk. The kernel may
// even report it clean after a failed write: it is on disk only after it was dirtied and synced
// again.
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
    // Of segments up to that one, oldest first: records of the previous writer, or our repairs.
    std::vector<UnsyncedSpan> unsynced;
    std::uint32_t lowest_segment = 0;
    std::uint32_t last_record_segment = 0;  // highest that holds a record
    std::uint64_t pads = 0;
    std::uint64_t damaged_spans = 0;
    std::uint64_t gaps = 0;
    bool numbers_lost = false;        // `next_seq` is higher than the last remaining record implies
    std::vector<std::string> report;  // one line for each finding and repair
};

struct RecoveryOptions {
    std::uint32_t index_stride = format::kSeekIndexStrideDefault;
    bool sparse = false;   // for a queue that has no segment yet
    bool created = false;  // by this call: there is nothing to search for
    // Checks every record of every segment, wherever the checkpoint is, and rewrites damaged
    // segment headers: for a repair, not for opening a writer.
    bool everything = false;
};

// Call with the writer's lock held. Does not wake readers: opening the writer does.
RecoveredTail recover(const Layout& layout, Control& control, const RecoveryOptions& options);

// Everything before `position` was on disk when this was stored.
struct TailCheckpoint {
    Position position;
    std::uint64_t next_seq = 0;  // of the record after it, or lower; 0: unknown
    bool checked = true;         // has a valid CRC: its content is proven
};

// `key`: of the queue, 0 without one. Empty: missing, damaged, or of another queue.
std::optional<TailCheckpoint> load_tail_checkpoint(const Layout& layout, std::uint64_t key);
void store_tail_checkpoint(const File& file, const TailCheckpoint& checkpoint, std::uint64_t key);

// Rebuilds control.meta from the headers of the segments. Throws if none is valid.
void rebuild_control(const Layout& layout);
// Whether control.meta and the segments belong to the same queue, as far as segments have valid
// headers.
bool fits_segments(const Layout& layout, const Geometry& geometry);

}  // namespace tapewire::queue
