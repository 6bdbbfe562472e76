#include "tapewire/queue/writer.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/random.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>

#include "tapewire/error.hpp"
#include "tapewire/format/tail_checkpoint.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/queue/record_check.hpp"
#include "writer_workers.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;
using format::Stat;

namespace {

constexpr std::uint64_t kApproachBytes = 16 * 1024;
constexpr std::int64_t kLockWatchIdleNs = 10'000'000'000;

std::uint64_t random_key() {
    std::uint64_t key = 0;
    while (key == 0) {
        if (::getrandom(&key, sizeof key, 0) != sizeof key && errno != EINTR)
            throw_errno("cannot get a random key", "/dev/urandom");
    }
    return key;
}

[[noreturn]] void throw_option(const std::string& what, const std::string& path,
                               const std::string& hint) {
    throw Error(Errc::invalid_option, what, path, -1, hint);
}

}  // namespace

Writer::Writer(const std::string& root, const WriterOptions& options)
    : layout_{root}, options_(options), retention_(options.retention) {
    make_directory(root);
    in_steps_ = !options_.require_prealloc && !options_.memlock && is_memory_backed(root);
    lock_.emplace(layout_);
    if (options_.repair) make_control_again();
    const bool created = create_if_new();
    control_ = Control::open(layout_, true);
    lock_->bind(control_);
    check_geometry();
    if (const int err = control_.sync_errno(); err != 0) {
        note(std::string("a sync of the previous writer failed (") + std::strerror(err) +
             "): all records since the last checkpoint are written to disk again");
    }

    RecoveryOptions recovery;
    recovery.index_stride = options_.index_stride;
    recovery.sparse = options_.sparse.value_or(false);
    recovery.created = created;
    recovery.everything = options_.repair;
    RecoveredTail tail = recover(layout_, control_, recovery);
    assert(tail.segment && tail.index);
    sparse_ = tail.sparse;
    if (options_.sparse && *options_.sparse != sparse_) {
        throw_option(std::string("the queue was created with other options: sparse=") +
                         (*options_.sparse ? "True" : "False") +
                         ", queue has sparse=" + (sparse_ ? "True" : "False"),
                     layout_.root, "omit sparse, or create a new queue");
    }

    checksum_ = options_.checksum;
    shared_ = control_.block();
    take_over(tail);

    auto segment = std::make_shared<WriterSegment>();
    segment->segment = std::move(*tail.segment);
    segment->index = std::move(tail.index);
    segment->segment.lock_for_writing();
    allocate_first(*segment, tail.offset);
    lock_if_wanted(segment->segment);
    current_ = segment;
    open_checkpoint();

    epoch_ = control_.writer_epoch() + 1;
    control_.set_writer_epoch(epoch_);
    control_.set_writer_origin();
    control_.beat(static_cast<std::uint64_t>(wall_ns()));
    lock_->announce(epoch_);
    open_stats();
    segment->segment
        .forget_end();  // from now on the position of this writer counts; before, opening may fail
    enter(std::move(segment), tail.offset);
    start_workers();
    resume();
    // If this writer is killed before it appends, only a checkpoint preserves them.
    if (tail.numbers_lost) flush_in_background();
    // The previous writer may have died between clearing the flag and waking: always ring, reset
    // nothing.
    futex_ring(control_.notify_word());
}

// Takes over the findings of recovery, except for the segment to append to.
void Writer::take_over(RecoveredTail& tail) {
    next_seq_ = opened_seq_ = tail.next_seq;
    lowest_id_ = tail.lowest_segment;
    for (const UnsyncedSpan& span : tail.unsynced) {
        if (span.segment == tail.segment->id()) {
            write_again_at_opening(*tail.segment, span);  // immediately: later we append to it
        } else {
            inherited_.push_back(span);
        }
    }
    last_record_id_ = tail.last_record_segment;
    for (std::string& line : tail.report) note(std::move(line));
    count(Stat::recovered_pads, tail.pads);
    count(Stat::damaged_spans, tail.damaged_spans);
    count(Stat::gaps_found, tail.gaps);
}

// A disk that still fails does not prevent opening the queue: flush_sync and close raise it.
void Writer::write_again_at_opening(const Segment& segment, const UnsyncedSpan& span) noexcept {
    try {
        write_again(segment, span);
    } catch (const Error& e) {
        sync_errno_ = e.os_errno != 0 ? e.os_errno : EIO;
        note("writing unsynced records again: " + e.message + " (" + e.path + ")");
    }
}

void Writer::open_checkpoint() {
    checkpoint_file_ = File(layout_.tail_checkpoint(), O_RDWR | O_CREAT);
    if (checkpoint_file_.size() > sizeof(format::TailCheckpoint)) checkpoint_file_.resize(0);
    checkpoint_file_.extend_with_zeros(
        sizeof(format::TailCheckpoint));  // allocate it while the disk has space
}

// For outside observers; the queue works without it if there is no space for it.
void Writer::open_stats() {
    try {
        File file(layout_.stats(), O_RDWR | O_CREAT);
        if (file.size() > format::kStatsBytes) file.resize(format::kStatsBytes);
        file.extend_with_zeros(format::kStatsBytes);
        stats_map_ =
            std::make_unique<Mapping>(file, format::kStatsBytes, Mapping::Access::read_write);
    } catch (const Error& e) {
        note("stats.meta: " + e.message);
    }
}

Writer::~Writer() {
    try {
        close();
    } catch (const Error&) {
        // A destructor cannot report errors; callers of close() get a failed sync.
    }
}

// control.meta is created last: a queue exists once it does, and then it has its first segment.
bool Writer::create_if_new() {
    if (file_exists(layout_.control())) return false;
    const std::uint64_t bytes =
        options_.segment_bytes != 0 ? options_.segment_bytes : format::kSegmentBytesDefault;
    if (bytes < format::kSegmentBytesMin || bytes > format::kSegmentBytesMax ||
        bytes % format::kSegmentBytesMultiple != 0) {
        throw_option("segment_bytes must be a multiple of " +
                         std::to_string(format::kSegmentBytesMultiple) + " from " +
                         std::to_string(format::kSegmentBytesMin) + " to " +
                         std::to_string(format::kSegmentBytesMax) +
                         ": segment_bytes=" + std::to_string(bytes),
                     layout_.root, "");
    }
    const std::vector<std::uint32_t> ids = layout_.segments();
    if (!ids.empty() && !(ids == std::vector<std::uint32_t>{0} &&
                          file_is_zero(File(layout_.segment(0), O_RDONLY), kSegmentDataOffset))) {
        throw Error(Errc::corrupt_metadata, "segments without control.meta", layout_.control(), -1,
                    "`tapewire repair` rebuilds it from the segments; or move them away");
    }
    remove_file(layout_.segment(0));  // of a writer that was killed right here
    const Geometry geometry{bytes, options_.first_seq.value_or(0), random_key()};
    Segment first =
        Segment::prepare(layout_, geometry, 0, options_.sparse.value_or(false), !in_steps_);
    first.file().sync_data();
    first.publish(layout_);
    {
        // From the beginning a checkpoint records up to where everything is on disk.
        const File checkpoint(layout_.tail_checkpoint(), O_RDWR | O_CREAT);
        store_tail_checkpoint(checkpoint, {{0, kSegmentDataOffset}, geometry.first_seq},
                              geometry.key);
        checkpoint.sync_data();
    }
    Control::create(layout_, geometry);
    return true;
}

void Writer::make_control_again() {
    try {
        if (fits_segments(layout_, Control::open(layout_, true).geometry())) return;
    } catch (const Error& e) {
        if (e.code != Errc::corrupt_metadata && e.os_errno != ENOENT) throw;
        if (layout_.segments().empty()) throw;
    }
    rebuild_control(layout_);
    note("control.meta was damaged or missing and has been rebuilt from the segments");
}

void Writer::check_geometry() const {
    if (options_.segment_bytes != 0 && options_.segment_bytes != control_.segment_bytes()) {
        throw_option("the queue was created with other options: segment_bytes=" +
                         std::to_string(options_.segment_bytes) +
                         ", queue has segment_bytes=" + std::to_string(control_.segment_bytes()),
                     layout_.control(), "omit segment_bytes, or create a new queue");
    }
    if (options_.first_seq && *options_.first_seq != control_.first_seq()) {
        throw_option("the queue was created with other options: first_seq=" +
                         std::to_string(*options_.first_seq) +
                         ", queue has first_seq=" + std::to_string(control_.first_seq()),
                     layout_.control(), "omit first_seq, or create a new queue");
    }
    if (options_.max_bytes != 0 && options_.max_bytes < control_.segment_bytes()) {
        throw_option(
            "max_bytes must hold one segment: max_bytes=" + std::to_string(options_.max_bytes) +
                ", segment_bytes=" + std::to_string(control_.segment_bytes()),
            layout_.root, "raise max_bytes, or create the queue with smaller segments");
    }
}

void Writer::start_workers() {
    workers_ = std::make_unique<WriterWorkers>(*this);
    if (options_.preallocate) {
        wanted_id_ = current_id_ + 1;
        if (options_.require_prealloc) {
            // The first append may have to roll: prepare for it now.
            current_->segment.map()->populate(offset_, remaining());
            std::lock_guard lock(prealloc_mutex_);
            prepared_ = make_segment(wanted_id_, true).release();
            wanted_id_ = 0;  // fulfilled: the worker must not make it a second time
        }
    }
    try {
        workers_->start();
    } catch (...) {
        take_prepared();
        throw;
    }
}

std::uint64_t Writer::max_payload_bytes() const noexcept {
    return std::min(control_.segment_bytes() - kSegmentDataOffset - format::kRecordHeaderBytes,
                    format::kMaxPayloadBytes);
}

void Writer::resume() noexcept {
    const bool usable = !closed_ && !forked() && reserved_bytes_ == 0 && !lost();
    if (!usable) {
        suspend();
        return;
    }
    std::uint64_t limit = allocated();
    assert(limit <= control_.segment_bytes());
    if (limit == control_.segment_bytes()) {
        const std::uint64_t approach = std::min(kApproachBytes, limit / 4);
        // Until the end is near, the fast path stops before it once, for approach_end().
        if (!near_end_ && remaining() > approach) limit -= approach;
    }
    // SYNC oust: look_at_lock stores ousted_, then the limit. One of the two sees what the other
    // stored.
    limit_.store(limit, std::memory_order_seq_cst);
    if (ousted_.load(std::memory_order_seq_cst)) suspend();
}

void Writer::check_open() const {
    if (forked()) {
        throw Error(Errc::forked_handle,
                    "this writer was opened before fork, in the parent process", layout_.root, -1,
                    "open the queue in the process that uses it");
    }
    if (closed_.load(std::memory_order_acquire)) {
        throw Error(Errc::closed_handle, "the writer is closed", layout_.root);
    }
    check_not_ousted();
}

void Writer::check_not_ousted() const {
    if (ousted_.load(std::memory_order_acquire)) throw_ousted(ousted_why_);
}

std::string Writer::another_epoch(std::uint64_t epoch) const {
    return "epoch=" + std::to_string(epoch) + ", this writer has epoch=" + std::to_string(epoch_);
}

void Writer::throw_ousted(const std::string& why) const {
    throw Error(Errc::lock_lost, "the queue may have another writer: " + why, layout_.root, -1,
                "close this writer; its records are in the log unless the other writer has "
                "overwritten them");
}

void Writer::check_usable() const {
    check_open();
    if (any_mapping_lost()) {
        current_map_->check_not_lost();
        control_.map().check_not_lost();
    }
}

void Writer::check_number(std::uint64_t seq) const {
    if (!sparse_) {
        throw_option("seq requires a sparse log: seq=" + std::to_string(seq), layout_.root,
                     "create the queue with sparse=True, or omit seq");
    }
    if (seq < next_seq_ || seq == ~std::uint64_t{0}) {
        throw Error(Errc::sequence_not_rising,
                    "sequence numbers must rise: seq=" + std::to_string(seq) +
                        ", next_seq=" + std::to_string(next_seq_),
                    layout_.root, -1, "pass a seq of at least next_seq");
    }
}

void Writer::enter(std::shared_ptr<WriterSegment> segment, std::uint64_t offset) noexcept {
    assert(segment->segment.size() == control_.segment_bytes());
    assert(is_record_boundary(offset, segment->segment.size()));
    assert(reserved_bytes_ == 0);
    base_ = segment->segment.data();
    seed_ = segment->segment.seed();
    position_mask_ = control_.position_mask(segment->segment.id());
    index_ = segment->index.get();
    suspend();  // the limit belonged to another segment
    std::atomic_ref(offset_).store(offset, std::memory_order_release);
    entered_at_ = offset;
    near_end_ = false;
    current_map_ = segment->segment.map();
    current_id_.store(segment->segment.id(), std::memory_order_release);
}

void Writer::wake() noexcept {
    control_.wake_waiters();
    count(Stat::wakes);
}

void Writer::run_retention() noexcept {
    if (!options_.retention.enabled || ousted_.load(std::memory_order_acquire)) return;
    try {
        const WriterPlace at = place();
        const Position head{at.segment->segment.id(), at.offset};
        const std::uint64_t keep_from = at.offset > kSegmentDataOffset
                                            ? head.segment
                                            : last_record_id_.load(std::memory_order_acquire);
        std::lock_guard lock(retention_mutex_);
        const RetentionResult result =
            retention_.pass(layout_, control_.segment_bytes(), head, keep_from, mono_ns(),
                            [this] { sync_queue_directory(); });
        if (result.retired != 0) {
            count(Stat::segments_retired, result.retired);
            const auto left = layout_.segments();
            if (!left.empty()) lowest_id_.store(left.front(), std::memory_order_release);
        }
        auto& ignored = stats_[static_cast<std::size_t>(Stat::readers_ignored)];
        if (result.ignored.size() > ignored.load(std::memory_order_relaxed)) {
            for (const std::string& line : result.ignored) note(line);
        }
        if (ignored.exchange(result.ignored.size(), std::memory_order_relaxed) !=
            result.ignored.size()) {
            changes_.fetch_add(1, std::memory_order_relaxed);
        }
    } catch (const Error& e) {
        count(Stat::retention_errors);
        note("retention: " + e.message + " (" + e.path + ")");
    }
}

// Runs at each heartbeat while records are appended or a lock is missing; an idle writer checks now
// and then, and whenever it flushes.
void Writer::watch_lock(std::int64_t now) noexcept {
    const std::uint64_t appended = records();
    const bool idle =
        appended == lock_watched_records_ && has_all_locks_.load(std::memory_order_relaxed);
    if (idle && now - lock_watched_ns_ < kLockWatchIdleNs) return;
    lock_watched_records_ = appended;
    lock_watched_ns_ = now;
    look_at_lock();
}

// Whether the queue still belongs to this writer. A writer that took it may be writing to the same
// offsets, so nothing is written from here on.
void Writer::look_at_lock() noexcept {
    std::lock_guard looking(look_mutex_);
    if (ousted_.load(std::memory_order_relaxed)) return;
    const std::uint64_t epoch = control_.writer_epoch();
    if (control_.map().lost())
        return;  // truncated: the epoch is not valid, and every call raises it
    const auto gone = lock_->lost(control_);
    if (!gone && epoch == epoch_) {
        std::shared_ptr<WriterSegment> current;
        {
            std::lock_guard lock(segments_mutex_);
            current = current_;
        }
        const bool segment_locked = current && current->segment.retry_lock();
        has_all_locks_.store(segment_locked && lock_->complete(), std::memory_order_relaxed);
        return;
    }
    ousted_why_ = gone ? *gone + " was removed or replaced" : another_epoch(epoch);
    // SYNC oust: pairs with resume.
    ousted_.store(true, std::memory_order_seq_cst);
    detail::mappings_lost.fetch_add(1, std::memory_order_release);  // tested by `lost`
    limit_.store(0, std::memory_order_seq_cst);
    note("the queue may have another writer: " + ousted_why_);
}

void Writer::note(std::string event) noexcept {
    std::lock_guard lock(events_mutex_);
    if (events_.size() == 256) events_.pop_front();
    events_.push_back(std::move(event));
}

std::vector<std::string> Writer::take_events() {
    std::lock_guard lock(events_mutex_);
    std::vector<std::string> taken(std::make_move_iterator(events_.begin()),
                                   std::make_move_iterator(events_.end()));
    events_.clear();
    return taken;
}

WriterPlace Writer::place() const {
    std::unique_lock lock(segments_mutex_, std::defer_lock);
    if (!forked()) lock.lock();  // in a child, a thread of the parent may have held it
    return place_locked();
}

// A roll changes segment and offset under the mutex, appends only increase the offset: so they are
// consistent.
WriterPlace Writer::place_locked() const {
    const auto load = [](const std::uint64_t& word) {
        return std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire);
    };
    WriterPlace at;
    at.segment = current_;
    at.next_seq = load(next_seq_);  // first: no record at or past the offset has a lower one
    at.offset = load(offset_);
    at.bytes_written = bytes_before_ + at.offset - entered_at_;
    return at;
}

std::vector<std::uint64_t> Writer::stats() const {
    std::vector<std::uint64_t> values(format::kStatCount);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = stats_[i].load(std::memory_order_relaxed);
    const auto at = [&values](Stat stat) -> std::uint64_t& {
        return values[static_cast<std::size_t>(stat)];
    };
    at(Stat::records) = records();
    const WriterPlace now = place();
    at(Stat::bytes_written) = now.bytes_written;
    at(Stat::next_seq) = now.next_seq;
    at(Stat::segments) = segments();
    return values;
}

void Writer::write_stats() noexcept {
    // An idle queue costs nothing and dirties no page.
    const std::uint64_t changes = records() + changes_.load(std::memory_order_relaxed);
    if (!stats_map_ || changes == written_changes_) return;
    written_changes_ = changes;
    const std::vector<std::uint64_t> values = stats();
    format::StatsHeader header{format::kStatsMagic, format::kStatsVersion,
                               static_cast<std::uint32_t>(format::kStatCount), 0};
    std::memcpy(stats_map_->data(), &header, sizeof header);
    std::memcpy(stats_map_->data() + sizeof header, values.data(),
                values.size() * format::kStatBytes);
}

// An archive has a log for each stream and day, and most days do not fill a segment. The file keeps
// its length and its bytes, so there is no difference for readers or after a kill or a loss of
// power; the next writer allocates the space again before it appends. The page of the word at which
// readers wait stays.
void Writer::free_after(const Segment& segment, std::uint64_t end) noexcept {
    assert(is_record_boundary(end, segment.size()));
    constexpr std::uint64_t kPage = 4096;
    const std::uint64_t from = (end + format::kRecordHeaderBytes + kPage - 1) / kPage * kPage;
    try {
        segment.file().free_zeros(from, segment.size());
    } catch (const Error& e) {
        note("closing: " + e.message + " (" + e.path + ")");
    }
}

void Writer::close() {
    if (closed_) return;
    suspend();
    if (forked()) {
        // Nothing here belongs to this process any more; only memory is freed.
        closed_ = true;
        workers_.release();  // its service threads exist only in the parent
        return;
    }
    if (reserved_bytes_ != 0) abort_reserved();
    closed_ = true;
    if (!workers_) return;  // the constructor threw
    workers_->stop();
    const auto ahead = take_prepared();
    workers_->write_indexes();
    std::optional<Error> failed;
    try {
        sync_everything(true);
        if (!options_.preallocate || in_steps_) free_after(current_->segment, offset_);
        if (ahead && in_steps_) free_after(ahead->segment, kSegmentDataOffset);
    } catch (const Error& e) {
        failed = e;
    }
    write_stats();
    workers_.reset();
    {
        std::lock_guard lock(segments_mutex_);
        current_.reset();
        unsynced_.clear();
        unindexed_.clear();
    }
    checkpoint_file_.close();
    if (!ousted_) lock_->withdraw();
    lock_.reset();
    control_ = Control();  // also releases its lock
    if (failed) throw *failed;
}

}  // namespace tapewire::queue
