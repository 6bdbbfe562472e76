// The writer of a queue. `try_append` is the hot path: no allocation, no system call, no lock. What
// it cannot do (roll, full, closed, forked, reserved) is left to `make_room`, which may block and
// throws with the reason.
//
// A Writer belongs to one thread at a time; its workers run on the shared service threads of the
// process.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/checksum.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/format/stats.hpp"
#include "tapewire/process.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/retention.hpp"
#include "tapewire/queue/writer_lock.hpp"
#include "tapewire/service.hpp"

namespace tapewire::queue {

static_assert(std::endian::native == std::endian::little, "the formats are little-endian");

struct WriterWorkers;  // the writer's clients of the service threads

struct WriterOptions {
    std::uint64_t segment_bytes = 0;  // 0: 128 MiB for a new queue, else what the queue has
    std::uint64_t max_bytes = 0;      // 0: no limit
    std::uint64_t max_segments = 0;
    bool preallocate = true;
    bool require_prealloc = false;
    std::int64_t prealloc_wait_ns = 1'000'000;
    bool defer_seal_sync = true;
    bool memlock = false;
    bool checksum = true;
    std::uint32_t index_stride = format::kSeekIndexStrideDefault;
    RetentionRules retention;
    std::uint64_t flush_records = 0;  // 0 and 0: no flush thread
    std::int64_t flush_interval_ns = 0;
    std::optional<std::uint64_t> first_seq;
    std::optional<bool> sparse;
    bool repair = false;  // check the entire log, and rebuild control.meta if it is damaged
};

// Counts the sealed segments that the writers of this process still hold, each with a descriptor.
class SealedPlace {
  public:
    SealedPlace() = default;
    ~SealedPlace() {
        if (taken_) held_.fetch_sub(1, std::memory_order_relaxed);
    }
    SealedPlace(const SealedPlace&) = delete;
    SealedPlace& operator=(const SealedPlace&) = delete;
    void take() noexcept {
        taken_ = true;
        held_.fetch_add(1, std::memory_order_relaxed);
    }
    // Whether they use up their share, a quarter of the descriptors of the process.
    static bool all_taken() noexcept {
        return held_.load(std::memory_order_relaxed) >= most_.load(std::memory_order_relaxed);
    }
    static void look_at_limit() noexcept;  // a process may change it

  private:
    inline static std::atomic<std::uint64_t> held_{0};
    inline static std::atomic<std::uint64_t> most_{256};
    bool taken_ = false;
};

// A segment of the writer, with its growing index.
struct WriterSegment {
    Segment segment;
    std::unique_ptr<IndexBuilder> index;
    // Blocks are allocated for all bytes before this, so writing to them cannot fail. Grows ahead
    // of the writer where blocks are memory; else it is the end of the segment from the start.
    std::atomic<std::uint64_t> allocated_to{0};
    // Pages are populated up to here, for speed. Used by a worker only.
    std::uint64_t populated_to = 0;
    SealedPlace sealed_place;

    // Before the descriptor is closed: a copy of it in a child process must not keep the lock.
    ~WriterSegment() { segment.unlock(); }
};

// The place of the writer in its private memory. The hints in control.meta are for other processes:
// they are shared memory and may be damaged.
struct WriterPlace {
    std::shared_ptr<WriterSegment> segment;  // null after close
    std::uint64_t offset = 0;
    std::uint64_t next_seq = 0;       // of the record at `offset`, or lower
    std::uint64_t bytes_written = 0;  // since the writer was opened
};

// Rows of a batch: either n rows of one size at a fixed stride, or n pointers with n lengths.
struct BatchRows {
    std::uint64_t count = 0;
    const std::byte* base = nullptr;
    std::int64_t stride = 0;
    std::uint32_t row_bytes = 0;
    const std::byte* const* pointers = nullptr;
    const std::uint64_t* lengths = nullptr;
    std::uint16_t type_id = 0;
    const std::uint16_t* type_ids = nullptr;
    std::uint16_t flags = 0;
    const std::uint16_t* flags_each = nullptr;
    std::uint64_t timestamp_ns = 0;
    const std::uint64_t* timestamps_ns = nullptr;
    const std::uint64_t* seqs = nullptr;  // sparse logs only

    std::uint64_t length(std::uint64_t i) const {
        return lengths != nullptr ? lengths[i] : row_bytes;
    }
    const std::byte* row(std::uint64_t i) const {
        return pointers != nullptr ? pointers[i] : base + static_cast<std::int64_t>(i) * stride;
    }
};

class Writer final : private ForkAware {
  public:
    static constexpr std::uint64_t kNoSeq = ~std::uint64_t{0};  // has no successor: never assigned

    Writer(const std::string& root, const WriterOptions& options);
    ~Writer() override;

    // Appends and returns true, or does nothing and returns false: then call make_room and try
    // again. The caller has checked that type_id is not PAD, flags has no system bit, and seq is
    // valid and not kNoSeq. `payload_is_stable`: it cannot change during the call, so it is
    // checksummed in place, in parallel with the copy rather than after it.
    bool try_append(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                    std::uint64_t timestamp_ns, const void* payload, std::uint64_t payload_len,
                    bool payload_is_stable = false) noexcept {
        const std::uint64_t bytes = format::record_bytes(payload_len);
        // Atomic, since another thread may be rolling: then the limit is 0.
        const std::uint64_t offset = std::atomic_ref(offset_).load(std::memory_order_relaxed);
        if (offset + bytes > limit_.load(std::memory_order_relaxed)) [[unlikely]]
            return false;
        std::byte* at = base_ + offset;
        std::memcpy(at + format::kRecordHeaderBytes, payload, payload_len);
        publish(at, seed_.at(offset), type_id, flags, seq, timestamp_ns,
                static_cast<std::uint32_t>(payload_len),
                payload_is_stable ? payload : at + format::kRecordHeaderBytes,
                std::memory_order_seq_cst);
        advance(seq, timestamp_ns, bytes);
        wake_if_waiting();
        return true;
    }

    // The same for a record with a sequence number of its own, in a sparse log.
    bool try_append_numbered(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                             std::uint64_t timestamp_ns, const void* payload,
                             std::uint64_t payload_len, bool payload_is_stable = false) noexcept {
        const std::uint64_t next = next_seq_;
        if (!try_append(type_id, flags, seq, timestamp_ns, payload, payload_len, payload_is_stable))
            return false;
        pass_numbers(seq - next);
        return true;
    }

    std::uint64_t next_seq() const noexcept { return next_seq_; }
    bool sparse() const noexcept { return sparse_; }
    std::uint64_t segment_bytes() const noexcept { return control_.segment_bytes(); }
    std::uint64_t first_seq() const noexcept { return control_.first_seq(); }
    std::uint64_t epoch() const noexcept { return epoch_; }
    std::uint64_t max_payload_bytes() const noexcept;
    bool lost() const noexcept {
        return any_mapping_lost() &&
               (current_map_->lost() || control_.map().lost() || ousted_.load());
    }
    bool forked_away() const noexcept { return forked(); }

    // Disables the fast path, so that an append of another thread cannot run during a call that has
    // released the GIL; resume() enables it again.
    void suspend() noexcept { limit_.store(0, std::memory_order_relaxed); }
    void resume() noexcept;

    // Makes space for one record, rolling if needed. False while the queue is full: wait and call
    // again, or call throw_full(). Throws for every other reason.
    bool make_room(std::uint64_t payload_len);
    // The same, if that needs neither waiting nor a system call; false: call make_room.
    bool make_room_at_once(std::uint64_t payload_len);
    [[noreturn]] void throw_full();

    // All rows or, if the queue is full, none. If it throws, `done` is the number of rows appended.
    bool batch_fits(const BatchRows& rows);
    void append_batch(const BatchRows& rows, std::uint64_t& done);

    // Space in the segment for the caller to fill. One at a time; appending meanwhile throws.
    std::byte* reserve(std::uint64_t payload_len);
    void commit_reserved(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                         std::uint64_t timestamp_ns, std::uint64_t payload_len);
    void abort_reserved() noexcept;
    bool reservation_open() const noexcept { return reserved_bytes_ != 0; }
    const MappingRef& current_map() const noexcept { return current_map_; }
    const Layout& layout() const noexcept { return layout_; }

    void check_number(std::uint64_t seq) const;  // of a record of a sparse log
    void check_usable() const;                   // open, not forked, its mapping intact

    void flush_async();
    void flush_sync();
    std::vector<std::uint64_t> stats() const;
    std::vector<std::string> take_events();
    void close();  // releases everything, then throws what could not be synced

  private:
    friend struct WriterWorkers;

    // SYNC commit: the store that makes the record exist; pairs with load_commit.
    // `checksummed` is the payload, here or at its source.
    // `state` is the initial state of the header check at this place.
    void publish(std::byte* at, std::uint32_t state, std::uint16_t type_id, std::uint16_t flags,
                 std::uint64_t seq, std::uint64_t timestamp_ns, std::uint32_t payload_len,
                 const void* checksummed, std::memory_order order) noexcept {
        std::uint32_t crc = 0;
        if (checksum_) {
            crc = crc32(checksummed, payload_len);
        } else {
            flags |= format::kFlagNoChecksum;
        }
        // Stored and checked as words: fields of two and four bytes read back as eight would miss
        // the store buffer's forwarding.
        using format::RecordHeader;
        const format::RecordHeaderWords words =
            format::header_words(payload_len + 1u, seq, timestamp_ns, type_id, flags, crc);
        const std::uint32_t check = crc32c_32bytes(words.data(), state);
        const std::uint32_t version = format::kRecordVersion;  // and the reserved bytes after it
        static_assert(offsetof(RecordHeader, version) + sizeof version ==
                      offsetof(RecordHeader, seq));
        std::memcpy(at + offsetof(RecordHeader, version), &version, sizeof version);
        std::memcpy(at + offsetof(RecordHeader, seq), &words[offsetof(RecordHeader, seq) / 8],
                    format::kHeaderCheckedBytes - offsetof(RecordHeader, seq));
        std::memcpy(at + offsetof(RecordHeader, header_check), &check, sizeof check);
        auto& header = *reinterpret_cast<RecordHeader*>(at);
        std::atomic_ref(header.commit_len).store(payload_len + 1u, order);
    }

    void advance(std::uint64_t seq, std::uint64_t timestamp_ns, std::uint64_t bytes) noexcept {
        const std::uint64_t at = offset_;  // loaded once: the index's stores might change it
        index_->add(seq, timestamp_ns, at);
        advance_to(at + bytes, seq + 1);
    }

    void advance_to(std::uint64_t offset, std::uint64_t next_seq) noexcept {
        // In this order for place(): an offset that is seen covers stored records only, and a
        // sequence number that is seen comes with the offset of that record or a later one.
        std::atomic_ref(offset_).store(offset, std::memory_order_release);
        std::atomic_ref(next_seq_).store(next_seq, std::memory_order_release);
        std::atomic_ref(shared_->write_offset).store(offset, std::memory_order_release);
        std::atomic_ref(shared_->write_check)
            .store(offset ^ position_mask_, std::memory_order_relaxed);
    }

    void pass_numbers(std::uint64_t n) noexcept {
        passed_.store(passed_.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
    }
    // The number of records appended by this writer. Derived, so that an append need not count.
    std::uint64_t records() const noexcept {
        const std::uint64_t passed = passed_.load(std::memory_order_relaxed);
        auto& next = const_cast<std::uint64_t&>(next_seq_);
        return std::atomic_ref(next).load(std::memory_order_relaxed) - opened_seq_ - passed;
    }

    // SYNC wake: pairs with Reader::park. The load comes after the seq_cst commit (or fence).
    void wake_if_waiting() noexcept {
        if (std::atomic_ref(shared_->waiters_pending).load(std::memory_order_seq_cst) != 0)
            [[unlikely]]
            wake();
    }
    void check_not_reserved() const;
    void wake() noexcept;
    void on_forked() noexcept override { suspend(); }

    bool create_if_new();
    void check_geometry() const;
    void take_over(RecoveredTail& tail);
    std::uint64_t rolls_needed(const BatchRows& rows);
    void check_open() const;  // safe during an append of another thread
    std::uint64_t append_some(const BatchRows& rows, std::uint64_t first,
                              const char*& refused) noexcept;
    template <std::uint32_t FixedBytes, bool Columns>
    std::uint64_t append_run(const BatchRows& rows, std::uint64_t first,
                             const char*& refused) noexcept;
    void open_checkpoint();
    void open_stats();
    void lock_if_wanted(const Segment& segment) const;
    void start_workers();
    std::uint64_t remaining() const noexcept { return control_.segment_bytes() - offset_; }
    std::uint64_t segments() const noexcept;
    WriterPlace place() const;
    WriterPlace place_locked() const;  // under segments_mutex_
    std::uint64_t rolls() const noexcept {
        return stats_[static_cast<std::size_t>(format::Stat::rolls)].load(
            std::memory_order_relaxed);
    }
    std::uint64_t segment_limit() const noexcept;
    void enter(std::shared_ptr<WriterSegment> segment, std::uint64_t offset) noexcept;
    std::unique_ptr<WriterSegment> make_segment(std::uint32_t id, bool durable);
    void make_control_again();
    void allocate_step(std::uint64_t to);
    void check_numbers_left() const;
    bool backlog_is_full();
    std::size_t backlog() const noexcept { return std::max(unsynced_.size(), unindexed_.size()); }
    void allocate_first(WriterSegment& made, std::uint64_t from);
    void allocate_more(WriterSegment& segment, std::uint64_t to);
    std::uint64_t allocated() const noexcept {
        return current_->allocated_to.load(std::memory_order_acquire);
    }
    // The next segment, if it is ready. Any other segment must not be entered: it would be
    // overwritten.
    std::shared_ptr<WriterSegment> take_prepared() noexcept {
        std::shared_ptr<WriterSegment> ready(
            prepared_.exchange(nullptr, std::memory_order_acq_rel));
        if (ready && ready->segment.id() != current_id_.load(std::memory_order_relaxed) + 1)
            ready.reset();
        return ready;
    }
    std::shared_ptr<WriterSegment> next_segment();
    bool capacity_allows(std::uint64_t more_segments);
    void approach_end() noexcept;
    void roll();
    void run_retention() noexcept;
    bool flush_in_background() noexcept;
    void sync_file(const File& file);
    void sync_queue_directory();
    void remember_failed_sync(const Error& e) noexcept;
    void check_no_sync_failed() const;
    void clear_recorded_failure() noexcept;
    void sync_inherited();
    void write_again(const Segment& segment, const UnsyncedSpan& span);
    void write_again_at_opening(const Segment& segment, const UnsyncedSpan& span) noexcept;
    void sync_everything(bool closing = false);
    void check_in_place(const File& file) const;
    void check_complete(const File& segment) const;
    bool is_complete(const File& segment) const;
    [[noreturn]] void throw_missing(const std::string& path) const;
    bool is_in_place(const WriterSegment& sealed);
    bool was_retired(std::uint32_t id);
    void note_missing(std::uint32_t id);
    std::optional<std::uint32_t> first_missing();
    std::size_t let_go(const std::shared_ptr<WriterSegment>& sealed);
    void bound_backlog();
    void watch_lock(std::int64_t now) noexcept;
    void look_at_lock() noexcept;
    void check_not_ousted() const;
    std::string another_epoch(std::uint64_t epoch) const;
    [[noreturn]] void throw_ousted(const std::string& why) const;
    void write_stats() noexcept;
    void free_after(const Segment& segment, std::uint64_t end) noexcept;
    void note(std::string event) noexcept;
    void count(format::Stat stat, std::uint64_t n = 1) noexcept {
        stats_[static_cast<std::size_t>(stat)].fetch_add(n, std::memory_order_relaxed);
        changes_.fetch_add(1, std::memory_order_relaxed);
    }

    // Hot: what an append reads and writes.
    std::byte* base_ = nullptr;
    std::uint64_t offset_ = 0;
    // Records may be appended up to this offset; 0: take the slow path. The heartbeat stores 0 when
    // another writer has taken the queue, hence no append changes it.
    std::atomic<std::uint64_t> limit_{0};
    std::uint64_t next_seq_ = 0;
    HeaderSeed seed_;
    IndexBuilder* index_ = nullptr;
    format::ControlBlock* shared_ = nullptr;  // the words of control.meta
    std::uint64_t position_mask_ = 0;         // for write_check, by the segment
    bool checksum_ = true;
    std::uint64_t opened_seq_ = 0;          // next_seq_ when the writer was opened
    std::atomic<std::uint64_t> passed_{0};  // sequence numbers skipped since then

    // What each heartbeat reads, on one cache line: with a thousand idle writers, the misses
    // dominate.
    alignas(64) std::unique_ptr<Mapping> stats_map_;
    std::atomic<std::uint64_t> changes_{0};              // of stats_
    std::uint64_t written_changes_ = ~std::uint64_t{0};  // as of what stats_map_ holds
    std::int64_t lock_watched_ns_ = 0;
    std::uint64_t lock_watched_records_ = 0;
    std::uint64_t epoch_ = 0;
    std::atomic<bool> ousted_{false};  // the queue was taken from this writer
    std::atomic<bool> has_all_locks_{false};

    // Cold.
    Layout layout_;
    WriterOptions options_;
    std::optional<WriterLock> lock_;
    Control control_;
    bool sparse_ = false;
    // Where blocks are memory (tmpfs), they are allocated as the segment is filled: fifty quiet
    // queues must not occupy fifty segments. On a disk they cost nothing until they are written.
    bool in_steps_ = false;
    std::atomic<bool> closed_{false};
    std::uint64_t reserved_bytes_ = 0;
    bool near_end_ = false;    // approach_end() has run in this segment
    std::size_t backlog_ = 0;  // at the last roll; the lists may be shorter by now
    MappingRef current_map_;
    File checkpoint_file_;
    std::array<std::atomic<std::uint64_t>, format::kStatCount> stats_{};

    mutable std::mutex segments_mutex_;  // guards these against the service threads
    std::shared_ptr<WriterSegment> current_;
    std::vector<std::shared_ptr<WriterSegment>> unsynced_;   // sealed, sync still due, oldest first
    std::vector<std::shared_ptr<WriterSegment>> unindexed_;  // sealed, index file still due
    std::vector<UnsyncedSpan> inherited_;  // of the previous writer, sync still due
    // Removed before their sync: no later flush succeeds. Only their numbers, to save descriptors.
    std::vector<std::uint32_t> missing_;
    std::vector<std::uint32_t> rescan_;  // sealed before this writer, without a complete index
    std::uint64_t bytes_before_ = 0;     // written by this writer to earlier segments
    std::uint64_t entered_at_ = 0;       // where this writer began in the current one

    std::mutex sync_mutex_;  // one sync at a time: each ends with the checkpoint of what it covered
    std::mutex directory_mutex_;  // held until a failed sync of the directory is in sync_errno_
    std::atomic<int> sync_errno_{
        0};  // sticky: after a failed sync the kernel may mark lost pages as clean

    std::atomic<std::uint32_t> current_id_{0};
    std::atomic<std::uint32_t> lowest_id_{0};
    std::atomic<std::uint32_t> last_record_id_{0};  // highest segment known to hold a record

    std::mutex prealloc_mutex_;  // held while a next segment is being made
    // The segment to prepare; 0 = none, since segment 0 is never prepared ahead. Set by the
    // appending thread when it enters a segment, cleared by the worker after it has handed the next
    // one over: so no segment is ever prepared twice.
    std::atomic<std::uint32_t> wanted_id_{0};
    std::atomic<WriterSegment*> prepared_{nullptr};  // owned; taken by exchange
    std::atomic<int> prealloc_errno_{0};

    std::mutex retention_mutex_;
    RetentionWatch retention_;

    std::mutex events_mutex_;
    std::deque<std::string> events_;

    std::mutex look_mutex_;         // the heartbeat and a flush look at the lock
    std::string ousted_why_;        // set before ousted_
    std::uint64_t step_bytes_ = 0;  // of the last allocation that the appending thread had to make

    std::unique_ptr<WriterWorkers> workers_;
};

}  // namespace tapewire::queue
