#include "writer_workers.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cassert>

#include "tapewire/error.hpp"

namespace tapewire::queue {

using format::Stat;

namespace {
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kHeartbeatNs = 100 * kMs;
constexpr std::int64_t kRetryNs = 50 * kMs;
constexpr std::int64_t kPaceMinNs = kMs / 2;
constexpr std::int64_t kPaceMaxNs = 1000 * kMs;
constexpr std::int64_t kIndexPauseMinNs = 10 * kMs;
constexpr std::int64_t kIndexPauseMaxNs = 1000 * kMs;
// How far to prepare ahead of the writer: what it writes in this time, at its own rate.
constexpr std::int64_t kAheadNs = 20 * kMs;
constexpr std::uint64_t kAheadMinBytes = 256 * 1024;
constexpr std::uint64_t kAheadMaxBytes = 32 * 1024 * 1024;

// The clients of many writers run at the same times, not one after the other: a wake-up costs more
// than a run.
std::int64_t on_the_grid(std::int64_t due, std::int64_t grid_ns) {
    return (due + grid_ns - 1) / grid_ns * grid_ns;
}
}  // namespace

WriterWorkers::WriterWorkers(Writer& w) : writer(w) {}

void WriterWorkers::start() {
    services.heartbeat.add(&heartbeat);
    if (writer.options_.preallocate) services.prealloc.add(&prealloc);
    services.seal.add(&seal);
    services.index.add(&index);
    if (writer.options_.retention.enabled) services.retention.add(&retention);
    if (writer.options_.flush_records != 0 || writer.options_.flush_interval_ns != 0) {
        services.flush.add(&flush);
    }
}

void WriterWorkers::stop() noexcept {
    services.prealloc.remove(&prealloc);
    services.seal.remove(&seal);
    services.retention.remove(&retention);
    services.flush.remove(&flush);
    services.index.remove(&index);
    services.heartbeat.remove(&heartbeat);
}

void WriterWorkers::after_roll() noexcept {
    // With pre-allocation the worker runs often enough by itself: waking it here would cost the
    // appending thread a system call, and perhaps its core.
    if (writer.options_.preallocate) return;
    services.seal.poke(&seal);
    services.index.poke(&index);
}

std::int64_t WriterWorkers::beat(std::int64_t now) noexcept {
    guard_against_sigbus();
    writer.control_.beat(static_cast<std::uint64_t>(wall_ns()));
    writer.write_stats();
    writer.watch_lock(now);
    return on_the_grid(now + kHeartbeatNs / 2, kHeartbeatNs);
}

// Measures the rate of the writer, which determines how much to prepare and when to run again: four
// runs in the time that it takes to use that up, so that the writer never catches up; less and less
// often when it is idle.
std::int64_t WriterWorkers::pace(std::int64_t now, std::uint64_t bytes) noexcept {
    const std::uint64_t rolls = writer.rolls();
    if (rolls != rolls_seen) {
        rolls_seen = rolls;
        services.seal.poke(&seal);
        services.index.poke(&index);
        if (writer.options_.retention.enabled) services.retention.poke(&retention);
    }
    const std::int64_t passed = std::max<std::int64_t>(now - looked_at_ns, 1);
    const auto fresh = static_cast<double>(bytes - looked_bytes) / static_cast<double>(passed);
    // Up at once, down slowly: bursts come in groups.
    bytes_per_ns = std::max(fresh, bytes_per_ns * 0.75);
    const bool idle = bytes == looked_bytes;
    looked_bytes = bytes;
    looked_at_ns = now;
    // Clamped before the conversion, which is undefined for values that do not fit.
    ahead_bytes = static_cast<std::uint64_t>(std::clamp(bytes_per_ns * kAheadNs,
                                                        static_cast<double>(kAheadMinBytes),
                                                        static_cast<double>(kAheadMaxBytes)));
    if (idle) {
        pause_ns = std::min(2 * std::max(pause_ns, kMs), kPaceMaxNs);
        return pause_ns < kHeartbeatNs ? now + pause_ns : on_the_grid(now + pause_ns / 2, pause_ns);
    }
    const double lasts = static_cast<double>(ahead_bytes) / std::max(bytes_per_ns, 1e-9) / 4;
    pause_ns = std::clamp(static_cast<std::int64_t>(std::min(lasts, 1e15)), kPaceMinNs, kAheadNs);
    return now + pause_ns;
}

// Prepares blocks and pages ahead of the writer, so that an append takes neither a system call nor
// a page fault.
void WriterWorkers::prepare_ahead(const WriterPlace& at) {
    WriterSegment& current = *at.segment;
    assert(at.offset <= current.segment.size());
    const std::uint64_t size = current.segment.size();
    const std::uint64_t to = std::min(at.offset + ahead_bytes, size);
    if (writer.in_steps_) {
        writer.allocate_more(current, to);
        return;
    }
    const std::uint64_t from = std::max(current.populated_to, at.offset);
    // Not for a few pages: then a call costs as much as it saves.
    if (to <= from || (to < size && to - from < ahead_bytes / 4)) return;
    current.segment.map()->populate(from, to - from);
    current.populated_to = to;
}

// Whether the current segment will end soon, at the writer's own rate, so that the next one is
// needed.
bool WriterWorkers::next_is_due(const WriterPlace& at) const noexcept {
    if (writer.options_.require_prealloc) return true;
    const std::uint64_t size = at.segment->segment.size();
    return size - at.offset <= std::max(4 * ahead_bytes, size / 4);
}

std::int64_t WriterWorkers::prepare_next(std::int64_t now) noexcept {
    const WriterPlace at = writer.place();
    const std::int64_t next_look = pace(now, at.bytes_written);
    try {
        prepare_ahead(at);
    } catch (const Error& e) {
        count_prealloc_failure(e);  // the appending thread will get the same error, and raise it
    }
    if (!next_is_due(at)) return next_look;
    std::lock_guard lock(writer.prealloc_mutex_);
    const std::uint32_t id = writer.wanted_id_.load(std::memory_order_acquire);
    if (id == 0 || id <= writer.current_id_.load(std::memory_order_acquire) ||
        writer.prepared_.load(std::memory_order_acquire) != nullptr) {
        return next_look;
    }
    try {
        auto made = writer.make_segment(id, true);
        const std::uint64_t first = std::min(ahead_bytes, made->segment.size());
        if (writer.in_steps_) {
            writer.allocate_more(*made, first);
        } else if (!writer.options_.require_prealloc) {
            made->segment.map()->populate(0, first);
            made->populated_to = first;
        }
        writer.prealloc_errno_.store(0, std::memory_order_release);
        writer.prepared_.store(made.release(), std::memory_order_release);
        std::uint32_t fulfilled = id;  // unless a roll has stored the next request meanwhile
        writer.wanted_id_.compare_exchange_strong(fulfilled, 0);
        return next_look;
    } catch (const Error& e) {
        count_prealloc_failure(e);
        return now + kRetryNs;
    }
}

void WriterWorkers::count_prealloc_failure(const Error& e) noexcept {
    writer.count(Stat::prealloc_errors);
    if (writer.prealloc_errno_.exchange(e.os_errno != 0 ? e.os_errno : -1) == 0) {
        writer.note("preparing the next segment: " + e.message + " (" + e.path + ")");
    }
}

bool WriterWorkers::sync_still_due(const std::shared_ptr<WriterSegment>& sealed) {
    std::lock_guard lock(writer.segments_mutex_);
    return std::find(writer.unsynced_.begin(), writer.unsynced_.end(), sealed) !=
           writer.unsynced_.end();
}

// One at a time: each segment held here is a descriptor, while another thread may be syncing them
// all.
std::shared_ptr<WriterSegment> WriterWorkers::next_unsynced(std::int64_t after) {
    std::lock_guard lock(writer.segments_mutex_);
    for (const auto& sealed : writer.unsynced_) {
        if (sealed->segment.id() > after) return sealed;
    }
    return nullptr;
}

std::int64_t WriterWorkers::sync_sealed(std::int64_t now) noexcept {
    if (writer.sync_errno_.load(std::memory_order_acquire) != 0) {
        // A sync has failed permanently: flush_sync and close raise it. Keeping every later segment
        // open would stop the queue in the end.
        std::lock_guard lock(writer.segments_mutex_);
        writer.unsynced_.clear();
        return kWhenPoked;
    }
    // Only the current ones: a writer that rolls all the time must not keep the thread from other
    // queues.
    const std::int64_t active = writer.current_id_.load(std::memory_order_acquire);
    std::int64_t after = -1;
    while (const std::shared_ptr<WriterSegment> sealed = next_unsynced(after)) {
        after = sealed->segment.id();
        if (after >= active) return now;
        try {
            std::lock_guard syncing(writer.sync_mutex_);
            if (writer.ousted_.load(std::memory_order_acquire)) return kWhenPoked;
            if (!sync_still_due(sealed))
                continue;  // a flush has covered it, with a later checkpoint
            if (!still_named(*sealed)) {
                writer.note_missing(sealed->segment.id());  // for flush_sync and close to raise
                writer.let_go(sealed);
                continue;
            }
            sync_one_sealed(sealed->segment);
        } catch (const Error& e) {
            // If its own sync has failed, every flush raises; if it is synced, the rest is left to
            // the next segment or to a flush. Either way its descriptor is no longer needed.
            writer.let_go(sealed);
            writer.count(Stat::seal_errors);
            writer.note("syncing a sealed segment: " + e.message + " (" + e.path + ")");
            return now + 1000 * kMs;
        }
        writer.count(Stat::seals, writer.let_go(sealed));
    }
    return kWhenPoked;
}

// If that cannot be determined now, a flush will check again before it acknowledges anything.
bool WriterWorkers::still_named(const WriterSegment& sealed) noexcept {
    try {
        return writer.is_in_place(sealed);
    } catch (const Error&) {
        return true;
    }
}

// Under Writer::sync_mutex_. The checkpoint is stored only if nothing before it is in doubt.
void WriterWorkers::sync_one_sealed(const Segment& sealed) {
    const bool inherited = inherited_is_synced();
    writer.sync_file(sealed.file());
    if (!writer.is_complete(sealed.file())) {
        writer.note_missing(sealed.id());  // truncated: for flush_sync and close to raise
        return;
    }
    writer.sync_queue_directory();  // for a segment that was not made ahead
    writer.check_no_sync_failed();
    if (!inherited || writer.first_missing()) return;
    const auto end = sealed.end();
    store_tail_checkpoint(writer.checkpoint_file_,
                          {{sealed.id() + 1, format::kSegmentDataOffset}, end ? end->next_seq : 0},
                          writer.control_.geometry().key);
}

// A failure to sync the segments of the previous writer must not delay ours. Reported once: each
// sealed segment tries again.
bool WriterWorkers::inherited_is_synced() noexcept {
    try {
        writer.sync_inherited();
        inherited_failed = false;
        return true;
    } catch (const Error& e) {
        if (!inherited_failed) {
            writer.count(Stat::seal_errors);
            writer.note("syncing an earlier writer's segment: " + e.message + " (" + e.path + ")");
        }
        inherited_failed = true;
        return false;
    }
}

std::int64_t WriterWorkers::retire(std::int64_t now) noexcept {
    writer.run_retention();
    return now + std::clamp<std::int64_t>(writer.options_.retention.reader_ttl_ns / 4, 10 * kMs,
                                          1000 * kMs);
}

std::int64_t WriterWorkers::flush_due(std::int64_t now) noexcept {
    const std::uint64_t records = writer.records();
    const std::uint64_t every = writer.options_.flush_records;
    const std::int64_t interval = writer.options_.flush_interval_ns;
    const bool by_count = every != 0 && records - flushed_records >= every;
    const bool by_time =
        interval != 0 && records != flushed_records && now - flushed_at_ns >= interval;
    if (by_count || by_time) {
        if (writer.flush_in_background()) flushed_records = records;
        flushed_at_ns = now;
    } else if (records == flushed_records) {
        flushed_at_ns = now;  // measured from the first record that is not yet flushed
    }
    // By count: check often while records arrive.
    const std::int64_t look = every == 0 ? interval : records != looked_records ? kMs : 10 * kMs;
    looked_records = records;
    return now + (interval != 0 ? std::min(look, interval) : look);
}

// An index is only an aid: without it a seek scans.
template <class Work>
bool WriterWorkers::count_failure(Work work) noexcept {
    try {
        work();
        return true;
    } catch (const Error& e) {
        writer.count(Stat::index_errors);
        writer.note("writing a seek index: " + e.message + " (" + e.path + ")");
        return false;
    }
}

void WriterWorkers::write_indexes() {
    if (writer.ousted_.load(std::memory_order_acquire)) return;
    std::lock_guard writing(indexing);  // a writer with a long backlog does it itself
    std::shared_ptr<WriterSegment> current;
    std::vector<std::shared_ptr<WriterSegment>> sealed;
    {
        std::lock_guard lock(writer.segments_mutex_);
        current = writer.current_;
        sealed = writer.unindexed_;
    }
    for (auto& segment : sealed) {
        const std::uint32_t id = segment->segment.id();
        const bool written = count_failure([&] {
            segment->index->write(writer.layout_, true);
            drop_if_retired(id);
        });
        {
            std::lock_guard lock(writer.segments_mutex_);
            std::erase(writer.unindexed_, segment);
            // Once more, from its records: whether that succeeds or not, nothing is kept open for
            // it.
            if (!written) writer.rescan_.push_back(id);
        }
        segment.reset();  // and its descriptor: the writer has rolled meanwhile
    }
    if (current) count_failure([&] { current->index->write(writer.layout_, false); });
}

// Indexes one segment that was sealed before this writer was opened: reading it may take a second,
// and other clients wait for the thread.
void WriterWorkers::index_one_old() {
    std::uint32_t id = 0;
    {
        std::lock_guard lock(writer.segments_mutex_);
        if (writer.rescan_.empty()) return;
        id = writer.rescan_.back();
        writer.rescan_.pop_back();
    }
    const auto segment =
        Segment::open(writer.layout_, writer.control_.geometry(), id, Mapping::Access::read_only);
    if (!segment) return;
    scan_index(writer.layout_, writer.control_.geometry(), *segment, writer.options_.index_stride)
        ->write(writer.layout_, true);
    drop_if_retired(id);
}

// Retention removes a segment first and its index then: whichever runs last removes the index.
void WriterWorkers::drop_if_retired(std::uint32_t id) {
    if (!file_exists(writer.layout_.segment(id))) remove_file(writer.layout_.index(id));
}

// Finds sealed segments that a killed writer left without a complete index.
void WriterWorkers::find_unindexed() {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t id : writer.layout_.segments()) {
        if (id >= writer.current_id_.load(std::memory_order_acquire)) break;
        const auto kept = load_index(writer.layout_, writer.control_.geometry(), id);
        if (!kept || !kept->complete) missing.push_back(id);
    }
    std::lock_guard lock(writer.segments_mutex_);
    for (std::uint32_t id : missing) {
        const bool growing = std::any_of(writer.unindexed_.begin(), writer.unindexed_.end(),
                                         [id](const auto& s) { return s->segment.id() == id; });
        if (!growing) writer.rescan_.push_back(id);
    }
}

std::int64_t WriterWorkers::index_new(std::int64_t now) noexcept {
    if (!looked_for_unindexed) {
        looked_for_unindexed = true;
        count_failure([this] { find_unindexed(); });
    }
    write_indexes();
    count_failure([this] { index_one_old(); });
    // Often while records arrive, rarely when idle.
    const std::uint64_t records = writer.records();
    index_pause_ns = records != indexed_entries
                         ? kIndexPauseMinNs
                         : std::min(kIndexPauseMaxNs, 2 * index_pause_ns + kIndexPauseMinNs);
    indexed_entries = records;
    std::lock_guard lock(writer.segments_mutex_);
    if (!writer.rescan_.empty()) return now;
    return index_pause_ns < kHeartbeatNs ? now + index_pause_ns
                                         : on_the_grid(now + index_pause_ns / 2, index_pause_ns);
}

}  // namespace tapewire::queue
