// Reader: moving to a sequence number, a time, the start, the end, and past damage.
#include <algorithm>
#include <cassert>

#include "tapewire/error.hpp"
#include "tapewire/queue/reader.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

namespace {

// The last entry that satisfies `before` and whose record matches it; empty: the segment's start.
template <class Before>
std::optional<std::uint64_t> place_by_index(const Layout& layout, const Segment& segment,
                                            bool by_time, Before before) {
    const auto index = load_index(layout, segment);
    if (!index || (by_time && !index->running_max)) return std::nullopt;
    const auto& entries = index->entries;
    auto it = std::partition_point(entries.begin(), entries.end(), before);
    // A few wrong entries are damage; if there are more, the index as a whole is not trusted.
    for (int tries = 0; tries < 64 && it != entries.begin(); ++tries) {
        --it;
        if (before(*it) && entry_is_right(segment, *it)) return it->offset;
    }
    return std::nullopt;
}

// A walk from that entry on.
template <class Before>
Walk walk_by_index(const Layout& layout, const Geometry& geometry, const Segment& segment,
                   bool by_time, Before before) {
    if (const auto offset = place_by_index(layout, segment, by_time, before)) {
        return Walk(segment, *offset);
    }
    return walk_from_start(layout, geometry, segment);
}

// Retention may remove a segment during the search: start again with what remains.
constexpr int kTries = 10;

// A segment with such an error is skipped by skip_damaged().
bool cannot_be_entered(Errc code) noexcept {
    return code == Errc::corrupt_metadata || code == Errc::unsupported_version;
}

[[noreturn]] void throw_gone() { throw Error(Errc::segment_missing, "segment is missing"); }

}  // namespace

// A seek that fails leaves the reader where it was.
template <class Seek>
bool Reader::or_stay(Seek seek) {
    check_usable();
    if (const std::uint64_t epoch = control_.writer_epoch(); epoch != catalog_epoch_) {
        catalog_.forget_all();  // recovery may have replaced segments under the same ids
        catalog_epoch_ = epoch;
    }
    const Segment before = segment_.share();  // keeps its mapping: the file may be deleted by then
    const std::uint64_t offset = offset_;
    const std::uint64_t expected = expected_;
    const auto last = last_seq_;
    for (int tries = 0;; ++tries) {
        try {
            const bool found = seek();
            if (ready_) ready_->make_readable();
            return found;
        } catch (const Error& e) {
            const bool again = e.code == Errc::segment_missing && tries < kTries;
            if (again) {
                catalog_.forget();
                continue;
            }
            if (before.map()) {
                enter(before.share(), offset);
            } else {
                stand_before(before.id(), offset);
            }
            expected_ = expected;
            last_seq_ = last;
            if (e.path.empty()) throw_segment_missing(segment_.id());
            throw;
        }
    }
}

// Moves to `offset` of segment `id`. True if a record, or damage, is there or after it.
bool Reader::settle(std::uint32_t id, std::uint64_t offset, bool from_start) {
    if (!come_to(id, offset)) throw_gone();
    expected_ = kAnySeq;
    unnumbered_ = {};
    hint_seen_at_ = 0;
    last_seq_.reset();
    if (is_outside()) return true;
    // A seek to a later sequence number or time does not ask what is missing before it.
    if (from_start) expect_first_number();
    for (;;) {
        if (offset_ + kRecordHeaderBytes <= end_) {
            if (const Commit commit = Commit::at(base_ + offset_)) {
                const bool pad = check_header(commit, seed_, offset_, end_) == Fault::none &&
                                 commit.header().type_id == format::kPadType;
                if (!pad) return true;  // a record, or damage that the next call will report
                pass_unnumbered(commit.record_bytes(),
                                {segment_.id(), offset_ + commit.record_bytes()});
                offset_ += commit.record_bytes();
                continue;
            }
            // Something incomplete where nothing more can be written: the next call will report it.
            if (!rest_of_header_is_zero(base_ + offset_) && (segment_.sealed() || passed_over()))
                return true;
        }
        try {
            if (!leave_segment()) return false;
        } catch (const Error& e) {
            // Records are lost here, or the header of the next segment is damaged: the next call
            // reports it.
            if (e.code != Errc::corrupt_metadata && e.code != Errc::corrupt_record) throw;
            return true;
        }
    }
}

bool Reader::seek_start() {
    return or_stay([this] {
        catalog_.forget();
        const auto ids = catalog_.ids();
        if (ids.empty()) {
            throw Error(Errc::segment_missing, "the queue has no segment", layout_.root, -1,
                        "restore the segments from a copy, or open a writer, which starts with an "
                        "empty queue");
        }
        return settle(ids.front(), kSegmentDataOffset, true);
    });
}

void Reader::seek_end() {
    or_stay([this] {
        find_end();
        return false;
    });
}

// A damaged segment in which nothing can have been written yet: the log ends before it. If neither
// SEALED of the segment before nor the writer's hint leads there, it was only published ahead.
bool Reader::is_only_prepared(std::uint32_t id) const {
    if (id == 0 || control_.current_segment() >= id) return false;
    const auto below = open_or_nothing(layout_, geometry(), id - 1);
    return below && !below->sealed();
}

void Reader::find_end() {
    const auto ids = catalog_.ids();
    for (std::size_t i = ids.size(); i-- > 0;) {
        if (!come_to(ids[i], kSegmentDataOffset)) throw_gone();
        if (is_outside()) {
            if (i != 0 && is_only_prepared(ids[i])) continue;
            expected_ = kAnySeq;
            last_seq_.reset();
            return;
        }
        Walk walk =
            walk_by_index(layout_, geometry(), segment_, false, [](const auto&) { return true; });
        bool any = false;
        CandidateBudget budget(end_);
        for (;;) {
            while (walk.step()) any = true;
            offset_ = walk.offset();
            // A single word that became 0 ends the walk as well: the log ends after what follows
            // it.
            if (offset_ + kRecordHeaderBytes > end_ || !lost_here()) break;
            const std::uint64_t found =
                find_right_record(search_after(segment_, offset_), offset_, walk.numbers(), budget);
            if (found == end_) break;
            walk = Walk(segment_, found, walk.numbers());
        }
        if (i != 0 && (!any || lies_ahead(layout_, geometry(), segment_)))
            continue;  // still empty, or not part of the log
        expected_ = kAnySeq;
        last_seq_.reset();
        return;
    }
    throw_gone();
}

bool Reader::seek_seq(std::uint64_t seq) {
    return or_stay([this, seq] { return find_seq(seq); });
}

bool Reader::find_seq(std::uint64_t seq) {
    const auto ids = catalog_.ids();
    assert(std::is_sorted(ids.begin(), ids.end()));
    if (ids.empty()) throw_gone();
    if (catalog_.first_record(ids.front()).foreign) return seek_newest_run(seq);
    // The last segment whose first sequence number is not too high; empty ones are only at the end,
    // and a segment with nothing but PADs counts with its successor.
    const auto beyond = [&](std::size_t i) {
        for (; i < ids.size(); ++i) {
            if (const auto& facts = catalog_.first_record(ids[i]); facts.first_seq) {
                return *facts.first_seq > seq;
            }
        }
        return true;
    };
    std::size_t low = 0, high = ids.size();
    while (low < high) {
        const std::size_t middle = (low + high) / 2;
        if (beyond(middle)) {
            high = middle;
        } else {
            low = middle + 1;
        }
    }
    if (low == 0) return settle(ids.front(), kSegmentDataOffset, seq <= first_seq());
    const std::uint32_t id = ids[low - 1];
    if (!come_to(id, kSegmentDataOffset)) throw_gone();
    if (is_outside()) return settle(id, kSegmentDataOffset);
    Walk walk = walk_by_index(layout_, geometry(), segment_, false,
                              [seq](const auto& entry) { return entry.seq <= seq; });
    while (walk.step()) {
        if (walk.header().seq < seq) {
            walk.forget_damage();
            continue;
        }
        // The wanted sequence number may be in a damaged place: move there, so that next() reports
        // it.
        const bool hidden = walk.header().seq > seq && walk.damage() != 0;
        return settle(id, hidden ? walk.damage() : walk.offset());
    }
    return settle(id, walk.offset());
}

// Another implementation restarts its sequence numbers with each writer: search from the end for
// the last place where they decrease, then walk forward from there.
bool Reader::seek_newest_run(std::uint64_t seq) {
    const auto ids = catalog_.ids();
    std::uint32_t run_id = ids.front();
    std::uint64_t run_offset = kSegmentDataOffset;
    std::uint64_t first_behind = kAnySeq;  // first sequence number of the segments examined so far
    for (std::size_t i = ids.size(); i-- > 0;) {
        if (!enter_id(ids[i], kSegmentDataOffset)) throw_gone();
        std::uint64_t last = 0;
        std::uint64_t first = kAnySeq;
        std::uint64_t fall = 0;
        for (Walk walk(segment_, kSegmentDataOffset); walk.step(); last = walk.header().seq) {
            if (first == kAnySeq) {
                first = walk.header().seq;
            } else if (walk.header().seq <= last) {
                fall = walk.offset();
            }
        }
        if (first == kAnySeq) continue;
        if (first_behind != kAnySeq && last >= first_behind)
            break;  // the run begins in the next one
        run_id = ids[i];
        run_offset = fall != 0 ? fall : kSegmentDataOffset;
        if (fall != 0) break;
        first_behind = first;
    }
    for (std::uint32_t id : ids) {
        if (id < run_id) continue;
        if (!enter_id(id, kSegmentDataOffset)) throw_gone();
        Walk walk(segment_, id == run_id ? run_offset : kSegmentDataOffset);
        while (walk.step()) {
            if (walk.header().seq >= seq) return settle(id, walk.offset());
        }
    }
    find_end();
    return false;
}

bool Reader::seek_time(std::int64_t timestamp_ns) {
    const std::uint64_t wanted = timestamp_ns < 0 ? 0 : static_cast<std::uint64_t>(timestamp_ns);
    return or_stay([this, wanted] { return find_time(wanted); });
}

bool Reader::find_time(std::uint64_t wanted) {
    const auto ids = catalog_.ids();
    for (std::uint32_t id : ids) {
        if (const auto highest = catalog_.max_ts(id); highest && *highest < wanted) continue;
        if (!come_to(id, kSegmentDataOffset)) throw_gone();
        if (is_outside()) return settle(id, kSegmentDataOffset);
        Walk walk = walk_by_index(layout_, geometry(), segment_, true, [wanted](const auto& entry) {
            return entry.timestamp_ns < wanted;
        });
        for (;;) {
            while (walk.step()) {
                if (walk.header().timestamp_ns < wanted) {
                    walk.forget_damage();
                    continue;
                }
                // The wanted record may be in the damage before it: next() reports it.
                return settle(id, walk.damage() != 0 ? walk.damage() : walk.offset());
            }
            // A single word that became 0 ends the walk as well: the wanted record may follow it.
            offset_ = walk.offset();
            if (offset_ + kRecordHeaderBytes > end_ || !lost_here()) break;
            if (!Commit::at(base_ + offset_)) return settle(id, offset_);
            if (check_record(Commit::at(base_ + offset_), seed_, offset_, end_) != Fault::none)
                break;                                       // damage without a record after it
            walk = Walk(segment_, offset_, walk.numbers());  // committed just now
        }
    }
    find_end();
    return false;
}

// If a committed position is not a boundary between two records, nothing acknowledged as durable is
// between it and the last valid record before it: a loss of power took what was there, and recovery
// may have put a PAD over it, or new records. Move to after that record; the loss is then reported.
void Reader::stand_on_the_log() {
    assert(!is_outside() && is_record_boundary(offset_, end_));
    const std::uint64_t committed = offset_;
    const std::uint32_t id = segment_.id();
    unnumbered_ = {};
    std::uint64_t last = 0;  // the last record that begins before the position
    Walk walk = walk_by_index(layout_, geometry(), segment_, false,
                              [committed](const auto& entry) { return entry.offset <= committed; });
    std::optional<Numbering> numbers = walk.numbers();
    bool more = false;
    if (!lies_ahead(layout_, geometry(), segment_)) {
        CandidateBudget budget(end_);
        for (;;) {
            more = walk.step();
            if (!more && walk.offset() < committed) {
                // A walk ends at zeros; records may follow them, by which the position was reached.
                const std::uint64_t found = find_right_record(
                    search_after(segment_, walk.offset()), walk.offset(), walk.numbers(), budget);
                if (found == end_) break;
                walk = Walk(segment_, found, walk.numbers());
                continue;
            }
            if (!more || walk.offset() >= committed) break;
            last = walk.offset();
            numbers = walk.numbers();
        }
    }
    if (more && walk.offset() == committed && committed != kSegmentDataOffset) return;
    if (last != 0) {
        const auto after = static_cast<std::uint64_t>(numbers->counted_to);
        if (after > committed) {
            offset_ = last;  // inside a record: it was not there when the position was committed
            return;
        }
        expected_ = numbers->next;
        // At the end of a sealed segment nothing more is written: what was skipped there stays
        // skipped.
        if (committed == end_ && segment_.sealed()) {
            pass_unnumbered(committed - after, position());
        } else {
            offset_ = after;
        }
        return;
    }
    offset_ = kSegmentDataOffset;
    if (more) {
        // To the first record of the segment: a loss before it is reported by means of the earlier
        // segments.
        if (numbers) expected_ = numbers->next;
        return;
    }
    // This segment has no records. The log continues here if the previous one is over; otherwise it
    // ends there.
    for (std::uint32_t below = id; below-- > 0;) {
        auto segment = open_or_nothing(layout_, geometry(), below);
        if (!segment) return;
        Walk tail =
            walk_by_index(layout_, geometry(), *segment, false, [](const auto&) { return true; });
        while (tail.step()) {
        }
        if (!tail.numbers() || tail.numbers()->counted_to <= std::int64_t{kSegmentDataOffset})
            continue;
        const auto after = static_cast<std::uint64_t>(tail.numbers()->counted_to);
        expected_ = tail.numbers()->next;
        if (below + 1 == id && segment->sealed()) {
            pass_unnumbered(segment->size() - after, position());
        } else {
            enter(std::move(*segment), after);
        }
        return;
    }
}

std::optional<Numbering> Reader::numbers_here() {
    if (expected_ == kAnySeq) return numbers_before(layout_, geometry(), segment_, offset_);
    const bool passed = unnumbered_.expected == expected_ && unnumbered_.to == position();
    return Numbering{expected_, static_cast<std::int64_t>(offset_) -
                                    static_cast<std::int64_t>(passed ? unnumbered_.bytes : 0)};
}

// Nothing more is written at this position: the next record is in another segment.
bool Reader::has_left() const {
    if (is_outside()) return true;
    const bool sealed = segment_.sealed();
    try {
        if (!sealed && !passed_over()) return false;
    } catch (const Error& e) {
        if (!cannot_be_entered(e.code)) throw;  // else the writer's hint is in there
    }
    if (offset_ + kRecordHeaderBytes > end_) return true;
    // SYNC seal: a record may have been committed here just before.
    if (load_commit(base_ + offset_) != 0 || !rest_of_header_is_zero(base_ + offset_)) return false;
    return !sealed || !contradicts_end(layout_, control_, segment_, offset_, true);
}

// If the segment to read next is missing or its header is damaged: moves to the next one that can
// be entered, or past all, to wait there for one.
bool Reader::skip_segments(Skipped& skipped) {
    if (!has_left()) return false;
    const std::uint32_t from = is_outside() ? segment_.id() : segment_.id() + 1;
    const auto ids = layout_.segments();
    bool damaged = false;
    std::optional<Segment> found;
    std::uint32_t to = from;
    for (auto it = std::lower_bound(ids.begin(), ids.end(), from); it != ids.end() && !found;
         ++it) {
        to = *it;
        try {
            found = Segment::open(layout_, geometry(), to, Mapping::Access::read_only);
        } catch (const Error& e) {
            if (!cannot_be_entered(e.code)) throw;
            damaged = true;
        }
    }
    if (!found && !damaged) return false;
    if (!found) ++to;
    if (to == from) return false;
    assert(to > from);
    skipped.segment = from;
    skipped.offset = 0;
    skipped.bytes = std::uint64_t{to - from} * segment_bytes();
    if (damaged && found && !found->sparse()) expect_first_of(from);
    const std::uint64_t left = is_outside() ? 0 : end_ - offset_;
    pass_unnumbered(left + skipped.bytes, {to, kSegmentDataOffset});
    if (found) {
        enter(std::move(*found), kSegmentDataOffset);
        if (damaged) count_skipped(skipped);
    } else {
        stand_before(to, kSegmentDataOffset);
    }
    return true;
}

// Expects the sequence number of the first record of a damaged segment, if none is expected yet.
// Before the bytes are counted, since they are counted from that number on.
void Reader::expect_first_of(std::uint32_t id) {
    if (expected_ != kAnySeq) return;
    if (const auto below = numbers_below(layout_, geometry(), id)) {
        expected_ = below->next;
    } else if (file_exists(layout_.segment(id))) {
        // Its first record may be valid although its header is not.
        expected_ = catalog_.first_record(id).first_seq.value_or(kAnySeq);
    }
}

// Counts the sequence numbers of the segments before this one, if it begins with a valid record.
void Reader::count_skipped(Skipped& skipped) {
    if (segment_.sparse()) return;
    const Commit commit = Commit::at(base_ + offset_);
    if (expected_ == kAnySeq || !commit || commit.header().type_id == format::kPadType ||
        check_record(commit, seed_, offset_, end_) != Fault::none ||
        commit.header().seq < expected_) {
        return;  // a gap, if any, is reported at the next valid record
    }
    skipped.numbers_known = true;
    skipped.first_seq = expected_;
    skipped.last_seq = commit.header().seq - 1;
    expected_ = commit.header().seq;
}

// The evidence that the log does not end at the reader's position, a place without a valid record.
// Empty: it does.
std::optional<LostEnd> Reader::lost_here() {
    if (segment_.sealed() || !sees_writer()) {
        // SEALED may be lost: if the log continues in the next segment, this one is over.
        const bool over = segment_.sealed() || was_entered(segment_.id() + 1);
        return contradicts_end(layout_, control_, segment_, offset_, over);
    }
    const auto hint = control_.position();
    if (hint && !control_.written_in_earlier_boot() && hint->first == segment_.id() &&
        hides_record(segment_, offset_, hint->second))
        return LostEnd{"the writer has passed this place"};
    return std::nullopt;
}

Skipped Reader::skip_damaged() {
    check_usable();
    Skipped skipped;
    skipped.segment = segment_.id();
    skipped.offset = offset_;
    if (skip_segments(skipped)) {
        if (ready_) ready_->make_readable();
        return skipped;
    }
    if (is_outside() || offset_ + kRecordHeaderBytes > end_) return skipped;
    const Commit commit = Commit::at(base_ + offset_);
    if (commit && check_record(commit, seed_, offset_, end_) == Fault::none) return skipped;
    const auto lost = lost_here();
    if (!commit && !lost && rest_of_header_is_zero(base_ + offset_)) return skipped;
    const std::uint64_t reached = lost ? lost->reached : 0;
    const std::uint64_t reached_seq = lost ? lost->next_seq : 0;
    const std::optional<Numbering> numbers = numbers_here();
    CandidateBudget budget(end_);
    const Search search = search_after(segment_, offset_);
    std::uint64_t found = find_right_record(search, offset_, numbers, budget);
    // SYNC commit: a writer commits in ascending order. Whatever was found after this place, or
    // recorded of it, was there only after a record that a writer has begun here meanwhile: that
    // record is not damaged.
    if (!commit && Commit::at(base_ + offset_)) return skipped;
    const bool known = numbers.has_value();
    if (known) expected_ = numbers->next;
    const bool gone = found == end_;
    if (gone && reached > offset_) {
        found = reached;  // nothing of it is left, and a writer continues after it
    } else if (gone && !segment_.sealed()) {
        return skipped;  // nothing valid after it yet: stay
    }
    skipped.bytes = found - offset_;
    // For the last record of a segment: the records of the next one are counted from there.
    const auto past = gone ? numbers_past(search, offset_, numbers) : std::nullopt;
    const std::uint64_t vouched_seq = past ? past->next : 0;
    const std::uint64_t next_seq =
        gone ? std::max(reached_seq, vouched_seq) : Commit::at(base_ + found).header().seq;
    std::uint64_t unnumbered = skipped.bytes;
    if (known && (!gone || next_seq > expected_)) {
        if (!segment_.sparse()) {
            skipped.numbers_known = true;
            skipped.first_seq = expected_;
            skipped.last_seq = next_seq - 1;
        }
        expected_ = next_seq;
        unnumbered =
            vouched_seq == next_seq ? found - static_cast<std::uint64_t>(past->counted_to) : 0;
    }
    assert(found > offset_ && is_record_boundary(found, end_));
    pass_unnumbered(unnumbered, {segment_.id(), found});
    offset_ = found;
    if (ready_) ready_->make_readable();
    return skipped;
}

}  // namespace tapewire::queue
