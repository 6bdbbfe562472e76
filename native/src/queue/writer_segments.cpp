// Writer: space for records. Preallocated blocks, segments, rolling, capacity.
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/writer.hpp"
#include "writer_workers.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;
using format::Stat;

namespace {

// In memory-backed file systems blocks are allocated in steps; those of the appending thread grow.
constexpr std::uint64_t kStepMinBytes = 256 * 1024;
constexpr std::uint64_t kStepMaxBytes = 16 * 1024 * 1024;

std::uint64_t page_up(std::uint64_t bytes) { return (bytes + 4095) & ~std::uint64_t{4095}; }

}  // namespace

// Allocates blocks for the first appends, from `offset` on.
void Writer::allocate_first(WriterSegment& made, std::uint64_t offset) {
    const Segment& segment = made.segment;
    if (!in_steps_) {
        segment.file().allocate_holes(segment.size());  // a copy may have holes
        made.allocated_to.store(segment.size(), std::memory_order_release);
        return;
    }
    assert(is_record_boundary(offset, segment.size()));
    const std::uint64_t from = offset & ~std::uint64_t{4095};
    made.allocated_to.store(std::min(from, segment.size()), std::memory_order_release);
    made.populated_to = from;
    const std::uint64_t step = options_.preallocate ? kStepMinBytes : kStepMinBytes / 4;
    allocate_more(made, offset + step);
}

// Called by the appending thread and by the worker, which may do the same step at the same time.
void Writer::allocate_more(WriterSegment& made, std::uint64_t to) {
    const Segment& segment = made.segment;
    const std::uint64_t target = std::min(page_up(to), segment.size());
    std::uint64_t from = made.allocated_to.load(std::memory_order_acquire);
    if (target <= from) return;
    assert(from == page_up(from));  // only the segment end may be unaligned, no target is past it
    segment.file().allocate_range(from, target - from);
    if (options_.preallocate) segment.map()->populate(from, target - from);
    while (from < target &&
           !made.allocated_to.compare_exchange_weak(from, target, std::memory_order_acq_rel)) {
    }
}

std::uint64_t Writer::segments() const noexcept {
    return std::uint64_t{current_id_.load(std::memory_order_acquire)} -
           lowest_id_.load(std::memory_order_acquire) + 1;
}

std::uint64_t Writer::segment_limit() const noexcept {
    std::uint64_t limit = ~std::uint64_t{0};
    if (options_.max_segments != 0) limit = options_.max_segments;
    if (options_.max_bytes != 0)
        limit = std::min(limit, options_.max_bytes / control_.segment_bytes());
    return limit;
}

bool Writer::capacity_allows(std::uint64_t more_segments) {
    const std::uint64_t limit = segment_limit();
    if (segments() + more_segments <= limit) return true;
    run_retention();  // synchronously: full must be reported only if it is true
    return segments() + more_segments <= limit;
}

void Writer::throw_full() {
    count(Stat::queue_full);
    throw Error(Errc::queue_full,
                "the queue is full: segments=" + std::to_string(segments()) +
                    ", limit=" + std::to_string(segment_limit()),
                layout_.root, -1,
                "wait for the readers to commit, raise the limit, or drop the record");
}

void Writer::check_not_reserved() const {
    if (reserved_bytes_ == 0) return;
    throw Error(Errc::reservation_open, "a reservation is open", layout_.root, -1,
                "commit or abort it before the next append");
}

bool Writer::make_room(std::uint64_t payload_len) {
    check_usable();
    check_not_reserved();
    if (payload_len > max_payload_bytes()) {
        throw Error(Errc::payload_too_large,
                    "payload does not fit a segment: payload_bytes=" + std::to_string(payload_len) +
                        ", max=" + std::to_string(max_payload_bytes()),
                    layout_.root, -1, "split it, or create the queue with larger segments");
    }
    check_numbers_left();
    const std::uint64_t bytes = format::record_bytes(payload_len);
    if (bytes > remaining()) {
        near_end_ = true;
        if (!capacity_allows(1)) return false;
        bound_backlog();
        roll();
    }
    if (allocated() == control_.segment_bytes()) {
        near_end_ = true;
    } else if (bytes > allocated() - offset_) {
        allocate_step(offset_ + bytes);
    }
    assert(bytes <= allocated() - offset_);
    return true;
}

void Writer::check_numbers_left() const {
    if (next_seq_ != kNoSeq) return;
    throw Error(Errc::sequence_not_rising,
                "no sequence numbers are left: last=" + std::to_string(kNoSeq - 1), layout_.root,
                -1, "start a new queue");
}

// The worker was too slow, or there is none: allocates at least up to `to`, and more each time.
void Writer::allocate_step(std::uint64_t to) {
    assert(in_steps_ && to <= control_.segment_bytes());
    step_bytes_ = std::clamp(2 * step_bytes_, kStepMinBytes, kStepMaxBytes);
    try {
        try {
            allocate_more(*current_, std::max(to, offset_ + step_bytes_));
        } catch (const Error& e) {
            if (e.code != Errc::disk_full) throw;
            allocate_more(*current_, to);  // the last remaining blocks
        }
    } catch (const Error& e) {
        if (e.code == Errc::disk_full) count(Stat::disk_full);
        throw;
    }
    if (options_.preallocate) workers_->poke_prealloc();
}

// A roll touches a dozen cache lines that an append does not, most of them last written by another
// core. They are prefetched a few microseconds before, so that the append that rolls does not wait
// for them.
void Writer::approach_end() noexcept {
    near_end_ = true;
    __builtin_prefetch(base_, 1);  // the segment's header, for SEALED
    __builtin_prefetch(control_.map().data() + offsetof(format::ControlBlock, segment_gen), 1);
    __builtin_prefetch(&segments_mutex_, 1);
    __builtin_prefetch(&unsynced_, 1);
    // The worker replaces it only after this thread has taken it.
    const WriterSegment* next = prepared_.load(std::memory_order_acquire);
    if (next == nullptr) return;
    __builtin_prefetch(&next->allocated_to);
    const std::byte* data = next->segment.data();
    for (std::size_t line = 0; line < 512; line += 64) __builtin_prefetch(data + line, 1);
    __builtin_prefetch(next->index.get(), 1);
    (void)*reinterpret_cast<const volatile std::uint32_t*>(data);  // and its page, into the TLB
}

bool Writer::make_room_at_once(std::uint64_t payload_len) {
    if (closed_ || forked() || lost() || reserved_bytes_ != 0 || next_seq_ == kNoSeq) return false;
    if (payload_len > max_payload_bytes()) return false;
    const std::uint64_t bytes = format::record_bytes(payload_len);
    if (!near_end_ && allocated() == control_.segment_bytes()) approach_end();
    if (bytes <= remaining()) return bytes <= allocated() - offset_;
    const WriterSegment* next = prepared_.load(std::memory_order_acquire);
    if (next == nullptr || !options_.defer_seal_sync) return false;
    if (bytes > next->allocated_to.load(std::memory_order_acquire) - kSegmentDataOffset)
        return false;
    if (segments() + 1 > segment_limit() || backlog_ >= kUnsyncedMost || SealedPlace::all_taken())
        return false;
    roll();
    assert(bytes <= allocated() - offset_);
    return true;
}

void SealedPlace::look_at_limit() noexcept {
    rlimit limit{};
    if (::getrlimit(RLIMIT_NOFILE, &limit) == 0)
        most_.store(std::max<rlim_t>(limit.rlim_cur / 4, 1), std::memory_order_relaxed);
}

bool Writer::backlog_is_full() {
    std::lock_guard lock(segments_mutex_);
    backlog_ = backlog();
    SealedPlace::look_at_limit();
    return backlog_ >= kUnsyncedMost || (backlog_ > 0 && SealedPlace::all_taken());
}

// A disk that is slower than the writer must not use up the descriptors of the process: the
// appending thread does part of the work.
void Writer::bound_backlog() {
    if (!backlog_is_full()) return;
    workers_->sync_sealed(mono_ns());
    workers_->write_indexes();
}

void Writer::lock_if_wanted(const Segment& segment) const {
    if (!options_.memlock || segment.map()->lock_in_memory()) return;
    throw_errno("cannot lock the segment in memory (raise RLIMIT_MEMLOCK, or omit memlock)",
                segment.path());
}

std::unique_ptr<WriterSegment> Writer::make_segment(std::uint32_t id, bool durable) {
    if (id <= current_id_.load(std::memory_order_acquire)) {
        throw Error(Errc::corrupt_metadata, "a segment in use cannot be prepared again",
                    layout_.segment(id));
    }
    check_not_ousted();  // the segment may be another writer's
    auto made = std::make_unique<WriterSegment>();
    std::optional<Segment> ahead =
        Segment::open(layout_, control_.geometry(), id, Mapping::Access::read_write);
    // Published ahead by the previous writer. No reader can be in it while the segment before it is
    // open, so a segment that is not empty is renamed as a unit.
    if (ahead && !ahead->is_zero_from(kSegmentDataOffset)) {
        const std::string kept = layout_.free_damaged_name(id);
        rename_over(ahead->path(), kept);
        note("a segment ahead of the writer was not empty and has been renamed to " + kept);
        ahead.reset();
    } else if (ahead && ahead->sealed()) {
        remove_file(ahead->path());  // it is empty
        ahead.reset();
    }
    if (ahead) {
        made->segment = std::move(*ahead);
        made->segment.forget_end();
        allocate_first(*made, kSegmentDataOffset);
    } else {
        made->segment = Segment::prepare(layout_, control_.geometry(), id, sparse_, !in_steps_);
        try {
            allocate_first(*made, kSegmentDataOffset);
            // Before it has a name, and while it is all holes.
            if (durable) made->segment.file().sync_data();
        } catch (const Error&) {
            remove_file(layout_.segment_temp(id));  // holds blocks that a full disk needs
            throw;
        }
        if (!made->segment.publish(layout_)) {
            throw Error(Errc::corrupt_metadata, "a file with the name of the new segment exists",
                        layout_.segment(id));
        }
        if (durable) sync_queue_directory();
    }
    made->segment.lock_for_writing();
    if (options_.preallocate && (options_.require_prealloc || options_.memlock))
        made->segment.map()->populate(0, made->segment.size());
    lock_if_wanted(made->segment);
    made->index = std::make_unique<IndexBuilder>(made->segment, options_.index_stride);
    return made;
}

std::shared_ptr<WriterSegment> Writer::next_segment() {
    const std::uint32_t id = current_id_.load(std::memory_order_relaxed) + 1;
    if (!options_.preallocate) {
        return make_segment(id, false);
    }
    if (auto ready = take_prepared()) {
        count(Stat::prealloc_ready);
        return ready;
    }
    workers_->poke_prealloc();  // the request itself was made at the last roll
    const std::int64_t deadline = mono_ns() + options_.prealloc_wait_ns;
    for (int spins = 0; mono_ns() < deadline; ++spins) {
        if (auto ready = take_prepared()) {
            count(Stat::prealloc_waits);
            return ready;
        }
        if (spins < 200) {
            cpu_relax();
        } else {
            ::sched_yield();
        }
    }
    if (options_.require_prealloc) {
        const int err = prealloc_errno_.load(std::memory_order_acquire);
        if (err > 0) {
            throw_os_error(err, "the next segment could not be prepared", layout_.segment(id));
        }
        throw Error(Errc::segment_not_ready,
                    "the next segment is not prepared yet: prealloc_wait_ms=" +
                        std::to_string(options_.prealloc_wait_ns / 1'000'000),
                    layout_.segment(id), -1,
                    "append again, raise prealloc_wait or segment_bytes, or omit require_prealloc");
    }
    count(Stat::prealloc_misses);
    // The worker may be making it: then waiting for it is fastest.
    std::lock_guard lock(prealloc_mutex_);
    if (auto ready = take_prepared()) return ready;
    wanted_id_.store(0, std::memory_order_release);
    try {
        return make_segment(id, false);
    } catch (const Error&) {
        wanted_id_.store(id, std::memory_order_release);  // the worker keeps trying
        throw;
    }
}

void Writer::roll() {
    assert(reserved_bytes_ == 0 && next_seq_ != kNoSeq);
    std::shared_ptr<WriterSegment> next;
    try {
        next = next_segment();
    } catch (const Error& e) {
        if (e.code == Errc::disk_full) count(Stat::disk_full);
        throw;
    }
    std::shared_ptr<WriterSegment> old = current_;
    assert(next->segment.id() == old->segment.id() + 1);
    assert(is_record_boundary(offset_, old->segment.size()));
    {
        // Anything that can run out of memory is done before publishing to readers.
        std::lock_guard lock(segments_mutex_);
        unsynced_.reserve(unsynced_.size() + 1);
        unindexed_.reserve(unindexed_.size() + 1);
    }
    // SYNC roll: the next segment exists before SEALED is set; readers check in that order.
    control_.publish_position(next->segment.id(), kSegmentDataOffset);
    old->segment.record_end(
        {offset_, next_seq_});  // SYNC seal: before SEALED, which readers look for
    old->segment.seal();
    wake_if_waiting();
    if (offset_ > kSegmentDataOffset)
        last_record_id_.store(old->segment.id(), std::memory_order_release);
    {
        std::lock_guard lock(segments_mutex_);
        unsynced_.push_back(old);
        unindexed_.push_back(old);
        old->sealed_place.take();
        backlog_ = backlog();
        bytes_before_ += offset_ - entered_at_;
        current_ = next;
        enter(std::move(next),
              kSegmentDataOffset);  // under the mutex: place() needs a complete roll
    }
    count(Stat::rolls);
    if (options_.preallocate) {
        wanted_id_.store(current_id_.load(std::memory_order_relaxed) + 1,
                         std::memory_order_release);
    }
    if (!options_.defer_seal_sync) sync_everything();
    workers_->after_roll();
}

}  // namespace tapewire::queue
