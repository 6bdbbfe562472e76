#include "tapewire/queue/reader.hpp"

#include <sys/file.h>

#include <algorithm>
#include <cassert>
#include <new>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/queue/walk.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

using format::kPadType;
using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

namespace {

constexpr std::int64_t kWatchNs = 100'000'000;
constexpr std::int64_t kBeatNs = 1'000'000'000;
constexpr std::int64_t kSilentNs = 1'000'000'000;
constexpr std::uint64_t kFirstStepBytes = 256 * 1024;  // below that, waking a thread does not pay
constexpr std::uint64_t kStepBytes = 4 * 1024 * 1024;
constexpr std::size_t kCacheLine = 64;

// Entered by a writer: a segment that is only prepared has none of these.
bool is_entered(const std::optional<Segment>& segment) {
    return segment && (load_commit(segment->data() + kSegmentDataOffset) != 0 ||
                       segment->sealed() || segment->end().has_value());
}

// The field of a fault, with its value.
std::string wrong_field(Fault fault, Commit commit) {
    const format::RecordHeader& header = commit.header();
    switch (fault) {
        case Fault::version:
        case Fault::later_version:
            return "version=" + std::to_string(header.version);
        case Fault::header_check:
            return "header_check=" + hex(header.header_check);
        case Fault::payload_crc:
            return "payload_crc=" + hex(header.payload_crc) + ", seq=" + std::to_string(header.seq);
        case Fault::none:
        case Fault::uncommitted:
        case Fault::length:
            break;
    }
    return "commit_len=" + std::to_string(commit.word());
}

}  // namespace

Reader::Reader(const std::string& root, const ReaderOptions& options)
    : layout_{root},
      options_(options),
      control_(Control::open(layout_, false)),
      catalog_(layout_, control_.geometry()) {
    if (!options_.name.empty()) {
        check_reader_name(options_.name);
        make_directory(layout_.readers());
        // SYNC registration: pairs with RetentionWatch::pass. A writer that is stopped in the
        // middle of a pass must not delay this indefinitely; then the segment may be deleted, which
        // SegmentMissing reports.
        registering_ = DirectoryLock(layout_.readers(), LOCK_SH, 1'000'000'000);
        meta_ = std::make_unique<ReaderMeta>(layout_, options_.name);
    }
    seek_start();
    watch_heartbeat(mono_ns());
    sees_writer();  // here, so that reading takes no system call while the writer is alive
    Services::get().heartbeat.add(&heartbeat_);
}

Reader::~Reader() {
    try {
        close(false);
    } catch (const Error&) {
        // Errors cannot be reported here; callers of close() get them.
    }
}

void Reader::close(bool forget) {
    if (closed_) return;
    closed_ = true;
    end_ = 0;
    look_to_ = 0;
    if (forked()) {
        meta_.reset();
        [[maybe_unused]] auto* left = ready_.release();  // its thread exists only in the parent
        return;
    }
    ready_.reset();
    Services::get().heartbeat.remove(&heartbeat_);
    read_ahead_.stop();
    if (meta_ && forget) remove_file(meta_->path());  // while the name is still locked
    meta_.reset();
    map_.reset();
    segment_ = Segment();
}

std::int64_t Reader::Heartbeat::run(std::int64_t now) noexcept {
    guard_against_sigbus();
    reader_.watch_heartbeat(now);
    reader_.hint_due_.store(true, std::memory_order_relaxed);
    if (reader_.meta_ && now >= next_beat_ns_) {
        reader_.meta_->beat();
        next_beat_ns_ = now + kBeatNs;
    }
    return (now + kWatchNs / 2) / kWatchNs * kWatchNs + kWatchNs;  // all readers at once
}

void Reader::watch_heartbeat(std::int64_t now) noexcept {
    const std::uint64_t value = control_.heartbeat_ns();
    if (value != heartbeat_seen_.load(std::memory_order_relaxed) ||
        heartbeat_since_ns_.load(std::memory_order_relaxed) == 0) {
        heartbeat_seen_.store(value, std::memory_order_relaxed);
        heartbeat_since_ns_.store(now, std::memory_order_relaxed);
    } else if (now - heartbeat_since_ns_.load(std::memory_order_relaxed) > kSilentNs) {
        writer_lives_.store(false, std::memory_order_relaxed);  // or is stopped: the lock decides
    }
}

void Reader::check_usable() const {
    if (forked()) {
        throw Error(Errc::forked_handle,
                    "this reader was opened before fork, in the parent process", layout_.root, -1,
                    "open the queue in the process that uses it");
    }
    if (closed_) throw Error(Errc::closed_handle, "the reader is closed", layout_.root);
    if (any_mapping_lost()) {
        control_.map().check_not_lost();
        if (map_) map_->check_not_lost();
    }
}

void Reader::throw_fault(Fault fault) const {
    map_->check_not_lost();  // zeros from the SIGBUS handler are not a damaged record
    // Read again, so that next() need not keep it; 0 if recovery withdraws it at this moment.
    const Commit commit = Commit::at(base_ + offset_);
    const std::string field = commit ? wrong_field(fault, commit) : std::string("commit_len=0");
    const Errc code = fault == Fault::payload_crc     ? Errc::checksum_mismatch
                      : fault == Fault::later_version ? Errc::unsupported_version
                                                      : Errc::corrupt_record;
    throw Error(code, std::string(describe(fault)) + ": " + field, segment_.path(),
                static_cast<std::int64_t>(offset_),
                fault == Fault::later_version
                    ? kVersionHint
                    : "skip_damaged() continues after it; `tapewire repair` repairs the segment");
}

void Reader::note_gap(std::uint64_t seq) {
    const std::uint64_t first = expected_;
    expected_ = seq;  // reported once; the next call continues with the record
    throw Error(Errc::gap_detected,
                "sequence numbers are missing: first=" + std::to_string(first) +
                    ", last=" + std::to_string(seq - 1),
                segment_.path(), static_cast<std::int64_t>(offset_),
                "continue reading: the next call returns the next record")
        .with(first, seq - 1);
}

inline bool Reader::look(RecordView& out) {
    for (;;) {
        if (offset_ + kRecordHeaderBytes > look_to_) [[unlikely]] {
            if (!look_further() && !leave_segment()) return false;
            continue;
        }
        const std::byte* at = base_ + offset_;
        const Commit commit = Commit::at(at);
        if (!commit) [[unlikely]] {
            if (!leave_segment()) return false;
            continue;
        }
        __builtin_prefetch(at + kPrefetchBytes);
        if (const Fault fault = check_header(commit, seed_, offset_, end_); fault != Fault::none)
            [[unlikely]] {
            throw_fault(fault);
        }
        const format::RecordHeader& header = commit.header();
        if (header.type_id == kPadType) [[unlikely]] {
            pass_unnumbered(commit.record_bytes(),
                            {segment_.id(), offset_ + commit.record_bytes()});
            offset_ += commit.record_bytes();
            continue;
        }
        const bool wanted = !filter_ || filter_->wants(header.type_id);
        if (wanted) {
            // This payload will be read, and so will the next ones: most have the same length.
            __builtin_prefetch(at + kPrefetchBytes + kRecordHeaderBytes);
            if (commit.payload_len() > kCacheLine)
                __builtin_prefetch(at + kPrefetchBytes + kRecordHeaderBytes + kCacheLine);
        }
        // First: a sequence number is trusted only if the entire record is valid.
        if (wanted && check_payload(commit) != Fault::none) [[unlikely]]
            throw_fault(Fault::payload_crc);
        if (header.seq > expected_ && !segment_.sparse()) [[unlikely]]
            note_gap(header.seq);
        if (!wanted) {
            expected_ = header.seq + 1;
            offset_ += commit.record_bytes();
            pass_unwanted();
            continue;
        }
        if (any_mapping_lost()) [[unlikely]]
            map_->check_not_lost();
        out.payload = commit.payload();
        out.payload_len = commit.payload_len();
        out.type_id = header.type_id;
        out.flags = header.flags;
        out.seq = header.seq;
        out.timestamp_ns = static_cast<std::int64_t>(header.timestamp_ns);
        out.owner = &map_;
        return true;
    }
}

// Skips the valid unwanted records up to the first place that look() must judge. The position is
// kept in registers and stored once for all of them. Duplicates the tests of look(): sharing them
// would cost each call of next() three instructions.
void Reader::pass_unwanted() noexcept {
    const std::byte* const base = base_;
    const HeaderSeed seed = seed_;
    const std::uint64_t end = end_;
    const std::uint64_t to = look_to_;
    const bool dense = !segment_.sparse();
    std::uint64_t offset = offset_;
    std::uint64_t expected = expected_;
    while (offset + kRecordHeaderBytes <= to) {
        const Commit commit = Commit::at(base + offset);
        if (!commit) break;
        __builtin_prefetch(base + offset + kPrefetchBytes);
        if (check_header(commit, seed, offset, end) != Fault::none) break;
        const format::RecordHeader& header = commit.header();
        if (header.type_id == kPadType || filter_->wants(header.type_id)) break;
        if (dense && header.seq > expected) break;
        expected = header.seq + 1;
        offset += commit.record_bytes();
    }
    offset_ = offset;
    expected_ = expected;
}

// Extends the range that look() may read, and requests the pages after it. False at the segment's
// end.
bool Reader::look_further() {
    if (look_to_ >= end_) return false;
    const bool first = look_to_ < offset_ && !read_ahead_.started();
    look_to_ = std::min(offset_ + (first ? kFirstStepBytes : kStepBytes), end_);
    if (first) return true;
    // Only what was written: in a file in memory, reading a hole allocates a page.
    std::uint64_t written = end_;
    if (const auto at = control_.position(); at && at->first == segment_.id()) written = at->second;
    const std::uint64_t to = std::min(look_to_ + kStepBytes, written);
    const std::uint64_t from = std::max(ahead_to_, offset_);
    if (to <= from + kStepBytes / 4) return true;
    ahead_to_ = to;
    read_ahead_.want(map_, from, to);
    return true;
}

bool Reader::look_cold(RecordView& out) { return look(out); }

bool Reader::peek(RecordView& out) { return look(out) || (ready_ && look_again(out)); }

void Reader::pass(const RecordView& shown) noexcept {
    offset_ += format::record_bytes(shown.payload_len);
    expected_ = shown.seq + 1;
    last_seq_ = shown.seq;
}

bool Reader::next(RecordView& out) {
    if (!look(out) && !(ready_ && look_again(out))) return false;
    pass(out);
    return true;
}

std::size_t Reader::read_batch(BatchColumns& out, std::size_t max_records) {
    RecordView record;
    std::size_t n = 0;
    try {
        for (; n < max_records && (look(record) || (n == 0 && ready_ && look_again(record))); ++n) {
            if (out.owners.empty() || out.owners.back() != map_) out.owners.push_back(map_);
            out.push(record);
            offset_ += format::record_bytes(record.payload_len);
            expected_ = record.seq + 1;
        }
    } catch (const Error& e) {
        // The records read before the fault are returned first; the next call meets it again. A gap
        // is reported once, so it must not be swallowed here.
        if (n == 0) throw;
        if (e.code == Errc::gap_detected) expected_ = e.numbers[0];
    } catch (const std::bad_alloc&) {
        if (n == 0) throw;
    }
    if (n != 0) last_seq_ = out.seq[out.size() - 1];
    return n;
}

// SEALED may be lost: a flipped bit, or a page that never reached the disk. A writer seals before
// its first append to the next segment, so a record there proves that nothing more is written here.
// The hint only indicates when to check.
bool Reader::passed_over() const {
    return control_.current_segment() > segment_.id() &&
           is_entered(
               Segment::open(layout_, geometry(), segment_.id() + 1, Mapping::Access::read_only));
}

bool Reader::was_entered(std::uint32_t id) const {
    return is_entered(open_or_nothing(layout_, geometry(), id));
}

bool Reader::sees_writer() {
    bool lives;
    try {
        lives = look_at_writer_lock(layout_, &control_.file()).held;
    } catch (const Error&) {
        // The lock cannot be tested from here: then only a changing heartbeat is known.
        lives = mono_ns() - heartbeat_since_ns_.load(std::memory_order_relaxed) <= kSilentNs;
    }
    writer_lives_.store(lives, std::memory_order_relaxed);
    return lives;
}

// At an uncommitted word of a segment that is not sealed, where the log seems to end. True: it
// continues in the next one. Without a live writer, the apparent end must be the real one.
bool Reader::goes_on_after_end() {
    assert(!is_outside());
    if (writer_lives_.load(std::memory_order_relaxed)) {
        check_passed_by_writer();
        return false;
    }
    const std::uint64_t epoch = control_.writer_epoch();
    if (checked_end_ == position() && checked_epoch_ == epoch) return false;
    if (sees_writer()) {
        check_passed_by_writer();
        return false;
    }
    if (was_entered(segment_.id() + 1)) return true;
    const auto lost = contradicts_end(layout_, control_, segment_, offset_, false);
    // A writer may have come and gone meanwhile: the next look handles what it left.
    const bool same = control_.writer_epoch() == epoch && !segment_.sealed() &&
                      (offset_ + kRecordHeaderBytes > end_ || load_commit(base_ + offset_) == 0);
    if (!same || (lost && sees_writer())) return false;
    map_->check_not_lost();
    if (lost) throw_lost_end(*lost);
    checked_end_ = position();
    checked_epoch_ = epoch;
    return false;
}

// At an uncommitted word of a segment that is over: nothing may follow.
void Reader::check_sealed_end() const {
    if (!rest_of_header_is_zero(base_ + offset_)) throw_fault(Fault::uncommitted);
    const auto end = segment_.end();
    if (end && end->offset == offset_) return;
    if (end && end->offset > offset_) {
        throw_lost_end({"the writer ended the segment at offset " + std::to_string(end->offset),
                        end->offset, end->next_seq});
    }
    if (!segment_.is_zero_from(offset_)) throw_fault(Fault::uncommitted);
}

void Reader::throw_lost_end(const LostEnd& lost) const {
    map_->check_not_lost();
    throw Error(Errc::corrupt_record,
                "records are lost where the log seems to end: commit_len=0, but " + lost.why,
                segment_.path(), static_cast<std::int64_t>(offset_),
                "skip_damaged() continues after it; `tapewire repair` repairs the segment");
}

bool Reader::leave_segment() {
    check_usable();
    if (is_outside()) return enter_awaited();
    assert(is_record_boundary(offset_, end_) && look_to_ <= end_);
    if (!segment_.sealed() && !passed_over() && !goes_on_after_end()) return false;
    // SYNC seal: no record is committed here after SEALED, but one may have been just before it.
    if (offset_ + kRecordHeaderBytes <= end_) {
        if (load_commit(base_ + offset_) != 0) return true;
        check_sealed_end();
    }
    const std::uint32_t next = segment_.id() + 1;
    auto segment = Segment::open(layout_, geometry(), next, Mapping::Access::read_only);
    if (!segment) {
        const auto ids = layout_.segments();
        const auto checkpoint = load_tail_checkpoint(layout_, geometry().key);
        const bool higher = control_.current_segment() > segment_.id() ||
                            (!ids.empty() && ids.back() > segment_.id()) ||
                            (checkpoint && checkpoint->checked &&
                             lies_in_later_segment(*checkpoint, segment_.id()));
        if (!higher) return false;
        // A writer may have made it between the two looks.
        segment = Segment::open(layout_, geometry(), next, Mapping::Access::read_only);
        if (!segment) throw_segment_missing(next);
    }
    pass_unnumbered(end_ - offset_, {next, kSegmentDataOffset});
    enter(std::move(*segment), kSegmentDataOffset);
    return true;
}

// Lost records may have been in bytes that hold none now: skip_damaged must know how many such
// bytes there are since the last sequence number. Identified by the position: next() need not reset
// it.
void Reader::pass_unnumbered(std::uint64_t bytes, Position to) noexcept {
    const bool goes_on = unnumbered_.expected == expected_ && unnumbered_.to == position();
    unnumbered_ = {expected_, (goes_on ? unnumbered_.bytes : 0) + bytes, to};
}

void Reader::enter(Segment segment, std::uint64_t offset) noexcept {
    assert(is_record_boundary(offset, segment.size()));
    segment.close_file();
    if (map_ != segment.map()) read_ahead_.drop(std::move(map_));
    segment_ = std::move(segment);
    map_ = segment_.map();
    base_ = segment_.data();
    end_ = segment_.size();
    seed_ = segment_.seed();
    offset_ = offset;
    look_to_ = 0;
    ahead_to_ = 0;
    hint_seen_at_ = 0;
    look_further();
}

// Outside of all segments, before one that cannot be entered or does not exist yet.
void Reader::stand_before(std::uint32_t id, std::uint64_t offset) noexcept {
    segment_ = Segment::unopened(id);
    map_.reset();
    base_ = nullptr;
    end_ = 0;
    look_to_ = 0;
    offset_ = offset;
}

// As enter_id; a damaged header is not reported here but by next(), since the reader is then
// positioned before it.
bool Reader::come_to(std::uint32_t id, std::uint64_t offset) {
    try {
        return enter_id(id, offset);
    } catch (const Error& e) {
        if (e.code != Errc::corrupt_metadata) throw;
        stand_before(id, offset);
        return true;
    }
}

// False: the log ends before it.
bool Reader::enter_awaited() {
    assert(is_outside() && end_ == 0 && look_to_ == 0);
    const std::uint32_t id = segment_.id();
    if (!enter_id(id, offset_)) {
        const auto ids = layout_.segments();
        const bool due = control_.current_segment() >= id || (!ids.empty() && ids.back() > id);
        if (!due) return false;
        // A writer may have made it between the two looks.
        if (!enter_id(id, offset_)) throw_segment_missing(id);
    }
    if (offset_ == kSegmentDataOffset) {
        expect_first_number();
    } else {
        stand_on_the_log();  // from a committed position, which could not be checked before
    }
    return true;
}

// The only position where the first sequence number is known beforehand.
void Reader::expect_first_number() noexcept {
    if (expected_ == kAnySeq && segment_.id() == 0 && offset_ == kSegmentDataOffset &&
        !segment_.sparse()) {
        expected_ = control_.first_seq();
    }
}

// All segments of a log agree about it, so any of them will do.
bool Reader::sparse() const {
    if (!is_outside()) return segment_.sparse();
    for (const std::uint32_t id : layout_.segments()) {
        if (const auto segment = open_or_nothing(layout_, geometry(), id)) {
            return segment->sparse();
        }
    }
    return false;
}

bool Reader::enter_id(std::uint32_t id, std::uint64_t offset) {
    if (!map_ || segment_.id() != id) {
        auto segment = Segment::open(layout_, geometry(), id, Mapping::Access::read_only);
        if (!segment) return false;
        enter(std::move(*segment), offset);
    }
    offset_ = offset;
    return true;
}

void Reader::throw_segment_missing(std::uint32_t id) {
    catalog_.forget();
    std::uint64_t first = 0;
    for (std::uint32_t there : catalog_.ids()) {
        if (const auto& facts = catalog_.first_record(there); facts.first_seq) {
            first = *facts.first_seq;
            break;
        }
    }
    const Position at = committed().value_or(position());
    throw Error(
        Errc::segment_missing,
        "the next segment is missing: segment=" + std::to_string(id) + ", committed=(" +
            std::to_string(at.segment) + ", " + std::to_string(at.offset) +
            "), first available seq=" + std::to_string(first),
        layout_.segment(id), -1,
        "seek_start() continues at the earliest record, skip_damaged() after what is missing; "
        "retention keeps the segments of a pinned reader")
        .with(at.segment, at.offset, first);
}

std::optional<Position> Reader::committed() const {
    if (!meta_) return std::nullopt;
    const ReaderState state = meta_->state();
    if (state.generation == 0) return std::nullopt;
    return state.position;
}

bool Reader::resume_committed() {
    check_usable();
    if (!meta_) return false;
    const ReaderState state = meta_->state();
    if (state.damaged) {
        throw Error(Errc::corrupt_metadata,
                    "the reader's file is damaged: no slot has a valid checksum", meta_->path(), 0,
                    "open it with an explicit start (\"earliest\", \"latest\", Seq, Time)");
    }
    if (state.generation == 0) return false;
    const Position at = state.position;
    if (at.segment > format::kSegmentIdMax || !is_record_boundary(at.offset, segment_bytes())) {
        throw Error(Errc::corrupt_metadata,
                    "invalid position of the reader: segment=" + std::to_string(at.segment) +
                        ", offset=" + std::to_string(at.offset),
                    meta_->path(), 0,
                    "open it with an explicit start (\"earliest\", \"latest\", Seq, Time)");
    }
    expected_ = kAnySeq;
    last_seq_.reset();
    const auto id = static_cast<std::uint32_t>(at.segment);
    if (!come_to(id, at.offset)) {
        // Past the end of the log: its name was lost with the power, and the log ends before it.
        const auto ids = layout_.segments();
        if (ids.empty() || id < ids.back() || !come_to(ids.back(), segment_bytes())) {
            throw_segment_missing(id);
        }
        // Or it was committed after a damaged segment, to wait there for the next one.
        if (is_outside()) stand_before(id, at.offset);
    }
    if (!is_outside()) stand_on_the_log();
    if (position() != at) meta_->commit(position(), state.pinned);
    return true;
}

void Reader::register_position() {
    if (!meta_) return;
    const ReaderState state = meta_->state();
    if (state.generation == 0 || state.pinned != options_.pinned) {
        meta_->commit(committed().value_or(position()), options_.pinned);
    } else {
        meta_->beat();
    }
    registering_.release();
}

void Reader::commit() {
    check_usable();
    if (!meta_) {
        throw Error(Errc::invalid_option, "an anonymous reader has no position to commit",
                    layout_.root, -1, "open it with a name, by open_subscriber");
    }
    assert(is_record_boundary(offset_, segment_bytes()));
    meta_->commit(position(), options_.pinned);
}

WriterStatus Reader::writer_status(std::int64_t ttl_ns) {
    check_usable();
    const std::int64_t now = mono_ns();
    watch_heartbeat(now);
    const LockLook look = look_at_writer_lock(layout_, &control_.file());
    WriterStatus status;
    status.heartbeat_age_ns = now - heartbeat_since_ns_.load(std::memory_order_relaxed);
    status.alive = look.held && status.heartbeat_age_ns <= ttl_ns;
    status.epoch = control_.writer_epoch();
    if (look.owner) status.pid = look.owner->pid;
    return status;
}

bool Reader::has_writer() {
    check_usable();
    return look_at_writer_lock(layout_, &control_.file()).held;
}

Disconnect Reader::detect_disconnect(std::int64_t ttl_ns) {
    check_usable();
    if (!is_outside() && !file_exists(layout_.segment(segment_.id())))
        return Disconnect::segment_missing;
    if (!has_writer()) return Disconnect::lock_lost;
    return writer_status(ttl_ns).alive ? Disconnect::none : Disconnect::heartbeat_stale;
}

}  // namespace tapewire::queue
