#include "tapewire/queue/recovery.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "recovery_files.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/tail_checkpoint.hpp"
#include "tapewire/queue/log_end.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

namespace {

// One pass over the tail of the log, oldest segment first.
class Recovery {
  public:
    Recovery(const Layout& layout, Control& control, const RecoveryOptions& options)
        : layout_(layout), control_(control), options_(options) {}

    RecoveredTail run() {
        for (const std::string& path : layout_.temporary_files()) remove_file(path);
        assert(std::is_sorted(ids_.begin(), ids_.end()));
        tail_.next_seq = control_.first_seq();
        tail_.sparse = options_.sparse;
        files_.repair_unborn();
        if (options_.everything) tail_.damaged_spans += files_.repair_headers();
        if (!ids_.empty()) tail_.lowest_segment = ids_.front();

        if (options_.created) {
            append_to(open(ids_.front()), kSegmentDataOffset);
            drop_outlived_indexes();  // of a queue whose other files were removed
            call_back_readers();
            return std::move(tail_);
        }
        std::size_t top = highest_with_record();
        if (top == kNone) {
            begin_empty();
        } else {
            files_.fill_holes(top);
            scan_from_checkpoint(top);
        }
        seal_below();
        list_unsynced();
        // Records that were on disk and are lost had sequence numbers: these are not assigned
        // again, so the loss shows as a gap.
        if (checkpoint_) {
            tail_.next_seq = std::max(tail_.next_seq, checkpoint_->next_seq);
            if (checkpoint_->checked &&
                Position{tail_.segment->id(), tail_.offset} < checkpoint_->position)
                lower_checkpoint();
        }
        set_aside_ahead();
        drop_outlived_indexes();
        call_back_readers();
        return std::move(tail_);
    }

  private:
    static constexpr std::size_t kNone = ~std::size_t{0};

    Segment open(std::uint32_t id) {
        auto segment = Segment::open(layout_, control_.geometry(), id, Mapping::Access::read_write);
        if (!segment)
            throw Error(Errc::segment_missing, "the segment was removed during recovery",
                        layout_.segment(id));
        return std::move(*segment);
    }

    static bool holds_record(const Segment& segment) {
        CandidateBudget budget(segment.size());
        bool chained = true;  // only PADs so far: what follows damage may be part of a payload
        const std::uint64_t end = segment.written_end(kSegmentDataOffset);
        for (std::uint64_t at = kSegmentDataOffset; at + kRecordHeaderBytes <= end;
             at += format::kRecordAlign) {
            const std::byte* place = segment.data() + at;
            const Commit commit = Commit::at(place);
            if (!commit) {
                chained = false;
                // Mostly zeros: skip them page by page.
                const std::uint64_t page = (at + 4095) & ~std::uint64_t{4095};
                if (at == page && at + 4096 <= segment.size() && all_zero(place, 4096)) {
                    at += 4096 - format::kRecordAlign;
                }
                continue;
            }
            const Fault fault = check_header(commit, segment.seed(), at, segment.size());
            if (fault == Fault::later_version && chained) refuse_later_version(segment, at, commit);
            if (fault == Fault::none && commit.header().type_id == format::kPadType) {
                // The bytes covered by the PAD are still in it.
                if (chained) at += commit.record_bytes() - format::kRecordAlign;
                continue;
            }
            chained = false;
            if (fault == Fault::none && budget.allows(commit) &&
                check_payload(commit) == Fault::none) {
                return true;
            }
        }
        return false;
    }

    // Valid, but of a later version: leave the log alone.
    [[noreturn]] static void refuse_later_version(const Segment& segment, std::uint64_t at,
                                                  Commit commit) {
        throw Error(Errc::unsupported_version,
                    "a record has a version that this release cannot read: version=" +
                        std::to_string(commit.header().version) +
                        ", supported=" + std::to_string(format::kRecordVersion),
                    segment.path(), static_cast<std::int64_t>(at), kVersionHint);
    }

    std::size_t highest_with_record() {
        for (std::size_t i = ids_.size(); i-- > 0;) {
            const Segment segment = open(ids_[i]);
            if (i + 1 == ids_.size()) tail_.sparse = segment.sparse();
            // All its records may be lost: its place stays taken all the same.
            if (proven_end(layout_, control_, checkpoint_, segment).offset > kSegmentDataOffset)
                return i;
            if (segment.is_zero_from(kSegmentDataOffset)) continue;  // prepared ahead
            if (holds_record(segment)) return i;
            unfinished_.push_back(ids_[i]);
        }
        return kNone;
    }

    // No record anywhere: append to the first segment that is clean and open, or to a new one.
    void begin_empty() {
        if (ids_.empty()) {
            start_in(0);
            return;
        }
        Segment segment = open(ids_.front());
        const std::uint64_t end = behind_pads(segment);
        go_on_after(std::move(segment), end);
    }

    void scan_from_checkpoint(std::size_t top) {
        // Without a checkpoint: all of the highest segment that holds a record.
        std::size_t first = top;
        std::uint64_t synced = 0;  // in `first`, everything before this offset is on disk
        if (options_.everything) {
            first = 0;
        } else if (checkpoint_) {
            // Retention may have removed that segment itself: then start at the first remaining
            // one.
            const Position& stored = checkpoint_->position;
            const auto it = std::lower_bound(ids_.begin(), ids_.end(), stored.segment);
            const auto at = static_cast<std::size_t>(it - ids_.begin());
            first = std::min(top, at);
            if (at > top) {
                synced = control_.segment_bytes();
            } else if (*it == stored.segment) {
                synced = stored.offset;
            }
        }
        std::uint64_t end = scan_segments(first, top, synced);
        while (!accepted_ && first > 0) {
            // What was taken for a record is none, by its sequence number: then the end of the log
            // is before it and must be scanned as well.
            do --first;
            while (first > 0 && !holds_record(open(ids_[first])));
            numbers_.reset();
            end = scan_segments(first, top, 0);
        }
        go_on_after(open(ids_[top]), end);
        if (checkpoint_ && checkpoint_->checked) report_if_shorter_than(checkpoint_->position);
    }

    // Returns where the log ends in the last of them.
    std::uint64_t scan_segments(std::size_t first, std::size_t last, std::uint64_t synced) {
        assert(first <= last && last < ids_.size());
        scanned_.clear();
        for (std::size_t i = first;; ++i, synced = 0) {
            Segment segment = open(ids_[i]);
            std::uint64_t end = scan(segment, synced);
            scanned_.push_back({segment.id(), 0, end});
            if (i == last) return end;
            end = fence_rest(segment, end);
            record_scanned_end(segment, end);
            numbers_ = in_next_segment(numbers_, segment.size());
        }
    }

    // For a segment below the last one: readers leave it there, and nowhere before.
    void record_scanned_end(Segment& segment, std::uint64_t end) {
        assert(is_record_boundary(end, segment.size()));
        const auto recorded = segment.end();
        if (recorded && recorded->offset == end) {
            // Its last records may be covered by a PAD: their sequence numbers are not assigned
            // again.
            tail_.next_seq = std::max(tail_.next_seq, recorded->next_seq);
            return;
        }
        if (recorded && recorded->offset > end) {
            // In a sparse log there is no other indication.
            tail_.report.push_back("records at offsets " + std::to_string(end) + " to " +
                                   std::to_string(recorded->offset) + " of " + segment.path() +
                                   " were never synced and are lost");
        }
        segment.record_end({end, tail_.next_seq});
        changed_.push_back(segment.id());
    }

    void report_if_shorter_than(Position checkpoint) {
        const Position end{tail_.segment->id(), tail_.offset};
        if (!(end < checkpoint)) return;
        tail_.report.push_back("the log was on disk up to " + place(checkpoint) + " and ends at " +
                               place(end) + ": records at the end were removed");
    }

    // Where to begin in the first segment, so that the next sequence number always comes from a
    // record.
    std::uint64_t start_of_scan(const Segment& segment, std::uint64_t synced) {
        if (synced <= kSegmentDataOffset) return kSegmentDataOffset;
        if (const auto loaded = load_index(layout_, segment); loaded && loaded->running_max) {
            for (std::size_t i = loaded->entries.size(); i-- > 0;) {
                const auto& entry = loaded->entries[i];
                if (entry.offset > synced || !entry_is_right(segment, entry)) continue;
                tail_.index->resume(*loaded, entry.offset);
                return entry.offset;
            }
        }
        return kSegmentDataOffset;
    }

    // Walks the valid records and covers damage with PADs. Returns where the log ends in this
    // segment.
    std::uint64_t scan(Segment& segment, std::uint64_t synced) {
        tail_.index = std::make_unique<IndexBuilder>(segment, options_.index_stride);
        std::uint64_t at = start_of_scan(segment, synced);
        bool indexed = tail_.index->count() != 0;  // the first record has its entry already
        std::byte* base = segment.data();
        CandidateBudget budget(segment.size());
        std::optional<SegmentEnd> proven;
        while (at + kRecordHeaderBytes <= segment.size()) {
            const Commit commit = Commit::at(base + at);
            const Fault fault = commit ? check_record(commit, segment.seed(), at, segment.size())
                                       : Fault::uncommitted;
            if (fault == Fault::later_version) refuse_later_version(segment, at, commit);
            if (fault == Fault::none && !has_no_successor(commit)) {
                const format::RecordHeader& header = commit.header();
                if (header.type_id != format::kPadType) {
                    accept(header, segment, at + commit.record_bytes());
                    if (!indexed) tail_.index->add(header.seq, header.timestamp_ns, at);
                    indexed = false;
                }
                at += commit.record_bytes();
                continue;
            }
            if (!numbers_) {
                // From the records before: without a key a payload may hold a copy of another
                // record.
                numbers_ = numbers_before(layout_, control_.geometry(), segment, at);
                if (numbers_) tail_.next_seq = numbers_->next;
            }
            if (!proven) proven = proven_end(layout_, control_, checkpoint_, segment);
            const std::uint64_t found = after_damage(segment, at, fault, *proven, budget);
            if (found == at) return at;
            at = found;
        }
        return at;
    }

    // From a place without a valid record to the next one, with a PAD in between; returns `at`
    // itself if the log ends there.
    std::uint64_t after_damage(Segment& segment, std::uint64_t at, Fault fault, SegmentEnd reached,
                               CandidateBudget& budget) {
        if (!segment.is_zero_from(at)) {
            Search search = search_after(segment, at);
            const auto written = written_to(control_, segment);
            const bool repairing = options_.everything && segment.seed().keyed();
            const bool killed = written && fault == Fault::uncommitted && !repairing;
            if (killed) {
                // And no further: a word that is 0 and that the writer had not passed is followed
                // by the record it was writing, which may contain anything.
                search.until = std::min(search.until, std::max(written->offset, reached.offset));
            }
            const std::uint64_t found = find_right_record(search, at, numbers_, budget);
            if (found != segment.size()) {
                fence_damage(segment, at, found);
                return found;
            }
            if (killed) keep_if_records_follow(segment, at, budget);
            numbers_ = numbers_past(search, at, numbers_);  // for the segments after this one
            if (written && written->here && written->offset > std::max(reached.offset, at)) {
                reached = {written->offset, tail_.next_seq};
                if (!segment.sparse()) {
                    reached.next_seq += most_records(segment, at, written->offset);
                } else if (const auto lost = lost_header(segment, at, written->offset)) {
                    reached.next_seq = lost->seq + 1;
                }
            }
        }
        if (reached.offset <= at) return at;
        // The record existed and is lost. Its place stays taken, since readers may have been past
        // it, and so do its sequence numbers.
        tail_.numbers_lost = tail_.numbers_lost || reached.next_seq > tail_.next_seq;
        tail_.next_seq = std::max(tail_.next_seq, reached.next_seq);
        fence_damage(segment, at, reached.offset);
        return reached.offset;
    }

    // Records that are valid by their keyed checks, after a word that the killed writer had not
    // passed, according to its hint. They are not accepted: a process that knows the key may have
    // made them, in a payload. Nor are they destroyed.
    void keep_if_records_follow(Segment& segment, std::uint64_t at, CandidateBudget& budget) {
        if (!segment.seed().keyed()) return;
        const std::uint64_t found =
            find_right_record(search_after(segment, at), at, numbers_, budget);
        if (found == segment.size()) return;
        files_.keep_copy(segment);
        ++tail_.damaged_spans;
        tail_.report.push_back(
            "damaged: apparent records from offset " + std::to_string(found) + " of " +
            segment.path() +
            " on follow an uncommitted place and are not recovered; a copy of the "
            "segment is in " +
            files_.last_copy());
    }

    void accept(const format::RecordHeader& header, const Segment& segment, std::uint64_t end) {
        // Lower: a restart by another implementation. Higher in a dense log: the records before it
        // are missing and cannot be restored; what follows is valid.
        if (numbers_ && !segment.sparse() && header.seq > numbers_->next) {
            ++tail_.gaps;
            tail_.report.push_back("sequence numbers " + std::to_string(numbers_->next) + " to " +
                                   std::to_string(header.seq - 1) + " are missing in " +
                                   segment.path());
        }
        // Ours never decrease: a lower one is a copy, and it must not cause a number to be assigned
        // again.
        const bool ours = control_.geometry().keyed() || header.header_check != 0;
        tail_.next_seq = std::max(ours && numbers_ ? tail_.next_seq : 0, header.seq + 1);
        tail_.last_record_segment = segment.id();
        numbers_ = {header.seq + 1, static_cast<std::int64_t>(end)};
        accepted_ = true;
    }

    void fence_damage(Segment& segment, std::uint64_t at, std::uint64_t found) {
        assert(at < found && is_record_boundary(at, segment.size()) &&
               is_record_boundary(found, segment.size()));
        files_.keep_copy(segment);
        changed_.push_back(segment.id());
        write_pad(segment.data(), segment.seed(), at, found - at);
        ++tail_.damaged_spans;
        tail_.report.push_back("damaged: " + std::to_string(found - at) + " bytes at offset " +
                               std::to_string(at) + " of " + segment.path() +
                               " became a PAD; a copy of the original is in " + files_.last_copy());
    }

    // After the last valid record of a segment that is not the last: nothing may look committed.
    // Returns the new end of the segment.
    std::uint64_t fence_rest(Segment& segment, std::uint64_t end) {
        if (segment.is_zero_from(end)) return end;
        pad_rest(segment, end);
        return segment.size();
    }

    void pad_rest(Segment& segment, std::uint64_t end) {
        assert(end < segment.size() && is_record_boundary(end, segment.size()));
        // What was on disk is damaged, not incomplete: it is copied before it is overwritten.
        if (checkpoint_ && Position{segment.id(), end} < checkpoint_->position)
            files_.keep_copy(segment);
        write_pad(segment.data(), segment.seed(), end, segment.size() - end);
        changed_.push_back(segment.id());
        ++tail_.pads;
        tail_.report.push_back("unfinished bytes at offset " + std::to_string(end) + " of " +
                               segment.path() + " became a PAD");
    }

    // The log ends at `end` of `segment`: append there, or continue in the next segment.
    void go_on_after(Segment segment, std::uint64_t end) {
        for (;;) {
            const bool clean = segment.is_zero_from(end);
            if (clean && !segment.sealed()) {
                append_to(std::move(segment), end);
                return;
            }
            // The PAD is written after the next segment exists, and SEALED after that.
            tail_.index.reset();
            const std::uint32_t next = segment.id() + 1;
            if (!std::binary_search(ids_.begin(), ids_.end(), next)) {
                start_in(next);
                leave(segment, end, clean);
                return;
            }
            // Published ahead and without a record, but a writer may have died in its first append.
            Segment ahead = open(next);
            leave(segment, end, clean);
            segment = std::move(ahead);
            end = behind_pads(segment);
        }
    }

    void leave(Segment& segment, std::uint64_t end, bool clean) {
        if (!clean) {
            pad_rest(segment, end);
            end = segment.size();
        }
        record_scanned_end(segment, end);
    }

    // An earlier recovery may have covered all of it. Its PADs are not written again: readers may
    // be reading them.
    static std::uint64_t behind_pads(const Segment& segment) {
        std::uint64_t at = kSegmentDataOffset;
        while (at + kRecordHeaderBytes <= segment.size()) {
            const Commit commit = Commit::at(segment.data() + at);
            if (!commit ||
                check_record(commit, segment.seed(), at, segment.size()) != Fault::none ||
                commit.header().type_id != format::kPadType) {
                break;
            }
            at += commit.record_bytes();
        }
        return at;
    }

    void append_to(Segment segment, std::uint64_t offset) {
        assert(is_record_boundary(offset, segment.size()));
        if (const auto end = segment.end(); end && end->offset == offset)
            tail_.next_seq = std::max(tail_.next_seq, end->next_seq);
        if (tail_.numbers_lost) segment.record_end({offset, tail_.next_seq});
        tail_.sparse = segment.sparse();
        tail_.offset = offset;
        if (!tail_.index) {
            tail_.index = std::make_unique<IndexBuilder>(segment, options_.index_stride);
        }
        tail_.segment = std::move(segment);
    }

    void start_in(std::uint32_t id) {
        Segment segment = Segment::prepare(layout_, control_.geometry(), id, tail_.sparse, false);
        segment.file().sync_data();
        if (!segment.publish(layout_)) {
            throw Error(Errc::corrupt_metadata, "a file with the name of the new segment exists",
                        layout_.segment(id));
        }
        sync_directory(layout_.root);
        tail_.index.reset();
        append_to(open(id), kSegmentDataOffset);
        if (ids_.empty()) tail_.lowest_segment = id;
    }

    // It refers to lost records, and would count as proof of lost ones at the position where we
    // append now. What is before the end was on disk according to it; our repairs are from here on.
    // (A checkpoint without a CRC proves neither.)
    void lower_checkpoint() {
        assert(tail_.segment && checkpoint_);
        for (std::uint32_t id : changed_) open(id).file().sync_data();
        const File file(layout_.tail_checkpoint(), O_RDWR | O_CREAT);
        store_tail_checkpoint(file, {{tail_.segment->id(), tail_.offset}, tail_.next_seq},
                              control_.geometry().key);
        file.sync_data();
    }

    // Everything since the checkpoint: no successful sync covers it. Repairs below it are dirty,
    // and need only a sync.
    void list_unsynced() {
        const Position synced = checkpoint_ ? checkpoint_->position : lowest_unsynced();
        const auto scanned_to = [this](std::uint32_t id) {
            for (const UnsyncedSpan& span : scanned_) {
                if (span.segment == id) return span.to;
            }
            return control_.segment_bytes();
        };
        for (std::uint32_t id : ids_) {
            if (id > tail_.segment->id()) break;
            if (id >= synced.segment) {
                const std::uint64_t from = id == synced.segment ? synced.offset : 0;
                const std::uint64_t to = id == tail_.segment->id() ? tail_.offset : scanned_to(id);
                tail_.unsynced.push_back({id, std::min(from, to), to});
            } else if (std::find(changed_.begin(), changed_.end(), id) != changed_.end()) {
                tail_.unsynced.push_back({id, 0, 0});
            }
        }
    }

    // Without a checkpoint: our writers leave no more than that.
    Position lowest_unsynced() const {
        const std::uint32_t last = tail_.segment->id();
        // After a failed sync, no limit held segments back.
        const bool ours = control_.geometry().keyed() && control_.sync_errno() == 0;
        return {ours && last > kUnsyncedMost ? last - kUnsyncedMost : 0, 0};
    }

    // Every segment below the one to append to is over. Reads only headers: this is the one part of
    // opening that reads all segments, at a few microseconds each.
    void seal_below() {
        assert(tail_.segment && tail_.index);
        for (std::uint32_t id : ids_) {
            if (id >= tail_.segment->id()) break;
            format::SegmentHeader header{};
            const File file(layout_.segment(id), O_RDONLY);
            if (file.read_at(&header, sizeof header, 0) != sizeof header) continue;
            if ((header.flags & format::kSegmentSealed) != 0) continue;
            open(id).seal();
            changed_.push_back(id);
        }
    }

    // A segment past the end with content but no valid record would mislead seeks until the writer
    // gets there. No reader is in it: a reader never leaves a segment that is open.
    void set_aside_ahead() {
        bool any = false;
        for (std::uint32_t id : unfinished_) {
            if (id <= tail_.segment->id()) continue;
            const std::string kept = layout_.free_damaged_name(id);
            rename_over(layout_.segment(id), kept);
            tail_.report.push_back(
                "segment " + std::to_string(id) +
                " is past the end of the log and was not empty; it has been renamed to " + kept);
            any = true;
        }
        if (any) sync_directory(layout_.root);
    }

    // An index may have reached the disk although its records have not. It is consistent in itself,
    // and would hide the new records from seeks until the index thread has rewritten it.
    void drop_outlived_indexes() {
        const std::uint32_t current = tail_.segment->id();
        bool dropped = false;
        if (const auto index = load_index(layout_, *tail_.segment);
            index && !index->entries.empty() &&
            (index->complete || index->max_seq >= tail_.next_seq ||
             index->entries.back().offset >= tail_.offset)) {
            dropped = files_.drop_index(current);
        }
        for (std::uint32_t id : layout_.indexes()) {
            if (id > current) dropped = files_.drop_index(id) || dropped;
        }
        if (dropped) sync_directory(layout_.root);
    }

    // A loss of power may take records that a reader has committed past: its file's page was
    // written back, the segment's was not. New records will be written before its committed
    // position, so it is moved back to the end of the log. A reader that is open has found its
    // position itself.
    void call_back_readers() {
        const Position end{tail_.segment->id(), tail_.offset};
        std::optional<DirectoryLock>
            quiet;  // SYNC registration: no reader is between its name and its position
        for (const std::string& name : layout_.reader_names()) {
            try {
                auto state = read_reader_state(layout_.reader_meta(name));
                if (!state || !lies_beyond(*state, end)) continue;
                if (!quiet) {
                    quiet.emplace(layout_.readers(), LOCK_EX, 1'000'000'000);
                    state = read_reader_state(layout_.reader_meta(name));
                    if (!state || !lies_beyond(*state, end)) continue;
                }
                ReaderMeta meta(layout_, name, ReaderMeta::Open::existing);
                meta.commit(end, state->pinned);
                meta.sync();
                tail_.report.push_back("reader '" + name +
                                       "' had committed past the end of the log (" +
                                       place(state->position) + "): it continues at the end");
            } catch (const Error& e) {
                if (e.code == Errc::reader_already_active) continue;
                tail_.report.push_back("reader '" + name + "' could not be checked: " + e.message +
                                       " (" + e.path + ")");
            }
        }
    }

    // An impossible position is left for the reader to reject.
    bool lies_beyond(const ReaderState& state, Position end) const {
        return state.generation != 0 && end < state.position &&
               state.position.segment <= format::kSegmentIdMax &&
               is_record_boundary(state.position.offset, control_.segment_bytes());
    }

    static std::string place(Position at) {
        return "segment " + std::to_string(at.segment) + ", offset " + std::to_string(at.offset);
    }

    const Layout& layout_;
    Control& control_;
    const RecoveryOptions& options_;
    std::vector<std::uint32_t> ids_ = layout_.segments();
    RecoveredTail tail_;
    std::optional<TailCheckpoint> checkpoint_ =
        load_tail_checkpoint(layout_, control_.geometry().key);
    RecoveryFiles files_{layout_, control_.geometry(), checkpoint_, options_.sparse,
                         ids_,    tail_.report};
    std::vector<std::uint32_t> changed_;     // by this recovery, in any way
    std::vector<std::uint32_t> unfinished_;  // after the last record, and not empty
    std::optional<Numbering> numbers_;       // of the part scanned so far
    bool accepted_ = false;                  // any record of that part
    std::vector<UnsyncedSpan> scanned_;      // any of them may contain repairs
};

}  // namespace

RecoveredTail recover(const Layout& layout, Control& control, const RecoveryOptions& options) {
    RecoveredTail tail = Recovery(layout, control, options).run();
    // After all repairs: if this process is killed during them, the next recovery still finds how
    // far the previous writer had come.
    control.publish_position(tail.segment->id(), tail.offset);
    return tail;
}

}  // namespace tapewire::queue
