#include "tapewire/queue/writer.hpp"

#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>

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

[[noreturn]] void throw_option(const std::string& what, const std::string& path,
                               const std::string& hint) {
    throw Error(Errc::invalid_option, what, path, -1, hint);
}

}  // namespace

Writer::Writer(const std::string& root, const WriterOptions& options)
    : layout_{root}, options_(options), retention_(options.retention) {
    make_directory(root);
    lock_.emplace(layout_);
    const bool created = create_if_new();
    control_ = Control::open(layout_, true);
    check_geometry();

    RecoveryOptions recovery;
    recovery.index_stride = options_.index_stride;
    recovery.sparse = options_.sparse.value_or(false);
    recovery.created = created;
    RecoveredTail tail = recover(layout_, control_, recovery);
    sparse_ = tail.sparse;
    if (options_.sparse && *options_.sparse != sparse_) {
        throw_option(std::string("the queue was created otherwise: sparse=") +
                         (*options_.sparse ? "True" : "False") +
                         ", queue has sparse=" + (sparse_ ? "True" : "False"),
                     layout_.root, "leave sparse out, or create a new queue");
    }

    checksum_ = options_.checksum;
    write_offset_ = control_.write_offset_word();
    waiters_ = control_.waiters_word();
    next_seq_ = tail.next_seq;
    lowest_id_ = tail.lowest_segment;
    inherited_ = std::move(tail.unsynced);
    last_record_id_ = tail.last_record_segment;
    for (std::string& line : tail.report) note(std::move(line));
    count(Stat::recovered_pads, tail.pads);
    count(Stat::damaged_spans, tail.damaged_spans);
    count(Stat::gaps_found, tail.gaps);

    auto segment = std::make_shared<WriterSegment>();
    segment->segment = std::move(*tail.segment);
    segment->index = std::move(tail.index);
    lock_if_wanted(segment->segment);
    current_ = segment;
    checkpoint_file_ = File(layout_.tail_checkpoint(), O_RDWR | O_CREAT);
    if (checkpoint_file_.size() > sizeof(format::TailCheckpoint)) checkpoint_file_.resize(0);
    checkpoint_file_.extend_with_zeros(
        sizeof(format::TailCheckpoint));  // its room, while there is some

    epoch_ = control_.writer_epoch() + 1;
    control_.set_writer_epoch(epoch_);
    control_.beat(static_cast<std::uint64_t>(wall_ns()));
    lock_->announce(epoch_);
    open_stats();
    enter(std::move(segment), tail.offset);
    start_workers();
    resume();
    // The predecessor may have died between clearing the flag and waking: ring always, reset nothing.
    futex_ring(control_.notify_word());
}

// For those who watch from outside; the queue does without it where there is no room for it.
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
        // A destructor has nobody to tell; close() is how a caller learns of a failed sync.
    }
}

// control.meta comes last: a queue exists once it does, and then it has its first segment.
bool Writer::create_if_new() {
    if (file_exists(layout_.control())) return false;
    const std::uint64_t bytes =
        options_.segment_bytes != 0 ? options_.segment_bytes : format::kSegmentBytesDefault;
    if (bytes < format::kSegmentBytesMin || bytes > format::kSegmentBytesMax ||
        bytes % format::kSegmentBytesMultiple != 0) {
        throw_option(
            "segment_bytes must be a multiple of 4096 from 8192 to 2147483648: segment_bytes=" +
                std::to_string(bytes),
            layout_.root, "");
    }
    const std::vector<std::uint32_t> ids = layout_.segments();
    if (!ids.empty() && !(ids == std::vector<std::uint32_t>{0} &&
                          file_is_zero(File(layout_.segment(0), O_RDONLY), kSegmentDataOffset))) {
        throw Error(Errc::corrupt_metadata, "segments without control.meta", layout_.control(), -1,
                    "restore control.meta from a copy, or move the segments away");
    }
    remove_file(layout_.segment(0));  // of a writer that was killed right here
    Segment first = Segment::prepare(layout_, 0, bytes, options_.sparse.value_or(false));
    first.file().sync_data();
    first.publish(layout_);
    {
        // From the beginning on it is known up to where everything is on disk.
        const File checkpoint(layout_.tail_checkpoint(), O_RDWR | O_CREAT);
        store_tail_checkpoint(checkpoint, {0, kSegmentDataOffset});
        checkpoint.sync_data();
    }
    Control::create(layout_, {bytes, options_.first_seq.value_or(0)});
    return true;
}

void Writer::check_geometry() const {
    if (options_.segment_bytes != 0 && options_.segment_bytes != control_.segment_bytes()) {
        throw_option("the queue was created otherwise: segment_bytes=" +
                         std::to_string(options_.segment_bytes) +
                         ", queue has segment_bytes=" + std::to_string(control_.segment_bytes()),
                     layout_.control(), "leave segment_bytes out, or create a new queue");
    }
    if (options_.first_seq && *options_.first_seq != control_.first_seq()) {
        throw_option(
            "the queue was created otherwise: first_seq=" + std::to_string(*options_.first_seq) +
                ", queue has first_seq=" + std::to_string(control_.first_seq()),
            layout_.control(), "leave first_seq out, or create a new queue");
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
            // The first append may have to roll: do not leave the first one to luck.
            current_->segment.map()->populate(offset_, remaining());
            std::lock_guard lock(prealloc_mutex_);
            prepared_ = new WriterSegment(std::move(*make_segment(wanted_id_, true)));
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
    const std::uint64_t left = remaining();
    const std::uint64_t approach = std::min(kApproachBytes, control_.segment_bytes() / 4);
    // Until the end is near, the fast path stops short of it once, for approach_end().
    room_ = !usable ? 0 : near_end_ || left <= approach ? left : left - approach;
}

void Writer::check_open() const {
    if (forked()) {
        throw Error(Errc::forked_handle, "this writer was opened before fork, in the parent",
                    layout_.root, -1, "open the queue in the process that uses it");
    }
    if (closed_.load(std::memory_order_acquire)) {
        throw Error(Errc::closed_handle, "the writer is closed", layout_.root);
    }
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
        throw_option("a record's own number needs a sparse log: seq=" + std::to_string(seq),
                     layout_.root, "create the queue with sparse=True, or leave seq out");
    }
    if (seq < next_seq_ || seq == ~std::uint64_t{0}) {
        throw Error(Errc::sequence_not_rising,
                    "numbers must rise: seq=" + std::to_string(seq) +
                        ", next_seq=" + std::to_string(next_seq_),
                    layout_.root, -1, "give a number of at least next_seq");
    }
}

void Writer::enter(std::shared_ptr<WriterSegment> segment, std::uint64_t offset) noexcept {
    base_ = segment->segment.data();
    index_ = segment->index.get();
    offset_ = offset;
    entered_at_.store(offset, std::memory_order_relaxed);
    near_end_ = false;
    current_map_ = segment->segment.map();
    current_id_.store(segment->segment.id(), std::memory_order_release);
}

void Writer::wake() noexcept {
    control_.wake_waiters();
    count(Stat::wakes);
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
    run_retention();  // here and now: full is only said when it is true
    return segments() + more_segments <= limit;
}

void Writer::throw_full() {
    count(Stat::queue_full);
    throw Error(Errc::queue_full,
                "the queue holds all it may: segments=" + std::to_string(segments()) +
                    ", limit=" + std::to_string(segment_limit()),
                layout_.root, -1,
                "let the readers commit further, raise the limit, or drop the record");
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
    near_end_ = true;
    if (format::record_bytes(payload_len) <= remaining()) return true;
    if (!capacity_allows(1)) return false;
    roll();
    return true;
}

// A roll touches a dozen cache lines that no append does, most of them last written by another core. A
// few microseconds before it, they are asked for, so that the append that rolls does not wait for them.
void Writer::approach_end() noexcept {
    near_end_ = true;
    __builtin_prefetch(base_, 1);  // the segment's header, for SEALED
    __builtin_prefetch(control_.map().data() + offsetof(format::ControlBlock, segment_gen), 1);
    __builtin_prefetch(&segments_mutex_, 1);
    __builtin_prefetch(&unsynced_, 1);
    // The worker replaces it only after it was taken, by this thread.
    const WriterSegment* next = prepared_.load(std::memory_order_acquire);
    if (next == nullptr) return;
    const std::byte* data = next->segment.data();
    for (std::size_t line = 0; line < 512; line += 64) __builtin_prefetch(data + line, 1);
    __builtin_prefetch(next->index.get(), 1);
    (void)*reinterpret_cast<const volatile std::uint32_t*>(data);  // and its page, into the TLB
}

bool Writer::make_room_at_once(std::uint64_t payload_len) {
    if (!near_end_) approach_end();
    if (closed_ || forked() || lost() || reserved_bytes_ != 0) return false;
    if (payload_len > max_payload_bytes() || !options_.defer_seal_sync) return false;
    if (format::record_bytes(payload_len) <= remaining()) return true;
    if (prepared_.load(std::memory_order_acquire) == nullptr) return false;
    if (segments() + 1 > segment_limit()) return false;
    roll();
    return true;
}

void Writer::lock_if_wanted(const Segment& segment) const {
    if (!options_.memlock || segment.map()->lock_in_memory()) return;
    throw_errno("cannot lock the segment in memory (raise RLIMIT_MEMLOCK, or leave memlock out)",
                segment.path());
}

std::shared_ptr<WriterSegment> Writer::make_segment(std::uint32_t id, bool durable) {
    if (id <= current_id_.load(std::memory_order_acquire)) {
        throw Error(Errc::corrupt_metadata, "a segment in use cannot be prepared again",
                    layout_.segment(id));
    }
    auto made = std::make_shared<WriterSegment>();
    std::optional<Segment> ahead =
        Segment::open(layout_, id, control_.segment_bytes(), Mapping::Access::read_write);
    // Published ahead by a predecessor. No reader can be in it while the segment before it is open, so
    // whatever is not empty is set aside whole.
    if (ahead &&
        !all_zero(ahead->data() + kSegmentDataOffset, ahead->size() - kSegmentDataOffset)) {
        const std::string kept = layout_.free_damaged_name(id);
        rename_over(ahead->path(), kept);
        note("a segment ahead of the writer was not empty: it is kept as " + kept);
        ahead.reset();
    } else if (ahead && ahead->sealed()) {
        remove_file(ahead->path());  // nothing is in it
        ahead.reset();
    }
    if (ahead) {
        made->segment = std::move(*ahead);
        made->segment.file().allocate_holes(made->segment.size());  // a copy may have holes
    } else {
        made->segment = Segment::prepare(layout_, id, control_.segment_bytes(), sparse_);
        // Before it has a name, and while it is all holes.
        if (durable) made->segment.file().sync_data();
        if (!made->segment.publish(layout_)) {
            throw Error(Errc::corrupt_metadata, "a file is in the way of a new segment",
                        layout_.segment(id));
        }
        if (durable) sync_directory(layout_.root);
    }
    if (options_.preallocate) made->segment.map()->populate(0, made->segment.size());
    lock_if_wanted(made->segment);
    made->index =
        std::make_unique<IndexBuilder>(id, control_.segment_bytes(), options_.index_stride);
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
    workers_->poke_prealloc();  // the wish itself stands since the last roll
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
        throw Error(
            Errc::segment_not_ready,
            "the next segment is not prepared yet: prealloc_wait_ms=" +
                std::to_string(options_.prealloc_wait_ns / 1'000'000),
            layout_.segment(id), -1,
            "append again, raise prealloc_wait or segment_bytes, or leave require_prealloc out");
    }
    count(Stat::prealloc_misses);
    // The worker may be in the middle of it: then waiting for it is the quickest way.
    std::lock_guard lock(prealloc_mutex_);
    if (auto ready = take_prepared()) return ready;
    wanted_id_.store(0, std::memory_order_release);
    try {
        return make_segment(id, false);
    } catch (const Error&) {
        wanted_id_.store(id, std::memory_order_release);  // the worker goes on trying
        throw;
    }
}

void Writer::roll() {
    std::shared_ptr<WriterSegment> next;
    try {
        next = next_segment();
    } catch (const Error& e) {
        if (e.code == Errc::disk_full) count(Stat::disk_full);
        throw;
    }
    std::shared_ptr<WriterSegment> old = current_;
    {
        // What can run out of memory does so before anything is told to readers.
        std::lock_guard lock(segments_mutex_);
        unsynced_.reserve(unsynced_.size() + 1);
        unindexed_.reserve(unindexed_.size() + 1);
    }
    // SYNC roll: the next segment is there before SEALED says so; readers look in that order.
    control_.publish_position(next->segment.id(), kSegmentDataOffset);
    old->segment.seal();
    wake_if_waiting();
    bytes_before_.fetch_add(offset_ - entered_at_.load(std::memory_order_relaxed),
                            std::memory_order_relaxed);
    if (offset_ > kSegmentDataOffset)
        last_record_id_.store(old->segment.id(), std::memory_order_release);
    {
        std::lock_guard lock(segments_mutex_);
        unsynced_.push_back(old);
        unindexed_.push_back(old);
        current_ = next;
    }
    enter(std::move(next), kSegmentDataOffset);
    count(Stat::rolls);
    if (options_.preallocate) {
        wanted_id_.store(current_id_.load(std::memory_order_relaxed) + 1,
                         std::memory_order_release);
    }
    if (!options_.defer_seal_sync) sync_everything();
    workers_->after_roll();
}

void Writer::run_retention() noexcept {
    if (!options_.retention.enabled) return;
    try {
        std::lock_guard lock(retention_mutex_);
        const auto at = control_.position();
        if (!at) return;  // a roll is under way on this very queue: the next pass will do
        const auto [segment, offset] = *at;
        const std::uint32_t keep_from =
            offset > kSegmentDataOffset ? segment : last_record_id_.load(std::memory_order_acquire);
        const RetentionResult result = retention_.pass(layout_, control_.segment_bytes(),
                                                       {segment, offset}, keep_from, mono_ns());
        if (result.retired != 0) {
            count(Stat::segments_retired, result.retired);
            const auto left = layout_.segments();
            if (!left.empty()) lowest_id_.store(left.front(), std::memory_order_release);
        }
        auto& ignored = stats_[static_cast<std::size_t>(Stat::readers_ignored)];
        if (result.ignored.size() > ignored.load(std::memory_order_relaxed)) {
            for (const std::string& line : result.ignored) note(line);
        }
        ignored.store(result.ignored.size(), std::memory_order_relaxed);
    } catch (const Error& e) {
        count(Stat::retention_errors);
        note("retention: " + e.message + " (" + e.path + ")");
    }
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

std::vector<std::uint64_t> Writer::stats() const {
    std::vector<std::uint64_t> values(format::kStatCount);
    for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = stats_[i].load(std::memory_order_relaxed);
    const auto at = [&values](Stat stat) -> std::uint64_t& {
        return values[static_cast<std::size_t>(stat)];
    };
    at(Stat::records) = records_.load(std::memory_order_relaxed);
    // By the hint of the position, which in the middle of a roll belongs to the next segment already.
    const std::uint64_t offset = std::atomic_ref(*write_offset_).load(std::memory_order_relaxed);
    const std::uint64_t entered = entered_at_.load(std::memory_order_relaxed);
    at(Stat::bytes_written) =
        bytes_before_.load(std::memory_order_relaxed) + (offset > entered ? offset - entered : 0);
    at(Stat::next_seq) =
        std::atomic_ref(const_cast<std::uint64_t&>(next_seq_)).load(std::memory_order_relaxed);
    at(Stat::segments) = segments();
    return values;
}

void Writer::write_stats() noexcept {
    if (!stats_map_) return;
    format::StatsHeader header{format::kStatsMagic, format::kStatsVersion,
                               static_cast<std::uint32_t>(format::kStatCount), 0};
    const std::vector<std::uint64_t> values = stats();
    std::memcpy(stats_map_->data(), &header, sizeof header);
    std::memcpy(stats_map_->data() + sizeof header, values.data(), values.size() * 8);
}

// An archive has a log for each stream and day, and most days do not fill a segment. The file keeps its
// length and its bytes, so nobody who reads it, nor a kill or a loss of power, sees a difference; the
// next writer takes the room again before it appends. The page of the word where a reader waits stays.
void Writer::free_behind_end() noexcept {
    constexpr std::uint64_t kPage = 4096;
    const Segment& last = current_->segment;
    const std::uint64_t from = (offset_ + format::kRecordHeaderBytes + kPage - 1) / kPage * kPage;
    try {
        last.file().free_zeros(from, last.size());
    } catch (const Error& e) {
        note("closing: " + e.message + " (" + e.path + ")");
    }
}

void Writer::close() {
    if (closed_) return;
    room_ = 0;
    if (forked()) {
        // Nothing here is ours any more; only memory is given back.
        closed_ = true;
        workers_.release();  // its service threads live on in the parent alone
        return;
    }
    if (reserved_bytes_ != 0) abort_reserved();
    closed_ = true;
    if (!workers_) return;  // the constructor threw half-way
    workers_->stop();
    take_prepared();
    workers_->write_indexes_or_count();
    std::optional<Error> failed;
    try {
        sync_everything();
        if (!options_.preallocate) free_behind_end();
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
    lock_->withdraw();
    lock_.reset();
    if (failed) throw *failed;
}

}  // namespace tapewire::queue
