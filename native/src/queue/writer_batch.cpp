// Writer: batches, reservations and flushing; what is neither the hot path nor rolling.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>

#include "tapewire/error.hpp"
#include "tapewire/queue/writer.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;
using format::record_bytes;
using format::Stat;

bool Writer::batch_fits(const BatchRows& rows) {
    check_usable();
    check_not_reserved();
    const std::uint64_t rolls = rolls_needed(rows);
    if (rolls == 0 || capacity_allows(rolls)) return true;
    if (rolls >= segment_limit()) throw_full();  // larger than the whole queue: waiting cannot help
    return false;
}

// How many times the batch would roll; throws when a row fits no segment.
std::uint64_t Writer::rolls_needed(const BatchRows& rows) {
    const std::uint64_t most = max_payload_bytes();
    const std::uint64_t whole = control_.segment_bytes() - kSegmentDataOffset;
    if (rows.lengths == nullptr && rows.row_bytes <= most) {
        const std::uint64_t bytes = record_bytes(rows.row_bytes);
        const std::uint64_t behind = rows.count - std::min(remaining() / bytes, rows.count);
        const std::uint64_t each = whole / bytes;
        return (behind + each - 1) / each;
    }
    std::uint64_t left = remaining();
    std::uint64_t rolls = 0;
    for (std::uint64_t i = 0; i < rows.count; ++i) {
        const std::uint64_t length = rows.length(i);
        if (length > most) make_room(length);  // throws payload_too_large with its text
        const std::uint64_t bytes = record_bytes(length);
        if (bytes > left) {
            ++rolls;
            left = whole;
        }
        left -= bytes;
    }
    return rolls;
}

// The rows from `first` on that fit this segment; how many they were. Counters and hints are stored
// once: nothing relies on them before the fence that follows.
template <std::uint32_t FixedBytes>
std::uint64_t Writer::append_run(const BatchRows& rows, std::uint64_t first) noexcept {
    std::byte* const begin = base_ + offset_;
    std::byte* const end = base_ + control_.segment_bytes();
    std::byte* at = begin;
    std::uint64_t seq = next_seq_;
    std::uint64_t i = first;
    for (; i < rows.count; ++i, ++seq) {
        const std::uint64_t length = FixedBytes != 0 ? FixedBytes : rows.length(i);
        const std::uint64_t bytes = record_bytes(length);
        if (bytes > static_cast<std::uint64_t>(end - at)) break;
        std::memcpy(at + format::kRecordHeaderBytes, rows.row(i),
                    FixedBytes != 0 ? FixedBytes : length);
        if (rows.seqs != nullptr) seq = rows.seqs[i];
        const std::uint64_t ts =
            rows.timestamps_ns != nullptr ? rows.timestamps_ns[i] : rows.timestamp_ns;
        // Released one by one, in ascending order; one fence for all of them stands in for seq_cst
        // stores, since only the load of waiters_pending behind it must not pass them.
        publish(at, rows.type_ids != nullptr ? rows.type_ids[i] : rows.type_id,
                rows.flags_each != nullptr ? rows.flags_each[i] : rows.flags, seq, ts,
                static_cast<std::uint32_t>(length), at + format::kRecordHeaderBytes,
                std::memory_order_release);
        index_->add(seq, ts, static_cast<std::uint64_t>(at - base_));
        at += bytes;
    }
    advance_by(i - first, seq, static_cast<std::uint64_t>(at - begin));
    return i - first;
}

void Writer::append_batch(const BatchRows& rows, std::uint64_t& done) {
    // A copy of a known size is made of narrow stores, which the wide loads of the checksum would have
    // to wait for; without a checksum it is the quicker one.
    const bool fixed = !checksum_ && rows.lengths == nullptr && rows.row_bytes == 64;
    for (done = 0;;) {
        done += fixed ? append_run<64>(rows, done) : append_run<0>(rows, done);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        wake_if_waiting();
        if (done == rows.count) break;
        // Room was counted before; what can still fail is the disk. Readers see what is there.
        if (!make_room(rows.length(done))) throw_full();
    }
    if (lost()) check_usable();
}

std::byte* Writer::reserve(std::uint64_t payload_len) {
    reserved_bytes_ = record_bytes(payload_len);
    room_ = 0;
    return base_ + offset_ + format::kRecordHeaderBytes;
}

void Writer::commit_reserved(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                             std::uint64_t timestamp_ns, std::uint64_t payload_len) {
    check_usable();
    std::byte* at = base_ + offset_;
    const std::uint64_t bytes = record_bytes(payload_len);
    // What lies behind a shorter record would be read as the next header: back to zero first.
    const std::uint64_t used = format::kRecordHeaderBytes + payload_len;
    std::memset(at + used, 0, reserved_bytes_ - used);
    reserved_bytes_ = 0;
    publish(at, type_id, flags, seq, timestamp_ns, static_cast<std::uint32_t>(payload_len),
            at + format::kRecordHeaderBytes, std::memory_order_seq_cst);
    advance(seq, timestamp_ns, bytes);
    wake_if_waiting();
    resume();
    if (lost()) check_usable();
}

void Writer::abort_reserved() noexcept {
    if (reserved_bytes_ == 0) return;
    if (!forked()) std::memset(base_ + offset_, 0, reserved_bytes_);
    reserved_bytes_ = 0;
    resume();
}

void Writer::flush_async() {
    check_open();
    std::vector<std::shared_ptr<WriterSegment>> dirty;
    {
        std::lock_guard lock(segments_mutex_);
        dirty = unsynced_;
        dirty.push_back(current_);
    }
    dirty.back()->segment.map()->check_not_lost();
    for (const auto& segment : dirty) {
        // msync(MS_ASYNC) does nothing on Linux; this starts the write-back and does not wait.
        if (::sync_file_range(segment->segment.file().fd(), 0, 0, SYNC_FILE_RANGE_WRITE) != 0 &&
            errno != ENOSYS && errno != EINVAL && errno != ESPIPE) {
            throw_errno("cannot start write-back", segment->segment.path());
        }
    }
}

void Writer::flush_sync() {
    check_open();
    sync_everything();
    count(Stat::flushes);
}

void Writer::sync_everything() {
    std::lock_guard syncing(sync_mutex_);
    std::vector<std::shared_ptr<WriterSegment>> sealed;
    std::shared_ptr<WriterSegment> current;
    {
        std::lock_guard lock(segments_mutex_);
        sealed = unsynced_;
        current = current_;
    }
    if (!current) return;
    current->segment.map()->check_not_lost();
    control_.map().check_not_lost();
    // As it stands now: what is appended while the disk works belongs to the next flush.
    const auto at = control_.position();
    const std::uint64_t offset =
        at && at->first == current->segment.id() ? at->second : kSegmentDataOffset;
    sync_inherited();
    for (const auto& segment : sealed) sync_file(segment->segment.file());
    sync_file(current->segment.file());
    control_.sync();
    sync_directory(layout_.root);  // the checkpoint speaks for the segments' names too
    store_tail_checkpoint(checkpoint_file_, {current->segment.id(), offset});
    checkpoint_file_.sync_data();
    std::lock_guard lock(segments_mutex_);
    // Whoever takes it off the list counts it: the seal thread may have synced it at the same time.
    for (const auto& segment : sealed) count(Stat::seals, std::erase(unsynced_, segment));
}

// Sticky: the kernel reports a lost page once and calls it clean from then on, so a later sync that
// succeeds proves nothing about it.
void Writer::sync_file(const File& file) {
    if (const int err = sync_errno_.load(std::memory_order_acquire); err != 0) {
        throw_os_error(err, "an earlier sync failed and its pages may be lost", layout_.root);
    }
    try {
        file.sync_data();
    } catch (const Error& e) {
        sync_errno_.store(e.os_errno, std::memory_order_release);
        throw;
    }
}

// What a predecessor wrote and did not live to sync: an acknowledged flush covers it too, since recovery has
// accepted it. Called under sync_mutex_.
void Writer::sync_inherited() {
    std::vector<std::uint32_t> ids;
    {
        std::lock_guard lock(segments_mutex_);
        ids = inherited_;
    }
    for (std::uint32_t id : ids) {
        if (const auto file = File::open_existing(layout_.segment(id), O_RDONLY)) sync_file(*file);
        std::lock_guard lock(segments_mutex_);
        std::erase(inherited_, id);
    }
}

bool Writer::flush_in_background() noexcept {
    try {
        sync_everything();
        count(Stat::flushes);
        return true;
    } catch (const Error& e) {
        count(Stat::flush_errors);
        note("flush: " + e.message + " (" + e.path + ")");
        return false;
    }
}

}  // namespace tapewire::queue
