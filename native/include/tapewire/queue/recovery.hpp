// Finding the end of a log that somebody may have been killed in, and mending what must be mended,
// before a writer appends again. What was committed and right stays; what is damaged in the middle is
// fenced off by a PAD and kept in a copy; nothing is cut away.
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

struct RecoveredTail {
    std::optional<Segment> segment;  // the one to append to; always set on return
    std::uint64_t offset = 0;
    std::uint64_t next_seq = 0;
    bool sparse = false;
    std::unique_ptr<IndexBuilder> index;  // of that segment
    // Below that segment: may hold what nobody has synced yet, a predecessor's records or our repairs.
    std::vector<std::uint32_t> unsynced;
    std::uint32_t lowest_segment = 0;
    std::uint32_t last_record_segment = 0;  // highest that holds a record
    std::uint64_t pads = 0;
    std::uint64_t damaged_spans = 0;
    std::uint64_t gaps = 0;
    std::vector<std::string> report;  // one line for each thing that was found and done
};

struct RecoveryOptions {
    std::uint32_t index_stride = format::kSeekIndexStrideDefault;
    bool sparse = false;   // of a queue that has no segment yet
    bool created = false;  // just now, by us: there is nothing to look for
};

// Called with the writer's lock held. Does not wake readers: opening the writer does.
RecoveredTail recover(const Layout& layout, Control& control, const RecoveryOptions& options);

std::optional<Position> load_tail_checkpoint(const Layout& layout);
void store_tail_checkpoint(const File& file, Position position);

}  // namespace tapewire::queue
