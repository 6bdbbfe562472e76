#include "writer_workers.hpp"

#include <fcntl.h>

#include <algorithm>

#include "tapewire/error.hpp"

namespace tapewire::queue {

using format::Stat;

namespace {
constexpr std::int64_t kMs = 1'000'000;
constexpr std::int64_t kHeartbeatNs = 100 * kMs;
constexpr std::int64_t kRetryNs = 50 * kMs;
constexpr std::int64_t kPaceMinNs = kMs / 2;
constexpr std::int64_t kPaceMaxNs = 50 * kMs;
constexpr std::int64_t kIndexPauseMinNs = 10 * kMs;
constexpr std::int64_t kIndexPauseMaxNs = 100 * kMs;
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
    // With pre-allocation the worker comes by itself often enough: waking it here would cost the
    // appending thread a system call, and perhaps its core.
    if (writer.options_.preallocate) return;
    services.seal.poke(&seal);
    services.index.poke(&index);
}

std::int64_t WriterWorkers::beat(std::int64_t now) noexcept {
    writer.control_.beat(static_cast<std::uint64_t>(wall_ns()));
    writer.write_stats();
    return now + kHeartbeatNs;
}

// Four looks in the time that a segment lasts, so that the next one is ready long before it is needed.
std::int64_t WriterWorkers::pace(std::int64_t now) noexcept {
    const std::uint64_t rolls = writer.rolls();
    if (rolls != rolls_seen) {
        roll_period_ns = (now - rolled_at_ns) / static_cast<std::int64_t>(rolls - rolls_seen);
        rolls_seen = rolls;
        rolled_at_ns = now;
        services.seal.poke(&seal);
        services.index.poke(&index);
        if (writer.options_.retention.enabled) services.retention.poke(&retention);
    }
    // A writer that has stopped rolling is looked at less and less often.
    const std::int64_t period = std::max(roll_period_ns, now - rolled_at_ns);
    return now + std::clamp(period / 4, kPaceMinNs, kPaceMaxNs);
}

std::int64_t WriterWorkers::prepare_next(std::int64_t now) noexcept {
    const std::int64_t next_look = pace(now);
    if (!populated) {
        // Once: the rest of the segment that was found at opening, so that appending takes no faults.
        populated = true;
        std::shared_ptr<WriterSegment> current;
        {
            std::lock_guard lock(writer.segments_mutex_);
            current = writer.current_;
        }
        const auto at = writer.control_.position();
        const std::uint64_t from = at && at->first == current->segment.id() ? at->second : 0;
        current->segment.map()->populate(from, current->segment.size() - from);
    }
    std::lock_guard lock(writer.prealloc_mutex_);
    const std::uint32_t id = writer.wanted_id_.load(std::memory_order_acquire);
    if (id == 0 || id <= writer.current_id_.load(std::memory_order_acquire) ||
        writer.prepared_.load(std::memory_order_acquire) != nullptr) {
        return next_look;
    }
    try {
        auto made = writer.make_segment(id, true);
        writer.prealloc_errno_.store(0, std::memory_order_release);
        writer.prepared_.store(new WriterSegment(std::move(*made)), std::memory_order_release);
        std::uint32_t fulfilled = id;  // unless a roll has stored the next wish meanwhile
        writer.wanted_id_.compare_exchange_strong(fulfilled, 0);
        return next_look;
    } catch (const Error& e) {
        writer.count(Stat::prealloc_errors);
        if (writer.prealloc_errno_.exchange(e.os_errno != 0 ? e.os_errno : -1) == 0) {
            writer.note("preparing the next segment: " + e.message + " (" + e.path + ")");
        }
        return now + kRetryNs;
    }
}

bool WriterWorkers::sync_still_due(const std::shared_ptr<WriterSegment>& sealed) {
    std::lock_guard lock(writer.segments_mutex_);
    return std::find(writer.unsynced_.begin(), writer.unsynced_.end(), sealed) !=
           writer.unsynced_.end();
}

std::int64_t WriterWorkers::sync_sealed(std::int64_t now) noexcept {
    std::vector<std::shared_ptr<WriterSegment>> due;
    {
        std::lock_guard lock(writer.segments_mutex_);
        due = writer.unsynced_;
    }
    if (writer.sync_errno_.load(std::memory_order_acquire) != 0) {
        // A sync has failed for good: flush_sync and close say so. Holding every later segment open for
        // it would stop the queue in the end.
        std::lock_guard lock(writer.segments_mutex_);
        writer.unsynced_.clear();
        return kWhenPoked;
    }
    for (const auto& sealed : due) {
        try {
            std::lock_guard syncing(writer.sync_mutex_);
            if (!sync_still_due(sealed))
                continue;  // a flush has covered it, with a later checkpoint
            writer.sync_inherited();
            writer.sync_file(sealed->segment.file());
            sync_directory(writer.layout_.root);  // for one that was not made ahead
            store_tail_checkpoint(writer.checkpoint_file_,
                                  {sealed->segment.id() + 1, format::kSegmentDataOffset});
        } catch (const Error& e) {
            writer.count(Stat::seal_errors);
            writer.note("syncing a sealed segment: " + e.message + " (" + e.path + ")");
            return now + 1000 * kMs;
        }
        std::lock_guard lock(writer.segments_mutex_);
        writer.count(Stat::seals, std::erase(writer.unsynced_, sealed));
    }
    return kWhenPoked;
}

std::int64_t WriterWorkers::retire(std::int64_t now) noexcept {
    writer.run_retention();
    return now + std::clamp<std::int64_t>(writer.options_.retention.reader_ttl_ns / 4, 10 * kMs,
                                          1000 * kMs);
}

std::int64_t WriterWorkers::flush_due(std::int64_t now) noexcept {
    const std::uint64_t records = writer.records_.load(std::memory_order_relaxed);
    const std::uint64_t every = writer.options_.flush_records;
    const std::int64_t interval = writer.options_.flush_interval_ns;
    const bool by_count = every != 0 && records - flushed_records >= every;
    const bool by_time =
        interval != 0 && records != flushed_records && now - flushed_at_ns >= interval;
    if (by_count || by_time) {
        if (writer.flush_in_background()) flushed_records = records;
        flushed_at_ns = now;
    } else if (records == flushed_records) {
        flushed_at_ns = now;  // the clock runs from the first record that is not yet flushed
    }
    // By count: look often while records come.
    const std::int64_t look = every == 0 ? interval : records != looked_records ? kMs : 10 * kMs;
    looked_records = records;
    return now + (interval != 0 ? std::min(look, interval) : look);
}

void WriterWorkers::write_indexes() {
    std::shared_ptr<WriterSegment> current;
    std::vector<std::shared_ptr<WriterSegment>> sealed;
    {
        std::lock_guard lock(writer.segments_mutex_);
        current = writer.current_;
        sealed = writer.unindexed_;
    }
    for (const auto& segment : sealed) {
        segment->index->write(writer.layout_, true);
        drop_if_retired(segment->segment.id());
        std::lock_guard lock(writer.segments_mutex_);
        std::erase(writer.unindexed_, segment);
    }
    if (current) current->index->write(writer.layout_, false);
}

// One segment that was sealed before us: reading it may take a second, and others wait for the thread.
void WriterWorkers::index_one_old() {
    std::uint32_t id = 0;
    {
        std::lock_guard lock(writer.segments_mutex_);
        if (writer.rescan_.empty()) return;
        id = writer.rescan_.back();
        writer.rescan_.pop_back();
    }
    const auto segment = Segment::open(writer.layout_, id, writer.control_.segment_bytes(),
                                       Mapping::Access::read_only);
    if (!segment) return;
    scan_index(writer.layout_, writer.first_seq(), *segment, writer.options_.index_stride)
        ->write(writer.layout_, true);
    drop_if_retired(id);
}

// Retention removes a segment first and its index then: whoever comes last clears up.
void WriterWorkers::drop_if_retired(std::uint32_t id) {
    if (!file_exists(writer.layout_.segment(id))) remove_file(writer.layout_.index(id));
}

// Sealed segments that a killed writer left without a whole index.
void WriterWorkers::find_unindexed() {
    std::vector<std::uint32_t> missing;
    for (std::uint32_t id : writer.layout_.segments()) {
        if (id >= writer.current_id_.load(std::memory_order_acquire)) break;
        const auto kept = load_index(writer.layout_, id, writer.control_.segment_bytes());
        if (!kept || !kept->complete) missing.push_back(id);
    }
    std::lock_guard lock(writer.segments_mutex_);
    for (std::uint32_t id : missing) {
        const bool growing = std::any_of(writer.unindexed_.begin(), writer.unindexed_.end(),
                                         [id](const auto& s) { return s->segment.id() == id; });
        if (!growing) writer.rescan_.push_back(id);
    }
}

// An index is a help, never the truth: without it a seek scans.
template <class Work>
void WriterWorkers::count_failure(Work work) noexcept {
    try {
        work();
    } catch (const Error& e) {
        writer.count(Stat::index_errors);
        writer.note("writing a seek index: " + e.message + " (" + e.path + ")");
    }
}

void WriterWorkers::write_indexes_or_count() noexcept {
    count_failure([this] { write_indexes(); });
}

std::int64_t WriterWorkers::index_new(std::int64_t now) noexcept {
    if (!looked_for_unindexed) {
        looked_for_unindexed = true;
        count_failure([this] { find_unindexed(); });
    }
    write_indexes_or_count();
    count_failure([this] { index_one_old(); });
    // Quick while records come, slow when nothing happens.
    const std::uint64_t records = writer.records_.load(std::memory_order_relaxed);
    index_pause_ns = records != indexed_entries
                         ? kIndexPauseMinNs
                         : std::min(kIndexPauseMaxNs, index_pause_ns + kIndexPauseMinNs);
    indexed_entries = records;
    std::lock_guard lock(writer.segments_mutex_);
    return writer.rescan_.empty() ? now + index_pause_ns : now;
}

}  // namespace tapewire::queue
