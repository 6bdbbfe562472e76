#include "tapewire/queue/status.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>

#include "tapewire/format/stats.hpp"
#include "tapewire/queue/log_end.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::kSegmentDataOffset;

namespace {

std::string line_of(const Error& e) {
    std::string line = e.message;
    if (!e.path.empty()) {
        line += " [" + e.path;
        if (e.offset >= 0) line += " at offset " + std::to_string(e.offset);
        line += "]";
    }
    return line;
}

std::uint64_t size_or_zero(const std::string& path) noexcept {
    struct stat st;
    return ::lstat(path.c_str(), &st) == 0 ? static_cast<std::uint64_t>(st.st_size) : 0;
}

bool is_held(const std::string& path) {
    const auto file = File::open_existing(path, O_RDONLY);
    if (!file) return false;
    if (!file->try_lock(LOCK_SH)) return true;
    file->unlock();
    return false;
}

// Whether it has moved since the look: then it may have released the segment that was not found.
bool has_moved(const ReaderLook& reader) {
    try {
        const auto now = read_reader_state(reader.path);
        return !now || now->position != reader.state.position;
    } catch (const Error&) {
        return false;
    }
}

bool can_be(Position at, std::uint64_t segment_bytes) {
    return at.segment <= format::kSegmentIdMax && at.offset >= kSegmentDataOffset &&
           at.offset <= segment_bytes;
}

}  // namespace

std::vector<std::uint64_t> read_stats(const Layout& layout) {
    std::vector<std::uint64_t> values;
    const auto file = File::open_existing(layout.stats(), O_RDONLY);
    if (!file) return values;
    format::StatsHeader header{};
    if (file->read_at(&header, sizeof header, 0) != sizeof header || header.magic == 0)
        return values;
    const auto corrupt = [&](const char* field, std::size_t offset, std::uint64_t value) {
        return Error(Errc::corrupt_metadata,
                     std::string("stats.meta is damaged: ") + field + "=" + hex(value),
                     file->path(), static_cast<std::int64_t>(offset));
    };
    if (header.magic != format::kStatsMagic)
        throw corrupt("magic", offsetof(format::StatsHeader, magic), header.magic);
    if (header.version != format::kStatsVersion)
        throw corrupt("version", offsetof(format::StatsHeader, version), header.version);
    if (header.count > format::kStatsMost)
        throw corrupt("count", offsetof(format::StatsHeader, count), header.count);
    values.resize(std::min<std::size_t>(header.count, format::kStatCount));
    const std::size_t got =
        file->read_at(values.data(), values.size() * format::kStatBytes, sizeof header);
    values.resize(got / format::kStatBytes);
    return values;
}

std::vector<std::uint64_t> indexed_seqs(const std::string& root, std::uint32_t segment_id) {
    std::vector<std::uint64_t> seqs;
    const Layout layout{root};
    try {
        const Geometry geometry = Control::open(layout, false).geometry();
        if (const auto index = load_index(layout, geometry, segment_id)) {
            for (const auto& entry : index->entries) seqs.push_back(entry.seq);
        }
    } catch (const Error&) {
        // control.meta is damaged or missing: readers of the log report that
    }
    return seqs;
}

// Retention may remove a segment between its listing and its opening: look again, a limited number
// of times.
QueueLook QueueWatch::look() {
    constexpr int kTries = 10;
    for (int tries = 1;; ++tries) {
        retired_ = false;
        QueueLook look = look_once();
        if (!retired_ || tries == kTries) return look;
    }
}

void QueueWatch::add_problem(QueueLook& look, const Error& e, const std::string& about) {
    const bool listed = e.code == Errc::segment_missing &&
                        std::any_of(look.segments.begin(), look.segments.end(),
                                    [&](const auto& segment) { return segment.path == e.path; });
    retired_ = retired_ || listed;
    look.problems.push_back(about + line_of(e));
}

QueueLook QueueWatch::look_once() {
    QueueLook look;
    look_at_control(look);
    try {
        look.lock = look_at_writer_lock(layout_);
    } catch (const Error& e) {
        look.problems.push_back(line_of(e));
    }
    forget_if_changed(look);
    look_at_readers(look);  // before the end is determined: a reader is never past it
    look_at_segments(look);
    try {
        look.stats = read_stats(layout_);
    } catch (const Error& e) {
        look.problems.push_back(line_of(e));
    }
    if (const auto checkpoint = load_tail_checkpoint(layout_, look.geometry.key))
        look.checkpoint = checkpoint->position;
    look.temporary_files = layout_.temporary_files();
    look.damaged_copies = layout_.damaged_copies();
    if (look.version == 0) return look;
    find_end(look);
    std::map<std::string, ReaderMark> kept;
    for (ReaderLook& reader : look.readers) {
        measure_lag(look, reader);
        if (auto mark = reader_marks_.extract(reader.name)) kept.insert(std::move(mark));
    }
    reader_marks_ = std::move(kept);
    return look;
}

void QueueWatch::look_at_control(QueueLook& look) {
    try {
        const Control control = Control::open(layout_, false);
        look.version = control.version();
        look.geometry = control.geometry();
        look.sync_errno = control.sync_errno();
        look.epoch = control.writer_epoch();
        look.heartbeat_ns = control.heartbeat_ns();
        const auto position = control.position();
        look.hint.segment = position ? position->first : control.current_segment();
        look.hint.offset = position ? position->second : control.write_offset();
        control.map().check_not_lost();
    } catch (const Error& e) {
        look.version = 0;
        look.problems.push_back(line_of(e));
    }
}

// Recovery may have changed what was remembered, or another queue may be in the directory now.
void QueueWatch::forget_if_changed(const QueueLook& look) {
    Identity now;
    struct statx st;
    if (::statx(AT_FDCWD, layout_.control().c_str(), AT_SYMLINK_NOFOLLOW, STATX_INO | STATX_BTIME,
                &st) == 0) {
        now.device = std::uint64_t{st.stx_dev_major} << 32 | st.stx_dev_minor;
        now.inode = st.stx_ino;
        // The inode number of a removed file is reused, often at once.
        if ((st.stx_mask & STATX_BTIME) != 0) {
            now.born_ns = static_cast<std::uint64_t>(st.stx_btime.tv_sec) * 1'000'000'000 +
                          st.stx_btime.tv_nsec;
        }
    }
    now.epoch = look.epoch;
    now.segment_bytes = look.geometry.segment_bytes;
    now.key = look.geometry.key;
    if (look.lock.owner) {
        now.pid = look.lock.owner->pid;
        now.start_ticks = look.lock.owner->start_ticks;
    }
    if (catalog_ && now == identity_) return;
    identity_ = now;
    catalog_.emplace(layout_, look.geometry);
    sealed_.clear();
    totals_.clear();
    reader_marks_.clear();
    tail_ = {};
    tail_last_.reset();
}

void QueueWatch::look_at_segments(QueueLook& look) {
    catalog_->forget();
    const std::vector<std::uint32_t> ids = catalog_->ids();
    const std::uint32_t lowest = ids.empty() ? 0 : ids.front();
    sealed_.erase(sealed_.begin(), sealed_.lower_bound(lowest));
    totals_.erase(totals_.begin(), totals_.lower_bound(lowest));
    const std::vector<std::uint32_t> indexes = layout_.indexes();
    for (std::uint32_t id : ids) {
        SegmentLook segment = look_at_segment(look, id);
        segment.has_index = std::binary_search(indexes.begin(), indexes.end(), id);
        look.segments.push_back(std::move(segment));
    }
    for (const SegmentLook& segment : look.segments) {
        if (segment.readable) look.sparse = segment.sparse;
    }
}

SegmentLook QueueWatch::look_at_segment(QueueLook& look, std::uint32_t id) {
    if (const auto it = sealed_.find(id); it != sealed_.end()) return it->second;
    SegmentLook seen;
    seen.id = id;
    seen.path = layout_.segment(id);
    seen.bytes = size_or_zero(seen.path);
    if (look.version == 0) return seen;  // the required length is unknown
    try {
        const Segment segment = open(look, id);
        seen.sealed = segment.sealed();
        seen.sparse = segment.sparse();
        seen.readable = true;
        seen.first_seq = catalog_->first_record(id).first_seq;
        seen.holds_records = seen.first_seq.has_value();
        if (seen.sealed) sealed_[id] = seen;
    } catch (const Error& e) {
        retired_ = retired_ || e.code == Errc::segment_missing;
        add_problem(look, e);
    }
    return seen;
}

void QueueWatch::look_at_readers(QueueLook& look) {
    for (const std::string& name : layout_.reader_names()) {
        ReaderLook reader;
        reader.name = name;
        reader.path = layout_.reader_meta(name);
        try {
            const auto state = read_reader_state(reader.path);
            if (!state) continue;  // just removed
            reader.state = *state;
            reader.alive = is_held(reader.path);
        } catch (const Error& e) {  // unknown whether it is alive: it must not be reported dead
            look.problems.push_back("reader '" + name + "': " + line_of(e));
            continue;
        }
        if (reader.state.damaged) {
            look.problems.push_back("reader '" + name +
                                    "': no slot of its file has a valid checksum [" + reader.path +
                                    "]");
        }
        look.readers.push_back(std::move(reader));
    }
}

Segment QueueWatch::open(const QueueLook& look, std::uint32_t id) const {
    auto segment = Segment::open(layout_, look.geometry, id, Mapping::Access::read_only);
    if (!segment) throw Error(Errc::segment_missing, "segment is missing", layout_.segment(id));
    return std::move(*segment);
}

void QueueWatch::find_end(QueueLook& look) {
    const auto& segments = look.segments;
    look.end = {segments.empty() ? 0 : segments.front().id, kSegmentDataOffset};
    end_known_ = true;
    for (const SegmentLook& segment : segments) {
        if (!segment.holds_records.value_or(false)) continue;
        look.first_available_seq = catalog_->first_record(segment.id).first_seq;
        break;
    }
    for (std::size_t i = segments.size(); i-- > 0;) {
        if (!segments[i].holds_records) end_known_ = false;  // the log may continue in there
        if (!segments[i].holds_records.value_or(false)) continue;
        try {
            const Segment segment = open(look, segments[i].id);
            if (i != 0 && !segments[i - 1].sealed && lies_ahead(layout_, look.geometry, segment))
                continue;
            // Without a live writer the entire segment is walked, once: damage before an entry of
            // the seek index would not be found from there.
            const std::uint64_t hint = !look.lock.held                     ? 0
                                       : look.hint.segment == segment.id() ? look.hint.offset
                                                                           : segment.size();
            const bool same = tail_.segment == segment.id() && tail_last_;
            const Tally tally =
                count_records(layout_, look.geometry, segment, segment.size(),
                              same ? std::optional(tail_.mark) : std::nullopt, hint);
            if (!same) tail_damage_ = 0;
            if (tail_damage_ == 0) tail_damage_ = tally.damage;
            if (tail_damage_ != 0) {
                look.problems.push_back("a damaged record is followed by valid ones [" +
                                        segment.path() + " at offset " +
                                        std::to_string(tail_damage_) + "]");
            }
            if (tally.last || !same) tail_last_ = tally.last;
            tail_ = {segment.id(), tally.mark};
            look.end = {segment.id(), tally.end};
            // The writer is still here: later segments were only prepared.
            if (!segment.sealed() && look.hint.segment == segment.id()) end_known_ = true;
            const bool ends_here = look.lock.held || check_end(look, segment);
            if (tail_last_ && ends_here) {  // else another record was the last one
                look.last_seq = tail_last_->seq;
                look.last_timestamp_ns = tail_last_->timestamp_ns;
            }
        } catch (const Error& e) {
            end_known_ = false;
            add_problem(look, e);
        }
        break;
    }
    if (look.sparse) return;
    if (!look.last_seq) {
        const bool empty = std::all_of(segments.begin(), segments.end(), [](const auto& segment) {
            return segment.holds_records == false;
        });
        if (empty) look.records = 0;
    } else if (look.first_available_seq && *look.first_available_seq <= *look.last_seq) {
        for (const SegmentLook& segment : segments) {
            if (!segment.holds_records.value_or(false)) continue;
            // Another implementation may restart its sequence numbers at any record.
            if (!catalog_->first_record(segment.id).foreign)
                look.records = *look.last_seq - *look.first_available_seq + 1;
            break;
        }
    }
}

// Without a live writer, the apparent end must be the real one.
bool QueueWatch::check_end(QueueLook& look, const Segment& segment) {
    const Control control = Control::open(layout_, false);
    const auto lost = contradicts_end(layout_, control, segment, look.end.offset, segment.sealed());
    if (!lost || control.writer_epoch() != look.epoch ||
        look_at_writer_lock(layout_, &control.file()).held) {
        return true;
    }
    end_known_ = false;
    look.problems.push_back("records are lost where the log seems to end: " + lost->why + " [" +
                            segment.path() + " at offset " + std::to_string(look.end.offset) + "]");
    return false;
}

std::uint64_t QueueWatch::records_of(const QueueLook& look, std::uint32_t id) {
    if (const auto it = totals_.find(id); it != totals_.end()) return it->second;
    const Segment segment = open(look, id);
    const bool sealed = segment.sealed();  // before counting: what is appended later is not counted
    const Tally tally = count_records(layout_, look.geometry, segment, segment.size(), std::nullopt,
                                      segment.size());
    if (sealed) totals_[id] = tally.mark.records;
    return tally.mark.records;
}

// For a reader that reaches a segment which cannot be read: its next sequence number follows from
// the records before.
void QueueWatch::expect_at(const QueueLook& look, ReaderLook& reader, std::uint32_t id) const {
    const bool damaged =
        std::any_of(look.segments.begin(), look.segments.end(),
                    [id](const auto& segment) { return segment.id == id && !segment.readable; });
    if (!damaged || look.sparse || !look.records) return;
    if (const auto numbers = numbers_below(layout_, look.geometry, id))
        reader.next_seq = numbers->next;
}

void QueueWatch::measure_lag(QueueLook& look, ReaderLook& reader) {
    if (reader.state.damaged) return;
    Position at = reader.state.position;
    if (reader.state.generation == 0) {
        // It has committed nothing yet: all records are ahead of it.
        at = {look.segments.empty() ? 0 : look.segments.front().id, kSegmentDataOffset};
    } else if (!can_be(at, look.geometry.segment_bytes)) {
        look.problems.push_back("reader '" + reader.name +
                                "': invalid position: segment=" + std::to_string(at.segment) +
                                ", offset=" + std::to_string(at.offset) + " [" + reader.path + "]");
        return;
    }
    const auto caught_up = [&] {
        reader.lag_records = 0;
        if (look.sparse) return;
        if (look.last_seq) {
            reader.next_seq = *look.last_seq + 1;
        } else if (look.records) {
            reader.next_seq = look.geometry.first_seq;
        }
    };
    const bool at_start = at.offset == kSegmentDataOffset;
    if (!end_known_ && at >= look.end) {  // the amount after it is unknown
        expect_at(look, reader, static_cast<std::uint32_t>(at.segment) + (at_start ? 0 : 1));
        return;
    }
    if (at >= look.end) return caught_up();
    reader.lag_segments = look.end.segment - at.segment;
    reader.lag_bytes =
        reader.lag_segments * look.geometry.segment_bytes + look.end.offset - at.offset;
    try {
        const auto id = static_cast<std::uint32_t>(at.segment);
        const auto head = static_cast<std::uint32_t>(look.end.segment);
        if (at_start) expect_at(look, reader, id);
        std::optional<Mark> known;
        if (const auto it = reader_marks_.find(reader.name);
            it != reader_marks_.end() && it->second.segment == id) {
            known = it->second.mark;
        }
        const Tally tally = count_records(layout_, look.geometry, open(look, id), at.offset, known,
                                          look.geometry.segment_bytes);
        reader_marks_[reader.name] = {id, tally.mark};
        std::optional<RecordPlace> next = tally.next;
        if (next) reader.next_seq = next->seq;
        std::uint64_t lag = (id == head ? tail_.mark.records : records_of(look, id));
        lag -= std::min(lag, tally.mark.records);
        for (std::uint32_t between = id + 1; between <= head; ++between) {
            if (!next) expect_at(look, reader, between);
            lag += between == head ? tail_.mark.records : records_of(look, between);
            if (next) continue;
            const Tally first = count_records(layout_, look.geometry, open(look, between),
                                              kSegmentDataOffset, std::nullopt, 0);
            next = first.next;
            if (next) reader.next_seq = next->seq;
        }
        if (!end_known_) return;
        if (lag == 0) {  // the rest holds no record
            reader.lag_bytes = 0;
            reader.lag_segments = 0;
            return caught_up();
        }
        reader.lag_records = lag;
        if (next && look.last_timestamp_ns && *look.last_timestamp_ns > next->timestamp_ns)
            reader.lag_ns = *look.last_timestamp_ns - next->timestamp_ns;
    } catch (const Error& e) {
        retired_ = retired_ || has_moved(reader);
        add_problem(look, e, "reader '" + reader.name + "': its lag in records is unknown: ");
    }
}

}  // namespace tapewire::queue
