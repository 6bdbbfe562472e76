// Writer: batches, reservations and flushing; everything but the hot path and rolling.
#include <fcntl.h>

#include <algorithm>
#include <cassert>
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
    if (rolls >= segment_limit()) throw_full();  // larger than the queue: waiting cannot help
    return false;
}

// How many times the batch would roll; throws if a row does not fit in a segment.
std::uint64_t Writer::rolls_needed(const BatchRows& rows) {
    const std::uint64_t most = max_payload_bytes();
    const std::uint64_t whole = control_.segment_bytes() - kSegmentDataOffset;
    if (rows.lengths == nullptr && rows.row_bytes <= most) {
        const std::uint64_t bytes = record_bytes(rows.row_bytes);
        const std::uint64_t rest = rows.count - std::min(remaining() / bytes, rows.count);
        const std::uint64_t each = whole / bytes;
        return (rest + each - 1) / each;
    }
    std::uint64_t left = remaining();
    std::uint64_t rolls = 0;
    for (std::uint64_t i = 0; i < rows.count; ++i) {
        const std::uint64_t length = rows.length(i);
        if (length > most) make_room(length);  // throws payload_too_large
        const std::uint64_t bytes = record_bytes(length);
        if (bytes > left) {
            ++rolls;
            left = whole;
        }
        left -= bytes;
    }
    return rolls;
}

namespace {

// Another thread may change a caller's column at any time: each value is loaded once, then checked
// and written.
template <class T>
T load_once(const T* column, std::uint64_t i) noexcept {
    return __atomic_load_n(column + i, __ATOMIC_RELAXED);
}

// After a kill in the middle of a batch recovery relies on the hint: it must not lag by an entire
// batch.
constexpr std::uint64_t kRunMost = 256;

// Why a row cannot be appended; null: it can. `next` is the sequence number that it gets if it has
// none of its own.
const char* refusal(std::uint16_t type_id, std::uint16_t flags, std::uint64_t next,
                    std::uint64_t own, std::uint64_t timestamp_ns) noexcept {
    if (timestamp_ns >> 63 != 0) return "timestamps_ns must be from 0 to 2^63 - 1";
    if (type_id == format::kPadType) return "type_id must be below 0xFFFF";
    if ((flags & format::kSystemFlags) != 0) return "flags must have the low 8 bits clear";
    if (own < next) return "sequence numbers must rise strictly within the batch";
    if (own == Writer::kNoSeq) return "no sequence numbers are left";
    return nullptr;
}

}  // namespace

// Appends the rows from `first` on that fit in the allocated part of this segment, a limited
// number; returns how many. Counters and hints are stored once: nothing relies on them before the
// fence that follows. Ends before a row that cannot be appended, with the reason in `refused`.
// `Columns`: each row may have its own type, flags, sequence number or time, which is checked as it
// is written.
template <std::uint32_t FixedBytes, bool Columns>
std::uint64_t Writer::append_run(const BatchRows& rows, std::uint64_t first,
                                 const char*& refused) noexcept {
    std::byte* const base = base_;
    std::byte* const end = base + allocated();
    assert(first < rows.count && base + offset_ <= end);
    const HeaderSeed seed = seed_;
    std::byte* at = base + offset_;
    std::uint64_t seq = next_seq_;
    std::uint64_t i = first;
    std::uint64_t passed = 0;
    const std::uint64_t to = std::min(rows.count, first + std::min(kNoSeq - seq, kRunMost));
    for (; i < to; ++i, ++seq) {
        const std::uint64_t length = FixedBytes != 0 ? FixedBytes : rows.length(i);
        const std::uint64_t bytes = record_bytes(length);
        if (bytes > static_cast<std::uint64_t>(end - at)) break;
        std::uint16_t type_id = rows.type_id;
        std::uint16_t flags = rows.flags;
        std::uint64_t ts = rows.timestamp_ns;
        if constexpr (Columns) {
            if (rows.timestamps_ns != nullptr) ts = load_once(rows.timestamps_ns, i);
            if (rows.type_ids != nullptr) type_id = load_once(rows.type_ids, i);
            if (rows.flags_each != nullptr) flags = load_once(rows.flags_each, i);
            const std::uint64_t own = rows.seqs != nullptr ? load_once(rows.seqs, i) : seq;
            refused = refusal(type_id, flags, seq, own, ts);
            if (refused != nullptr) [[unlikely]]
                break;
            passed += own - seq;
            seq = own;
        }
        std::memcpy(at + format::kRecordHeaderBytes, rows.row(i),
                    FixedBytes != 0 ? FixedBytes : length);
        // Released one by one, in ascending order; one fence for all of them replaces seq_cst
        // stores, since only the later load of waiters_pending must not be reordered before them.
        const auto offset = static_cast<std::uint64_t>(at - base);
        publish(at, seed.at(offset), type_id, flags, seq, ts, static_cast<std::uint32_t>(length),
                at + format::kRecordHeaderBytes, std::memory_order_release);
        index_->add(seq, ts, offset);
        at += bytes;
    }
    advance_to(static_cast<std::uint64_t>(at - base), seq);
    if constexpr (Columns) pass_numbers(passed);
    return i - first;
}

std::uint64_t Writer::append_some(const BatchRows& rows, std::uint64_t first,
                                  const char*& refused) noexcept {
    if (rows.type_ids != nullptr || rows.flags_each != nullptr || rows.seqs != nullptr ||
        rows.timestamps_ns != nullptr)
        return append_run<0, true>(rows, first, refused);
    // A copy of a known size uses narrow stores, which would stall the wide loads of the checksum;
    // without a checksum it is faster.
    if (!checksum_ && rows.lengths == nullptr && rows.row_bytes == 64)
        return append_run<64, false>(rows, first, refused);
    return append_run<0, false>(rows, first, refused);
}

void Writer::append_batch(const BatchRows& rows, std::uint64_t& done) {
    assert(rows.count > 0 && reserved_bytes_ == 0);
    const char* refused = nullptr;
    for (done = 0;;) {
        done += append_some(rows, done, refused);
        std::atomic_thread_fence(std::memory_order_seq_cst);
        wake_if_waiting();
        if (done == rows.count) break;
        if (refused != nullptr) {
            throw Error(Errc::concurrent_use,
                        std::string(refused) + ": row=" + std::to_string(done) +
                            ", appended=" + std::to_string(done),
                        layout_.root, -1,
                        "do not change a batch while it is appended; the rows before this one are "
                        "in the log");
        }
        if (next_seq_ != kNoSeq && record_bytes(rows.length(done)) <= allocated() - offset_) {
            if (lost()) check_usable();
            continue;
        }
        // Capacity was checked before; only the disk can fail now. Readers see what was appended.
        if (!make_room(rows.length(done))) throw_full();
    }
    if (lost()) check_usable();
}

std::byte* Writer::reserve(std::uint64_t payload_len) {
    assert(reserved_bytes_ == 0);
    assert(record_bytes(payload_len) <= allocated() - offset_);
    reserved_bytes_ = record_bytes(payload_len);
    suspend();
    return base_ + offset_ + format::kRecordHeaderBytes;
}

void Writer::commit_reserved(std::uint16_t type_id, std::uint16_t flags, std::uint64_t seq,
                             std::uint64_t timestamp_ns, std::uint64_t payload_len) {
    check_usable();
    assert(seq >= next_seq_);
    std::byte* at = base_ + offset_;
    const std::uint64_t bytes = record_bytes(payload_len);
    assert(bytes <= reserved_bytes_);
    // What follows a shorter record would be read as the next header: zero it first.
    const std::uint64_t used = format::kRecordHeaderBytes + payload_len;
    std::memset(at + used, 0, reserved_bytes_ - used);
    reserved_bytes_ = 0;
    const std::uint64_t passed = seq - next_seq_;
    publish(at, seed_.at(offset_), type_id, flags, seq, timestamp_ns,
            static_cast<std::uint32_t>(payload_len), at + format::kRecordHeaderBytes,
            std::memory_order_seq_cst);
    advance(seq, timestamp_ns, bytes);
    pass_numbers(passed);
    wake_if_waiting();
    resume();
    if (lost()) check_usable();
}

void Writer::abort_reserved() noexcept {
    if (reserved_bytes_ == 0) return;
    // Not if another writer may have put its records there.
    if (!forked() && !ousted_.load(std::memory_order_acquire))
        std::memset(base_ + offset_, 0, reserved_bytes_);
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
        // msync(MS_ASYNC) does nothing on Linux; this starts the write-back without waiting.
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

void Writer::sync_everything(bool closing) {
    std::lock_guard syncing(sync_mutex_);
    look_at_lock();  // an idle writer's heartbeat does so only every ten seconds
    check_not_ousted();
    std::vector<std::shared_ptr<WriterSegment>> sealed;
    // The current position: records appended during the sync belong to the next flush.
    WriterPlace at;
    {
        std::lock_guard lock(segments_mutex_);
        sealed = unsynced_;
        at = place_locked();
    }
    const std::shared_ptr<WriterSegment>& current = at.segment;
    if (!current) return;
    assert(is_record_boundary(at.offset, control_.segment_bytes()));
    assert(!closing || (at.offset == offset_ && at.next_seq == next_seq_));
    assert(sealed.empty() || sealed.back()->segment.id() < current->segment.id());
    check_no_sync_failed();
    current->segment.map()->check_not_lost();
    control_.map().check_not_lost();
    sync_inherited();
    for (const auto& segment : sealed) {
        if (is_in_place(*segment)) {
            sync_file(segment->segment.file());
            check_complete(segment->segment.file());
        } else {
            note_missing(segment->segment.id());
            let_go(segment);
        }
    }
    if (const auto missing = first_missing()) {
        const std::string path = layout_.segment(*missing);
        if (const auto file = File::open_existing(path, O_RDONLY)) check_complete(*file);
        throw_missing(path);
    }
    check_in_place(current->segment.file());
    sync_file(current->segment.file());
    check_complete(current->segment.file());
    check_in_place(control_.file());
    sync_file(control_.file());
    sync_queue_directory();  // the checkpoint also covers the segments' names
    check_in_place(checkpoint_file_);
    look_at_lock();  // once more before acknowledging: the disk may have taken long
    check_not_ousted();
    // After everything before it is on disk: it need not be synced itself, since the checkpoint is
    // equivalent.
    if (closing) current->segment.record_end({offset_, next_seq_});
    try {
        current->segment.map()->check_not_lost();
        check_no_sync_failed();  // of another thread meanwhile
        store_tail_checkpoint(checkpoint_file_, {{current->segment.id(), at.offset}, at.next_seq},
                              control_.geometry().key);
        sync_file(checkpoint_file_);
    } catch (const Error&) {
        if (closing) current->segment.forget_end();
        throw;
    }
    clear_recorded_failure();
    for (const auto& segment : sealed) count(Stat::seals, let_go(segment));
}

// Removes a sealed segment from the list of those to be synced; 0: it was no longer in it.
std::size_t Writer::let_go(const std::shared_ptr<WriterSegment>& sealed) {
    std::lock_guard lock(segments_mutex_);
    return std::erase(unsynced_, sealed);
}

// A truncated part is not on disk either, whatever the remaining pages of the mapping contain.
void Writer::check_complete(const File& segment) const {
    if (is_complete(segment)) return;
    const std::uint64_t bytes = segment.size();
    throw Error(
        Errc::mapping_lost,
        "the segment was truncated while the queue is open: bytes=" + std::to_string(bytes) +
            ", segment_bytes=" + std::to_string(control_.segment_bytes()),
        segment.path(), static_cast<std::int64_t>(bytes),
        "close the queue, run `tapewire repair`, and open it again");
}

bool Writer::is_complete(const File& segment) const {
    return segment.size() >= control_.segment_bytes();
}

// The content of an unlinked file is lost when it is closed, however often it is synced.
void Writer::check_in_place(const File& file) const {
    if (!file.is_still_at_its_path()) throw_missing(file.path());
}

void Writer::throw_missing(const std::string& path) const {
    throw Error(
        Errc::segment_missing,
        "the file was removed or replaced while the queue is open: its records cannot be made "
        "durable",
        path, -1,
        "save what readers still have mapped, then open the queue again: the log continues "
        "after a gap");
}

// Retention also removes segments that wait for their sync: that is no loss.
bool Writer::is_in_place(const WriterSegment& sealed) {
    return sealed.segment.file().is_still_at_its_path() || was_retired(sealed.segment.id());
}

bool Writer::was_retired(std::uint32_t id) {
    if (!options_.retention.enabled) return false;
    std::lock_guard pass(retention_mutex_);  // a pass removes first and counts afterwards
    return id < retention_.retired_below();
}

void Writer::note_missing(std::uint32_t id) {
    {
        std::lock_guard lock(segments_mutex_);
        missing_.push_back(id);
    }
    count(Stat::seal_errors);
    note("a segment was removed before its sync (" + layout_.segment(id) + ")");
}

std::optional<std::uint32_t> Writer::first_missing() {
    std::vector<std::uint32_t> ids;
    {
        std::lock_guard lock(segments_mutex_);
        ids = missing_;
    }
    const auto lost = std::find_if_not(ids.begin(), ids.end(),
                                       [this](std::uint32_t id) { return was_retired(id); });
    return lost == ids.end() ? std::nullopt : std::optional(*lost);
}

// Sticky: the kernel reports a lost page once and then calls it clean, so a later sync that
// succeeds proves nothing about it. The next writer of the queue finds it in control.meta.
void Writer::remember_failed_sync(const Error& e) noexcept {
    sync_errno_.store(e.os_errno, std::memory_order_release);
    control_.set_sync_errno(e.os_errno);
}

// The failure of the previous writer: everything since its checkpoint has been written again. Not a
// failure that one of our threads has recorded meanwhile.
void Writer::clear_recorded_failure() noexcept {
    std::lock_guard lock(directory_mutex_);
    if (sync_errno_.load(std::memory_order_acquire) == 0 && control_.sync_errno() != 0)
        control_.set_sync_errno(0);
}

void Writer::check_no_sync_failed() const {
    if (const int err = sync_errno_.load(std::memory_order_acquire); err != 0) {
        throw_os_error(err, "an earlier sync failed and its pages may be lost", layout_.root);
    }
}

void Writer::sync_file(const File& file) {
    try {
        file.sync_data();
    } catch (const Error& e) {
        remember_failed_sync(e);
        throw;
    }
}

// By any thread: the kernel may report lost entries to the thread that prepares or deletes a
// segment.
void Writer::sync_queue_directory() {
    const Directory directory(layout_.root);
    std::lock_guard lock(directory_mutex_);
    try {
        directory.sync();
    } catch (const Error& e) {
        remember_failed_sync(e);
        throw;
    }
}

// Makes pages dirty that no successful sync covers: after a failed sync the kernel may consider
// them clean.
void Writer::write_again(const Segment& segment, const UnsyncedSpan& span) {
    assert(span.from <= span.to && span.to <= segment.size());
    const Mapping& map = *segment.map();
    if (!map.populate(span.from, span.to - span.from))
        map.touch(span.from & ~std::uint64_t{4095}, span.to);
    map.check_not_lost();
    if (control_.sync_errno() != 0) segment.file().write_through(map.data(), span.from, span.to);
    map.check_not_lost();
}

// Syncs what the previous writer wrote and had not synced: an acknowledged flush covers it too,
// since recovery has accepted it. Called under sync_mutex_.
void Writer::sync_inherited() {
    std::vector<UnsyncedSpan> spans;
    {
        std::lock_guard lock(segments_mutex_);
        spans = inherited_;
    }
    for (const UnsyncedSpan& span : spans) {
        if (const auto segment = Segment::open(layout_, control_.geometry(), span.segment,
                                               Mapping::Access::read_write)) {
            write_again(*segment, span);
            sync_file(segment->file());
        } else if (!was_retired(span.segment)) {
            note_missing(span.segment);
        }
        std::lock_guard lock(segments_mutex_);
        std::erase_if(inherited_,
                      [&](const UnsyncedSpan& other) { return other.segment == span.segment; });
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
