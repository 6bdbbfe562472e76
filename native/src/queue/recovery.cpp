#include "tapewire/queue/recovery.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/tail_checkpoint.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

std::optional<Position> load_tail_checkpoint(const Layout& layout) {
    format::TailCheckpoint checkpoint{};
    std::size_t got = 0;
    try {
        const std::optional<File> file = File::open_existing(layout.tail_checkpoint(), O_RDONLY);
        if (file) got = file->read_at(&checkpoint, sizeof checkpoint, 0);
    } catch (const Error&) {
        return std::nullopt;  // whatever is in its place: without it the scan is longer
    }
    const bool checked = got == sizeof checkpoint &&
                         checkpoint.crc == crc32(&checkpoint, format::kTailCheckpointCheckedBytes);
    const bool foreign = got == format::kTailCheckpointCheckedBytes;  // written without a CRC
    if (!checked && !foreign) return std::nullopt;
    return Position{checkpoint.segment_id, checkpoint.offset};
}

void store_tail_checkpoint(const File& file, Position position) {
    format::TailCheckpoint checkpoint{};
    checkpoint.segment_id = position.segment;
    checkpoint.offset = position.offset;
    checkpoint.crc = crc32(&checkpoint, format::kTailCheckpointCheckedBytes);
    file.write_at(&checkpoint, sizeof checkpoint, 0);
}

namespace {

// One pass over the tail of the log, oldest segment first.
class Recovery {
  public:
    Recovery(const Layout& layout, Control& control, const RecoveryOptions& options)
        : layout_(layout), control_(control), options_(options) {}

    RecoveredTail run() {
        for (const std::string& path : layout_.temporary_files()) remove_file(path);
        ids_ = layout_.segments();
        tail_.next_seq = control_.first_seq();
        tail_.sparse = options_.sparse;
        mend_unborn();
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
            fill_holes(top);
            scan_from_checkpoint(top);
        }
        seal_below();
        list_unsynced();
        set_aside_ahead();
        drop_outlived_indexes();
        call_back_readers();
        return std::move(tail_);
    }

  private:
    static constexpr std::size_t kNone = ~std::size_t{0};

    Segment open(std::uint32_t id) {
        auto segment =
            Segment::open(layout_, id, control_.segment_bytes(), Mapping::Access::read_write);
        if (!segment)
            throw Error(Errc::segment_missing, "segment vanished during recovery",
                        layout_.segment(id));
        return std::move(*segment);
    }

    // Power may be lost after a segment's name has reached the disk and before its pages have, or after
    // a later segment's name has and before this one's. Such a segment was never covered by a
    // flush_sync. At the top one without a byte in it goes; below, it becomes an empty one, so that
    // readers pass over it to what follows. Where the header page alone was lost, the header is written
    // again, so that the records behind it can be judged.
    void mend_unborn() {
        while (!ids_.empty()) {
            const File file(layout_.segment(ids_.back()), O_RDWR);
            if (!is_unborn(file)) break;
            remove_file(file.path());
            tail_.report.push_back("removed " + file.path() +
                                   ": no byte of it had reached the disk");
            ids_.pop_back();
        }
        // From below: a header that is written again takes SPARSE from its neighbour.
        for (std::size_t i = 0; i < ids_.size(); ++i) {
            if (ids_[i] < synced_below()) continue;
            format::SegmentHeader header;
            {
                const File file(layout_.segment(ids_[i]), O_RDONLY);
                const bool whole = file.read_at(&header, sizeof header, 0) == sizeof header &&
                                   file.size() >= control_.segment_bytes();
                const std::byte* bytes = reinterpret_cast<const std::byte*>(&header);
                if (whole ? !all_zero(bytes, sizeof header) : !is_unborn(file)) continue;
            }
            const File file(layout_.segment(ids_[i]), O_RDWR);
            file.allocate(control_.segment_bytes());
            header = new_segment_header(ids_[i], sparse_of_neighbour(i));
            file.write_at(&header, sizeof header, 0);
            tail_.report.push_back("the header of " + file.path() + " was lost and written again");
        }
    }

    bool is_unborn(const File& file) const {
        return file.size() < control_.segment_bytes() && file_is_zero(file, 0);
    }

    // From the checkpoint's segment up to the last record a name may be missing. (Before the checkpoint only
    // retention or a user removes names: nothing is put into their place.)
    void fill_holes(std::size_t& top) {
        constexpr std::uint32_t kMost = 64;  // more are not what a loss of power does
        std::uint32_t filled = 0;
        for (std::size_t i = 1; i <= top; ++i) {
            const std::uint32_t missing = ids_[i - 1] + 1;
            if (ids_[i] == missing || missing < synced_below() ||
                ids_[i] - missing + filled > kMost) {
                continue;
            }
            place_empty_segment(layout_, missing, control_.segment_bytes(), sparse_of_neighbour(i));
            tail_.report.push_back("segment " + std::to_string(missing) +
                                   " was lost: an empty one takes its place");
            ids_.insert(ids_.begin() + static_cast<std::ptrdiff_t>(i), missing);
            ++top;
            ++filled;
        }
        if (filled != 0) sync_directory(layout_.root);
    }

    // Every segment below is on disk, with its name. Without a checkpoint nothing is known.
    std::uint64_t synced_below() const { return checkpoint_ ? checkpoint_->segment : 0; }

    // Of the one below, which is mended already; of the lowest, that of the next whole one above.
    bool sparse_of_neighbour(std::size_t i) const {
        for (std::size_t other = i == 0 ? 1 : i - 1; other < ids_.size(); ++other) {
            const File file(layout_.segment(ids_[other]), O_RDONLY);
            format::SegmentHeader header{};
            file.read_at(&header, sizeof header, 0);
            if (header.magic == format::kSegmentMagic)
                return (header.flags & format::kSegmentSparse) != 0;
            if (i != 0) break;
        }
        return options_.sparse;
    }

    // Whether nothing was ever written from `at` on. The file system is asked first: to read a hole through
    // the mapping takes memory for each page of it, and an archive's log is mostly hole.
    static bool is_zero_from(const Segment& segment, std::uint64_t at) {
        const std::uint64_t page = std::min((at + 4095) & ~std::uint64_t{4095}, segment.size());
        if (!all_zero(segment.data() + at, page - at)) return false;
        const std::uint64_t data = std::min(segment.file().next_data(page), segment.size());
        return all_zero(segment.data() + data, segment.size() - data);
    }

    static bool holds_record(const Segment& segment) {
        CandidateBudget budget(segment.size());
        bool chained = true;  // only PADs so far: what lies behind damage may be some payload
        for (std::uint64_t at = kSegmentDataOffset; at + kRecordHeaderBytes <= segment.size();
             at += format::kRecordAlign) {
            const std::byte* place = segment.data() + at;
            const Commit commit = Commit::at(place);
            if (!commit) {
                chained = false;
                // Mostly zeros: pass over them by the page.
                const std::uint64_t page = (at + 4095) & ~std::uint64_t{4095};
                if (at == page && at + 4096 <= segment.size() && all_zero(place, 4096)) {
                    at += 4096 - format::kRecordAlign;
                }
                continue;
            }
            const Fault fault = check_header(commit, segment.size() - at);
            if (fault == Fault::later_version && chained) refuse_later_version(segment, at, commit);
            if (fault == Fault::none && commit.header().type_id == format::kPadType) {
                // What was fenced off still lies inside.
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

    // Right, but not ours to judge: leave the log alone.
    [[noreturn]] static void refuse_later_version(const Segment& segment, std::uint64_t at,
                                                  Commit commit) {
        throw Error(Errc::unsupported_version,
                    "a record has a version this release cannot read: version=" +
                        std::to_string(commit.header().version) + ", supported=1",
                    segment.path(), static_cast<std::int64_t>(at), kVersionHint);
    }

    std::size_t highest_with_record() {
        for (std::size_t i = ids_.size(); i-- > 0;) {
            const Segment segment = open(ids_[i]);
            if (i + 1 == ids_.size()) tail_.sparse = segment.sparse();
            if (is_zero_from(segment, kSegmentDataOffset)) continue;  // prepared ahead
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
        go_on_behind(std::move(segment), end);
    }

    void scan_from_checkpoint(std::size_t top) {
        // Without a checkpoint: all of the highest segment that holds a record.
        std::size_t first = top;
        std::uint64_t synced = 0;  // in `first`, everything before this offset is on disk
        const std::optional<Position>& checkpoint = checkpoint_;
        if (checkpoint) {
            // Retention may have removed that segment itself: then from the first one there is.
            const auto it = std::lower_bound(ids_.begin(), ids_.end(), checkpoint->segment);
            const auto at = static_cast<std::size_t>(it - ids_.begin());
            first = std::min(top, at);
            if (at > top) {
                synced = control_.segment_bytes();
            } else if (*it == checkpoint->segment) {
                synced = checkpoint->offset;
            }
        }
        std::uint64_t end = scan_segments(first, top, synced);
        while (!accepted_ && first > 0) {
            // What was taken for a record is none by its number: then what lies before is the end of
            // the log, and wants to be looked at as well.
            do --first;
            while (first > 0 && !holds_record(open(ids_[first])));
            numbers_.reset();
            end = scan_segments(first, top, 0);
        }
        go_on_behind(open(ids_[top]), end);
        if (checkpoint) report_if_shorter_than(*checkpoint);
    }

    // Returns where the log ends in the last of them.
    std::uint64_t scan_segments(std::size_t first, std::size_t last, std::uint64_t synced) {
        scanned_from_ = ids_[first];
        for (std::size_t i = first;; ++i, synced = 0) {
            Segment segment = open(ids_[i]);
            const std::uint64_t end = scan(segment, synced);
            if (i == last) return end;
            fence_rest(segment, end);
            numbers_ = in_next_segment(numbers_, segment.size());
        }
    }

    void report_if_shorter_than(Position checkpoint) {
        const Position end{tail_.segment->id(), tail_.offset};
        if (!(end < checkpoint)) return;
        tail_.report.push_back("the log was on disk up to " + place(checkpoint) + " and ends at " +
                               place(end) + ": something was removed from it");
    }

    // Where to begin in the first segment, so that the next number always comes from a record.
    std::uint64_t start_of_scan(const Segment& segment, std::uint64_t synced) {
        if (synced <= kSegmentDataOffset) return kSegmentDataOffset;
        if (const auto loaded = load_index(layout_, segment.id(), segment.size());
            loaded && loaded->running_max) {
            for (std::size_t i = loaded->entries.size(); i-- > 0;) {
                const auto& entry = loaded->entries[i];
                if (entry.offset > synced || !entry_is_right(segment, entry)) continue;
                tail_.index->resume(*loaded, entry.offset);
                return entry.offset;
            }
        }
        return kSegmentDataOffset;
    }

    // Walks the records that are right; fences damage off. Returns where the log ends in this segment.
    std::uint64_t scan(Segment& segment, std::uint64_t synced) {
        tail_.index =
            std::make_unique<IndexBuilder>(segment.id(), segment.size(), options_.index_stride);
        std::uint64_t at = start_of_scan(segment, synced);
        bool indexed = tail_.index->count() != 0;  // the record to begin with has its entry already
        std::byte* base = segment.data();
        CandidateBudget budget(segment.size());
        while (at + kRecordHeaderBytes <= segment.size()) {
            const Commit commit = Commit::at(base + at);
            const Fault fault =
                commit ? check_record(commit, segment.size() - at) : Fault::uncommitted;
            if (fault == Fault::later_version) refuse_later_version(segment, at, commit);
            if (fault != Fault::none || has_no_successor(commit)) {
                if (!numbers_) {
                    // By what lies before: a payload may hold a copy of some other record.
                    numbers_ = numbers_before(layout_, control_.first_seq(), segment, at);
                    if (numbers_) tail_.next_seq = numbers_->next;
                }
                if (is_zero_from(segment, at)) return at;
                const std::uint64_t found = find_right_record(base, at, segment.size(), numbers_,
                                                              !segment.sparse(), budget);
                if (found == segment.size()) return at;
                mend(segment, at, found);
                at = found;
                continue;
            }
            const format::RecordHeader& header = commit.header();
            if (header.type_id != format::kPadType) {
                accept(header, segment, at + commit.record_bytes());
                if (!indexed) tail_.index->add(header.seq, header.timestamp_ns, at);
                indexed = false;
            }
            at += commit.record_bytes();
        }
        return at;
    }

    void accept(const format::RecordHeader& header, const Segment& segment, std::uint64_t end) {
        // Lower: another implementation's restart. Higher in a dense log: records are missing before
        // it; they cannot be brought back, and what follows is right.
        if (numbers_ && !segment.sparse() && header.seq > numbers_->next) {
            ++tail_.gaps;
            tail_.report.push_back("numbers " + std::to_string(numbers_->next) + " to " +
                                   std::to_string(header.seq - 1) + " are missing in " +
                                   segment.path());
        }
        // Ours never fall: a lower one is a copy, and no number is given twice because of it.
        const bool ours = header.header_check != 0;
        tail_.next_seq = std::max(ours && numbers_ ? tail_.next_seq : 0, header.seq + 1);
        tail_.last_record_segment = segment.id();
        numbers_ = {header.seq + 1, static_cast<std::int64_t>(end)};
        accepted_ = true;
    }

    void mend(Segment& segment, std::uint64_t at, std::uint64_t found) {
        keep_copy(segment);
        write_pad(segment.data() + at, found - at);
        ++tail_.damaged_spans;
        tail_.report.push_back("damaged: " + std::to_string(found - at) + " bytes at offset " +
                               std::to_string(at) + " of " + segment.path() +
                               " became a PAD; the segment as it was is in " + copy_path_);
    }

    void keep_copy(const Segment& segment) {
        if (copied_ == segment.id()) return;  // this time, with all the damage in it
        copied_ = segment.id();
        const std::string path = layout_.free_damaged_name(segment.id());
        copy_path_ = path;
        const std::string temp = path + ".tmp";
        {
            File copy(temp, O_RDWR | O_CREAT | O_TRUNC);
            copy.write_at(segment.data(), segment.size(), 0);
            copy.sync_data();
        }
        rename_over(temp, path);
        sync_directory(layout_.root);  // before the original is touched
    }

    // Behind the last right record of a segment that is not the last: nothing may look committed.
    void fence_rest(Segment& segment, std::uint64_t end) {
        if (is_zero_from(segment, end)) return;
        pad_rest(segment, end);
    }

    void pad_rest(Segment& segment, std::uint64_t end) {
        // What was on disk is damaged, not unfinished: it is not overwritten without a copy.
        if (checkpoint_ && Position{segment.id(), end} < *checkpoint_) keep_copy(segment);
        write_pad(segment.data() + end, segment.size() - end);
        ++tail_.pads;
        tail_.report.push_back("unfinished bytes at offset " + std::to_string(end) + " of " +
                               segment.path() + " became a PAD");
    }

    // The log ends at `end` of `segment`: append there, or go on in the next segment.
    void go_on_behind(Segment segment, std::uint64_t end) {
        for (;;) {
            const bool clean = is_zero_from(segment, end);
            if (clean && !segment.sealed()) {
                append_to(std::move(segment), end);
                return;
            }
            // The PAD comes after the next segment is there, and SEALED after that.
            tail_.index.reset();
            const std::uint32_t next = segment.id() + 1;
            if (!std::binary_search(ids_.begin(), ids_.end(), next)) {
                start_in(next);
                if (!clean) pad_rest(segment, end);
                return;
            }
            // Published ahead and without a record, but a writer may have died in its first append.
            Segment ahead = open(next);
            if (!clean) pad_rest(segment, end);
            segment = std::move(ahead);
            end = behind_pads(segment);
        }
    }

    // An earlier recovery may have fenced off all of it. Its PADs are not written again: readers may be
    // looking at them.
    static std::uint64_t behind_pads(const Segment& segment) {
        std::uint64_t at = kSegmentDataOffset;
        while (at + kRecordHeaderBytes <= segment.size()) {
            const Commit commit = Commit::at(segment.data() + at);
            if (!commit || check_record(commit, segment.size() - at) != Fault::none ||
                commit.header().type_id != format::kPadType) {
                break;
            }
            at += commit.record_bytes();
        }
        return at;
    }

    void append_to(Segment segment, std::uint64_t offset) {
        // Closing may have freed what lay behind the end, and so does a tool that copies.
        segment.file().allocate_holes(segment.size());
        tail_.sparse = segment.sparse();
        tail_.offset = offset;
        if (!tail_.index) {
            tail_.index =
                std::make_unique<IndexBuilder>(segment.id(), segment.size(), options_.index_stride);
        }
        control_.publish_position(segment.id(), offset);
        tail_.segment = std::move(segment);
    }

    void start_in(std::uint32_t id) {
        Segment segment = Segment::prepare(layout_, id, control_.segment_bytes(), tail_.sparse);
        segment.file().sync_data();
        if (!segment.publish(layout_)) {
            throw Error(Errc::corrupt_metadata, "a file is in the way of a new segment",
                        layout_.segment(id));
        }
        sync_directory(layout_.root);
        tail_.index.reset();
        append_to(open(id), kSegmentDataOffset);
        if (ids_.empty()) tail_.lowest_segment = id;
    }

    void list_unsynced() {
        for (std::uint32_t id : ids_) {
            if (id >= tail_.segment->id()) break;
            const bool touched =
                std::find(sealed_now_.begin(), sealed_now_.end(), id) != sealed_now_.end();
            if (id >= std::min<std::uint64_t>(synced_below(), scanned_from_) || touched)
                tail_.unsynced.push_back(id);
        }
    }

    // Every segment below the one to append to is over. Only headers are read: this is the one part of
    // opening that looks at all segments, at a few microseconds each.
    void seal_below() {
        for (std::uint32_t id : ids_) {
            if (id >= tail_.segment->id()) break;
            format::SegmentHeader header{};
            const File file(layout_.segment(id), O_RDONLY);
            if (file.read_at(&header, sizeof header, 0) != sizeof header) continue;
            if ((header.flags & format::kSegmentSealed) != 0) continue;
            open(id).seal();
            sealed_now_.push_back(id);
        }
    }

    // A segment ahead of the end, with something in it that is no right record, would mislead seeks until
    // the writer comes there. No reader is in it: none leaves a segment that is open.
    void set_aside_ahead() {
        bool any = false;
        for (std::uint32_t id : unfinished_) {
            if (id <= tail_.segment->id()) continue;
            const std::string kept = layout_.free_damaged_name(id);
            rename_over(layout_.segment(id), kept);
            tail_.report.push_back("segment " + std::to_string(id) +
                                   " lies ahead of the log and was not empty: it is kept as " +
                                   kept);
            any = true;
        }
        if (any) sync_directory(layout_.root);
    }

    // An index may have reached the disk when its records have not. It is right in itself, and would hide
    // the new ones from seeks until the index thread has written it again.
    void drop_outlived_indexes() {
        const std::uint32_t current = tail_.segment->id();
        bool dropped = false;
        if (const auto index = load_index(layout_, current, control_.segment_bytes());
            index && !index->entries.empty() &&
            (index->complete || index->max_seq >= tail_.next_seq)) {
            dropped = drop_index(current);
        }
        for (std::uint32_t id : layout_.indexes()) {
            if (id > current) dropped = drop_index(id) || dropped;
        }
        if (dropped) sync_directory(layout_.root);
    }

    bool drop_index(std::uint32_t id) {
        try {
            return remove_file(layout_.index(id));
        } catch (const Error& e) {
            tail_.report.push_back("an old index could not be removed: " + e.message + " (" +
                                   e.path + ")");
            return false;
        }
    }

    // A loss of power may take records that a reader has committed past: its file's page was written
    // back, the segment's was not. New records will come where it believes to have been, so it is sent
    // back to the end of the log. One that is open has found its place by itself.
    void call_back_readers() {
        const Position end{tail_.segment->id(), tail_.offset};
        std::optional<FolderLock>
            quiet;  // SYNC registration: none is between its name and its place
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
                                       place(state->position) + "): it goes on at the end");
            } catch (const Error& e) {
                if (e.code == Errc::reader_already_active) continue;
                tail_.report.push_back("reader '" + name + "' could not be looked at: " +
                                       e.message + " (" + e.path + ")");
            }
        }
    }

    // A position that cannot be at all is the reader's to refuse.
    bool lies_beyond(const ReaderState& state, Position end) const {
        return state.generation != 0 && end < state.position &&
               state.position.segment <= format::kSegmentIdMax &&
               state.position.offset >= kSegmentDataOffset &&
               state.position.offset <= control_.segment_bytes() &&
               state.position.offset % format::kRecordAlign == 0;
    }

    static std::string place(Position at) {
        return "segment " + std::to_string(at.segment) + ", offset " + std::to_string(at.offset);
    }

    const Layout& layout_;
    Control& control_;
    const RecoveryOptions& options_;
    std::vector<std::uint32_t> ids_;
    RecoveredTail tail_;
    std::optional<Position> checkpoint_ = load_tail_checkpoint(layout_);
    std::vector<std::uint32_t> sealed_now_;
    std::vector<std::uint32_t> unfinished_;  // above the last record, and not empty
    std::optional<Numbering> numbers_;       // of what was scanned so far
    bool accepted_ = false;                  // any record of it
    std::uint64_t scanned_from_ =
        ~std::uint64_t{0};                      // repairs may be in every segment from here on
    std::uint64_t copied_ = ~std::uint64_t{0};  // the segment that was copied last
    std::string copy_path_;
};

}  // namespace

RecoveredTail recover(const Layout& layout, Control& control, const RecoveryOptions& options) {
    return Recovery(layout, control, options).run();
}

}  // namespace tapewire::queue
