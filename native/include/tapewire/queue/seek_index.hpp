// The seek index of one segment: built by the writer as it appends, stored in NNNNNNNNN.idx, and
// checked when it is read. The segment itself always takes precedence.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "tapewire/format/seek_index.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

// Lowest and highest time of the records of a segment.
struct TimeRange {
    std::uint64_t min_ns = ~std::uint64_t{0};
    std::uint64_t max_ns = 0;

    void add(std::uint64_t ns) noexcept {
        if (ns < min_ns) min_ns = ns;
        if (ns > max_ns) max_ns = ns;
    }
};

// Grown by the appending thread, written by the index thread. Memory is reserved for the largest
// number of entries that the segment can have, and touched only as they are added.
class IndexBuilder {
  public:
    IndexBuilder(const Segment& segment, std::uint32_t stride);

    // Appending thread, every record. Two compares and a countdown; the rest every `stride`
    // records.
    void add(std::uint64_t seq, std::uint64_t ts, std::uint64_t offset) noexcept {
        last_seq_ = seq;
        times_.add(ts);
        if (--until_entry_ == 0) push(seq, offset);
    }

    std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }

    // Continues from the entries of a file up to and including `up_to_offset` (a restarted writer).
    void resume(const struct LoadedIndex& loaded, std::uint64_t up_to_offset);

    // Writes the entries added since the last call; `complete` once the segment is sealed.
    void write(const Layout& layout, bool complete);

  private:
    void push(std::uint64_t seq, std::uint64_t offset) noexcept;

    std::uint32_t segment_id_;
    std::uint64_t segment_bytes_;
    HeaderSeed seed_;
    std::uint32_t stride_;
    std::uint64_t until_entry_ = 1;  // the first record of a segment always gets an entry
    std::uint64_t last_seq_ = 0;
    TimeRange times_;
    std::uint64_t capacity_;
    std::unique_ptr<format::SeekIndexEntry[]> entries_;
    std::atomic<std::uint64_t> published_min_ts_ns_{~std::uint64_t{0}};  // as of the newest entry
    std::atomic<std::uint64_t> count_{0};
    std::uint64_t written_ = ~std::uint64_t{0};  // entries on file; ~0 = no file yet
};

struct LoadedIndex {
    bool complete = false;     // the header covers the entire segment
    bool running_max = false;  // entries carry the running maximum of time, and are checksummed
    std::uint64_t max_seq = 0;
    TimeRange times;
    std::uint32_t stride = 0;
    std::vector<format::SeekIndexEntry> entries;
};

// Empty if the file is missing, damaged, or does not belong to this segment of this queue.
std::optional<LoadedIndex> load_index(const Layout& layout, const Geometry& geometry,
                                      std::uint32_t segment_id);
std::optional<LoadedIndex> load_index(const Layout& layout, const Segment& segment);

// Whether the record at this entry is valid and has the sequence number of the entry.
bool entry_is_right(const Segment& segment, const format::SeekIndexEntry& entry) noexcept;

// Builds the index of a sealed segment by a scan, if a crash left it without one.
std::unique_ptr<IndexBuilder> scan_index(const Layout& layout, const Geometry& geometry,
                                         const Segment& segment, std::uint32_t stride);

}  // namespace tapewire::queue
