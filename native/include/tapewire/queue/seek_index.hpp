// The seek index of one segment: built by the writer as it goes, kept in NNNNNNNNN.idx, and read back
// with suspicion. What the segment itself says always wins.
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

// Lowest and highest time of what a segment holds.
struct TimeRange {
    std::uint64_t min_ns = ~std::uint64_t{0};
    std::uint64_t max_ns = 0;

    void add(std::uint64_t ns) noexcept {
        if (ns < min_ns) min_ns = ns;
        if (ns > max_ns) max_ns = ns;
    }
};

// Grown by the appending thread, written out by the index thread. Memory is reserved for the most
// entries the segment can have and touched only as they come.
class IndexBuilder {
  public:
    IndexBuilder(const Segment& segment, std::uint32_t stride);

    // Appending thread, every record. Two compares and a countdown; the rest every `stride` records.
    void add(std::uint64_t seq, std::uint64_t ts, std::uint64_t offset) noexcept {
        last_seq_ = seq;
        times_.add(ts);
        if (--until_entry_ == 0) push(seq, offset);
    }

    std::uint64_t count() const noexcept { return count_.load(std::memory_order_acquire); }

    // Goes on from what a file held up to and including `offset` (a restarted writer).
    void resume(const struct LoadedIndex& loaded, std::uint64_t up_to_offset);

    // Writes what is new since the last call; `complete` once the segment takes no more records.
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
    bool complete = false;     // the header covers the whole segment
    bool running_max = false;  // entries carry the running maximum of time, and are checksummed
    std::uint64_t max_seq = 0;
    TimeRange times;
    std::uint32_t stride = 0;
    std::vector<format::SeekIndexEntry> entries;
};

// Empty when the file is missing, damaged, or does not belong to this segment of this queue.
std::optional<LoadedIndex> load_index(const Layout& layout, const Geometry& geometry,
                                      std::uint32_t segment_id);
std::optional<LoadedIndex> load_index(const Layout& layout, const Segment& segment);

// True when the record at this entry is right and has the entry's number.
bool entry_is_right(const Segment& segment, const format::SeekIndexEntry& entry) noexcept;

// Builds the index of a whole segment by a scan (a sealed one that a crash left without).
std::unique_ptr<IndexBuilder> scan_index(const Layout& layout, const Geometry& geometry,
                                         const Segment& segment, std::uint32_t stride);

}  // namespace tapewire::queue
