// The one writer of a queue. `try_append` is the hot path: no allocation, no system call, no lock.
// Whatever it cannot do (roll, full, closed, forked, reserved) it leaves to `make_room`, which may
// block and throws with the reason.
//
// A Writer belongs to one thread at a time; its workers are the process's shared service threads.
#pragma once

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
};

// A segment of the writer with the index that grows beside it.
struct WriterSegment {
    Segment segment;
    std::unique_ptr<IndexBuilder> index;
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
    Writer(const std::string& root, const WriterOptions& options);
    ~Writer() override;

    // Appends and returns true, or does nothing and returns false: then call make_room and try again.
    // type_id is not PAD, flags has no system bit and the number is right: the caller checked.
    // `payload_is_stable`: nobody can change it under us, so it is checksummed where it lies, beside
    // the copy rather than behind it.
    bool try_append(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                    std::uint64_t timestamp_ns, const void* payload, std::uint64_t payload_len,
                    bool payload_is_stable = false) noexcept {
        const std::uint64_t bytes = format::record_bytes(payload_len);
        if (bytes > room_) [[unlikely]]
            return false;
        std::byte* at = base_ + offset_;
        std::memcpy(at + format::kRecordHeaderBytes, payload, payload_len);
        publish(at, type_id, flags, seq, timestamp_ns, static_cast<std::uint32_t>(payload_len),
                payload_is_stable ? payload : at + format::kRecordHeaderBytes,
                std::memory_order_seq_cst);
        room_ -= bytes;
        advance(seq, timestamp_ns, bytes);
        wake_if_waiting();
        return true;
    }

    std::uint64_t next_seq() const noexcept { return next_seq_; }
    bool sparse() const noexcept { return sparse_; }
    std::uint64_t segment_bytes() const noexcept { return control_.segment_bytes(); }
    std::uint64_t first_seq() const noexcept { return control_.first_seq(); }
    std::uint64_t epoch() const noexcept { return epoch_; }
    std::uint64_t max_payload_bytes() const noexcept;
    bool lost() const noexcept {
        return any_mapping_lost() && (current_map_->lost() || control_.map().lost());
    }
    bool forked_away() const noexcept { return forked(); }

    // Takes the fast path out of service, so that another thread's append cannot run into a call that
    // has released the GIL; and puts it back.
    void suspend() noexcept { room_ = 0; }
    void resume() noexcept;

    // Makes room for one record, rolling where needed. False while the queue is full and may become
    // less so: wait and call again, or raise full(). Throws for every other reason.
    bool make_room(std::uint64_t payload_len);
    // The same where it takes neither waiting nor a system call; false: call make_room.
    bool make_room_at_once(std::uint64_t payload_len);
    [[noreturn]] void throw_full();

    // All rows or, when the queue is full, none. `done` counts what was appended when it throws.
    bool batch_fits(const BatchRows& rows);
    void append_batch(const BatchRows& rows, std::uint64_t& done);

    // A place in the segment for the caller to fill. One at a time; appending meanwhile throws.
    std::byte* reserve(std::uint64_t payload_len);
    void commit_reserved(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                         std::uint64_t timestamp_ns, std::uint64_t payload_len);
    void abort_reserved() noexcept;
    bool reservation_open() const noexcept { return reserved_bytes_ != 0; }
    const MappingRef& current_map() const noexcept { return current_map_; }
    const Layout& layout() const noexcept { return layout_; }

    void check_number(std::uint64_t seq) const;  // of a record with a number of its own
    void check_usable() const;                   // open, not forked, its mapping whole

    void flush_async();
    void flush_sync();
    std::vector<std::uint64_t> stats() const;
    std::vector<std::string> take_events();
    void close();  // releases everything, then throws what could not be synced

  private:
    friend struct WriterWorkers;

    // SYNC commit: the store by which the record comes into being; pairs with load_commit.
    // `checksummed` is the payload, here or where it came from.
    void publish(std::byte* at, std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                 std::uint64_t timestamp_ns, std::uint32_t payload_len, const void* checksummed,
                 std::memory_order order) noexcept {
        std::uint32_t crc = 0;
        if (checksum_) {
            crc = crc32(checksummed, payload_len);
        } else {
            flags |= format::kFlagNoChecksum;
        }
        // The header as four words, stored and checked as words: fields of two and four bytes read
        // back as eight would miss the store buffer's forwarding.
        const std::uint64_t words[4] = {
            (std::uint64_t{format::kRecordVersion} << 32) | (payload_len + 1u),
            seq,
            timestamp_ns,
            type_id | (std::uint64_t{flags} << 16) | (std::uint64_t{crc} << 32),
        };
        const std::uint32_t check = crc32c_32bytes(words);
        const std::uint32_t version = format::kRecordVersion;
        std::memcpy(at + 4, &version, 4);
        std::memcpy(at + 8, &words[1], 24);
        std::memcpy(at + 32, &check, 4);
        auto* commit = reinterpret_cast<std::uint32_t*>(at);
        std::atomic_ref(*commit).store(payload_len + 1u, order);
    }

    void advance(std::uint64_t seq, std::uint64_t timestamp_ns, std::uint64_t bytes) noexcept {
        index_->add(seq, timestamp_ns, offset_);
        advance_by(1, seq + 1, bytes);
    }

    void advance_by(std::uint64_t records, std::uint64_t next_seq, std::uint64_t bytes) noexcept {
        offset_ += bytes;
        std::atomic_ref(next_seq_).store(next_seq, std::memory_order_relaxed);  // stats() looks on
        std::atomic_ref(*write_offset_).store(offset_, std::memory_order_release);
        records_.store(records_.load(std::memory_order_relaxed) + records,
                       std::memory_order_relaxed);
    }

    // SYNC wake: pairs with Reader::park. Load behind the seq_cst commit (or fence).
    void wake_if_waiting() noexcept {
        if (std::atomic_ref(*waiters_).load(std::memory_order_seq_cst) != 0) [[unlikely]]
            wake();
    }
    void check_not_reserved() const;
    void wake() noexcept;
    void on_forked() noexcept override { room_ = 0; }

    bool create_if_new();
    void check_geometry() const;
    std::uint64_t rolls_needed(const BatchRows& rows);
    void check_open() const;  // safe beside an append of another thread
    template <std::uint32_t FixedBytes>
    std::uint64_t append_run(const BatchRows& rows, std::uint64_t first) noexcept;
    void open_stats();
    void lock_if_wanted(const Segment& segment) const;
    void start_workers();
    std::uint64_t remaining() const noexcept { return control_.segment_bytes() - offset_; }
    std::uint64_t segments() const noexcept;
    std::uint64_t rolls() const noexcept {
        return stats_[static_cast<std::size_t>(format::Stat::rolls)].load(
            std::memory_order_relaxed);
    }
    std::uint64_t segment_limit() const noexcept;
    void enter(std::shared_ptr<WriterSegment> segment, std::uint64_t offset) noexcept;
    std::shared_ptr<WriterSegment> make_segment(std::uint32_t id, bool durable);
    // The next segment, if it is ready. Anything else than the next one is a mistake that must not be
    // entered: it would be overwritten.
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
    void sync_inherited();
    void sync_everything();
    void write_stats() noexcept;
    void free_behind_end() noexcept;
    void note(std::string event) noexcept;
    void count(format::Stat stat, std::uint64_t n = 1) noexcept {
        stats_[static_cast<std::size_t>(stat)].fetch_add(n, std::memory_order_relaxed);
    }

    // Hot: what an append reads and writes.
    std::byte* base_ = nullptr;
    std::uint64_t offset_ = 0;
    std::uint64_t room_ = 0;  // 0: take the slow path, whatever the reason
    std::uint64_t next_seq_ = 0;
    IndexBuilder* index_ = nullptr;
    std::uint64_t* write_offset_ = nullptr;
    std::uint32_t* waiters_ = nullptr;
    bool checksum_ = true;
    std::atomic<std::uint64_t> records_{0};

    // Cold.
    Layout layout_;
    WriterOptions options_;
    std::optional<WriterLock> lock_;
    Control control_;
    bool sparse_ = false;
    std::atomic<bool> closed_{false};
    std::uint64_t epoch_ = 0;
    std::uint64_t reserved_bytes_ = 0;
    bool near_end_ = false;  // approach_end() was here
    MappingRef current_map_;
    File checkpoint_file_;
    std::unique_ptr<Mapping> stats_map_;
    std::array<std::atomic<std::uint64_t>, format::kStatCount> stats_{};

    std::mutex segments_mutex_;  // guards the four below against the service threads
    std::shared_ptr<WriterSegment> current_;
    std::vector<std::shared_ptr<WriterSegment>> unsynced_;   // sealed, sync still due, oldest first
    std::vector<std::shared_ptr<WriterSegment>> unindexed_;  // sealed, index file still due
    std::vector<std::uint32_t> inherited_;                   // a predecessor's, sync still due
    std::vector<std::uint32_t> rescan_;  // sealed before us, without a whole index

    std::mutex sync_mutex_;  // one sync at a time: each ends with the checkpoint of what it covered
    std::atomic<int> sync_errno_{
        0};  // sticky: after a failed sync the kernel may call lost pages clean

    std::atomic<std::uint64_t> bytes_before_{
        0};                                     // written by us to segments before the current one
    std::atomic<std::uint64_t> entered_at_{0};  // where we began in the current one
    std::atomic<std::uint32_t> current_id_{0};
    std::atomic<std::uint32_t> lowest_id_{0};
    std::atomic<std::uint32_t> last_record_id_{0};  // highest segment known to hold a record

    std::mutex prealloc_mutex_;  // held while a next segment is being made
    // The segment to prepare; 0 = none, since segment 0 is never prepared ahead. Set by the appending
    // thread when it enters a segment, cleared by the worker after it has handed the next one over: so
    // no segment is ever prepared twice.
    std::atomic<std::uint32_t> wanted_id_{0};
    std::atomic<WriterSegment*> prepared_{nullptr};  // owned; taken by exchange
    std::atomic<int> prealloc_errno_{0};

    std::mutex retention_mutex_;
    RetentionWatch retention_;

    std::mutex events_mutex_;
    std::deque<std::string> events_;

    std::unique_ptr<WriterWorkers> workers_;
};

}  // namespace tapewire::queue
