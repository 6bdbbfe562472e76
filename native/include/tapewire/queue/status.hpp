// The status of a queue as seen by an outside process: writes nothing, registers nothing, and
// touches locks only for an instant. What cannot be read becomes a line in `problems`.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/error.hpp"
#include "tapewire/queue/catalog.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/reader_meta.hpp"
#include "tapewire/queue/tally.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

struct SegmentLook {
    std::uint32_t id = 0;
    std::string path;
    std::uint64_t bytes = 0;
    bool sealed = false;
    bool readable = false;
    bool sparse = false;
    bool has_index = false;
    std::optional<bool> holds_records;  // empty: unknown
    std::optional<std::uint64_t> first_seq;
};

struct ReaderLook {
    std::string name;
    std::string path;
    bool alive = false;  // a process holds the flock of its file
    ReaderState state;
    std::optional<std::uint64_t> lag_records;
    std::uint64_t lag_bytes = 0;
    std::uint64_t lag_segments = 0;
    std::uint64_t lag_ns = 0;  // from the first record it has not committed to the last record
    std::optional<std::uint64_t> next_seq;
};

struct QueueLook {
    std::uint32_t version = 0;  // 0, and the rest unknown: control.meta cannot be read
    Geometry geometry;
    int sync_errno = 0;  // errno of a failed sync of a writer, with none successful since
    bool sparse = false;
    Position hint;                       // of control.meta
    Position end;                        // of the next record, according to the segments
    std::optional<Position> checkpoint;  // according to index.meta, everything before it is on disk
    std::optional<std::uint64_t> last_seq;
    std::optional<std::uint64_t> last_timestamp_ns;
    std::optional<std::uint64_t> first_available_seq;
    std::optional<std::uint64_t> records;  // by their sequence numbers
    std::vector<SegmentLook> segments;
    LockLook lock;
    std::uint64_t epoch = 0;
    std::uint64_t heartbeat_ns = 0;
    std::vector<ReaderLook> readers;
    std::vector<std::uint64_t> stats;  // in the order of format::kStatNames; empty: none
    std::vector<std::string> temporary_files;
    std::vector<std::string> damaged_copies;
    std::vector<std::string> problems;
};

// Looks once or repeatedly. Between looks it remembers what cannot change and how far it has
// counted, and keeps nothing open.
class QueueWatch {
  public:
    explicit QueueWatch(std::string root) : layout_{std::move(root)} {}

    QueueLook look();

  private:
    struct Identity {
        std::uint64_t device = 0;
        std::uint64_t inode = 0;
        std::uint64_t born_ns = 0;
        std::uint64_t epoch = 0;
        std::uint64_t segment_bytes = 0;
        std::uint64_t key = 0;
        std::int64_t pid = 0;
        std::uint64_t start_ticks = 0;
        bool operator==(const Identity&) const = default;
    };
    struct ReaderMark {
        std::uint64_t segment = 0;
        Mark mark;
    };

    QueueLook look_once();
    void look_at_control(QueueLook& look);
    void forget_if_changed(const QueueLook& look);
    void look_at_segments(QueueLook& look);
    SegmentLook look_at_segment(QueueLook& look, std::uint32_t id);
    void look_at_readers(QueueLook& look);
    void find_end(QueueLook& look);
    bool check_end(QueueLook& look, const Segment& segment);
    void measure_lag(QueueLook& look, ReaderLook& reader);
    void expect_at(const QueueLook& look, ReaderLook& reader, std::uint32_t id) const;
    Segment open(const QueueLook& look, std::uint32_t id) const;
    std::uint64_t records_of(const QueueLook& look, std::uint32_t id);

    void add_problem(QueueLook& look, const Error& e, const std::string& about = {});

    Layout layout_;
    bool retired_ = false;  // a segment was deleted during the look
    bool end_known_ = true;
    Identity identity_;
    std::optional<Catalog> catalog_;
    std::map<std::uint32_t, SegmentLook> sealed_;
    std::map<std::uint32_t, std::uint64_t> totals_;  // records of sealed segments
    std::map<std::string, ReaderMark> reader_marks_;
    ReaderMark tail_;
    std::optional<RecordPlace> tail_last_;
    std::uint64_t tail_damage_ = 0;  // in that segment; 0: none found
};

// stats.meta: the counters in the order of format::kStatNames, as many as this release defines.
// Empty if there is no such file, or nothing was stored in it yet.
std::vector<std::uint64_t> read_stats(const Layout& layout);

// The sequence numbers with an entry in the seek index of a segment, in log order. Hints: empty
// without a valid index, and a record may have been deleted since.
std::vector<std::uint64_t> indexed_seqs(const std::string& root, std::uint32_t segment_id);

}  // namespace tapewire::queue
