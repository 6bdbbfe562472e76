#include "recovery_files.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cassert>
#include <utility>

#include "tapewire/error.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

using format::kRecordHeaderBytes;
using format::kSegmentDataOffset;

// Power may be lost after a segment's name has reached the disk and before its pages have, or after
// a later segment's name has and before this one's. Such a segment was never covered by a
// flush_sync. The highest segment is removed if it is empty; a lower one becomes an empty segment,
// so that readers skip it to what follows. If only the header page was lost, the header is
// rewritten, so that the records after it can be checked.
void RecoveryFiles::repair_unborn() {
    while (!ids_.empty()) {
        const File file(layout_.segment(ids_.back()), O_RDWR);
        if (!is_unborn(file)) break;
        remove_file(file.path());
        report_.push_back("removed " + file.path() + ": none of its bytes had reached the disk");
        ids_.pop_back();
    }
    // Ascending: a rewritten header takes SPARSE from its neighbour.
    for (std::size_t i = 0; i < ids_.size(); ++i) {
        if (ids_[i] < synced_below_) continue;
        format::SegmentHeader header;
        {
            const File file(layout_.segment(ids_[i]), O_RDONLY);
            const bool complete = file.read_at(&header, sizeof header, 0) == sizeof header &&
                                  file.size() >= geometry_.segment_bytes;
            const std::byte* bytes = reinterpret_cast<const std::byte*>(&header);
            if (complete ? !all_zero(bytes, sizeof header) : !is_unborn(file)) continue;
        }
        const File file(layout_.segment(ids_[i]), O_RDWR);
        file.allocate(geometry_.segment_bytes);
        header = new_segment_header(geometry_, ids_[i], sparse_of_neighbour(i, sparse_));
        file.write_at(&header, sizeof header, 0);
        report_.push_back("the header of " + file.path() + " was lost and has been rewritten");
    }
}

// A segment whose header is damaged, or whose file was truncated, still holds its records: they
// prove by themselves that they belong there.
std::uint64_t RecoveryFiles::repair_headers() {
    std::uint64_t repaired = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
        const std::string path = layout_.segment(ids_[i]);
        try {
            Segment::open(layout_, geometry_, ids_[i], Mapping::Access::read_only);
            continue;
        } catch (const Error& e) {
            if (e.code != Errc::corrupt_metadata) throw;
        }
        keep_file(ids_[i], path);
        const File file(path, O_RDWR);
        format::SegmentHeader before{};
        file.read_at(&before, sizeof before, 0);
        if (file.size() != geometry_.segment_bytes) file.resize(geometry_.segment_bytes);
        format::SegmentHeader header = new_segment_header(geometry_, ids_[i], is_sparse(i, before));
        if (i + 1 != ids_.size()) header.flags |= format::kSegmentSealed;
        if (geometry_.keyed()) {  // the recorded end has a check of its own
            header.end_offset = before.end_offset;
            header.end_seq = before.end_seq;
            header.end_check = before.end_check;
        }
        file.write_at(&header, sizeof header, 0);
        file.sync_data();
        ++repaired;
        report_.push_back("damaged: the header of " + path +
                          " was rewritten; a copy of the original is in " + copy_path_);
    }
    return repaired;
}

void RecoveryFiles::keep_copy(const Segment& segment) {
    if (copied_ == segment.id()) return;      // in this recovery, with all the damage in it
    keep_file(segment.id(), segment.path());  // before the original is changed
}

void RecoveryFiles::keep_file(std::uint32_t id, const std::string& path) {
    const File file(path, O_RDONLY);
    const std::string kept = layout_.free_damaged_name(id);
    const std::string temp = kept + ".tmp";
    {
        const File copy(temp, O_RDWR | O_CREAT | O_TRUNC);
        std::vector<std::byte> chunk(1 << 20);
        for (std::uint64_t at = 0;;) {
            const std::size_t got = file.read_at(chunk.data(), chunk.size(), at);
            copy.write_at(chunk.data(), got, at);
            at += got;
            if (got < chunk.size()) break;
        }
        copy.sync_data();
    }
    rename_over(temp, kept);
    sync_directory(layout_.root);
    copied_ = id;
    copy_path_ = kept;
}

bool RecoveryFiles::drop_index(std::uint32_t id) {
    try {
        return remove_file(layout_.index(id));
    } catch (const Error& e) {
        report_.push_back("an obsolete index could not be removed: " + e.message + " (" + e.path +
                          ")");
        return false;
    }
}

bool RecoveryFiles::is_unborn(const File& file) const {
    return file.size() < geometry_.segment_bytes && file_is_zero(file, 0);
}

// Before the checkpoint only retention or a user removes names: nothing replaces them.
void RecoveryFiles::fill_holes(std::size_t& top) {
    assert(top < ids_.size() && std::is_sorted(ids_.begin(), ids_.end()));
    constexpr std::uint32_t kMost = 64;  // a loss of power does not cause more
    std::uint32_t filled = 0;
    for (std::size_t i = 1; i <= top; ++i) {
        const std::uint32_t missing = ids_[i - 1] + 1;
        if (ids_[i] == missing || missing < synced_below_ || ids_[i] - missing + filled > kMost)
            continue;
        place_empty_segment(layout_, geometry_, missing, sparse_of_neighbour(i, sparse_));
        report_.push_back("segment " + std::to_string(missing) +
                          " was lost and has been replaced by an empty one");
        ids_.insert(ids_.begin() + static_cast<std::ptrdiff_t>(i), missing);
        ++top;
        ++filled;
    }
    if (filled != 0) sync_directory(layout_.root);
}

// SPARSE of the segment below, which is valid already; for the lowest, of the next valid one above.
bool RecoveryFiles::sparse_of_neighbour(std::size_t i, bool otherwise) const {
    assert(i < ids_.size());
    for (std::size_t other = i == 0 ? 1 : i - 1; other < ids_.size(); ++other) {
        const File file(layout_.segment(ids_[other]), O_RDONLY);
        format::SegmentHeader header{};
        file.read_at(&header, sizeof header, 0);
        if (header.magic == format::kSegmentMagic)
            return (header.flags & format::kSegmentSparse) != 0;
        if (i != 0) break;
    }
    return otherwise;
}

// Decided by the header's own check, if only the flag is damaged; else by a neighbour, else by its
// own flag.
bool RecoveryFiles::is_sparse(std::size_t i, const format::SegmentHeader& damaged) const {
    for (const bool sparse : {false, true}) {
        if (geometry_.keyed() &&
            new_segment_header(geometry_, ids_[i], sparse).header_check == damaged.header_check)
            return sparse;
    }
    return sparse_of_neighbour(i, sparse_ || (damaged.flags & format::kSegmentSparse) != 0);
}

// The geometry of the majority of the segments with a valid header: one of them may belong to
// another queue. The checkpoint contains the key as well.
static std::optional<Geometry> geometry_of_most(const Layout& layout) {
    std::vector<std::pair<Geometry, std::size_t>> votes;
    for (const std::uint32_t id : layout.segments()) {
        const auto own = geometry_of(File(layout.segment(id), O_RDONLY), id);
        if (!own) continue;
        const auto known = std::find_if(votes.begin(), votes.end(),
                                        [&](const auto& vote) { return vote.first == *own; });
        if (known != votes.end()) {
            ++known->second;
        } else {
            const bool checkpointed =
                own->keyed() && load_tail_checkpoint(layout, own->key).has_value();
            votes.emplace_back(*own, checkpointed ? 2 : 1);
        }
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    if (most == votes.end()) return std::nullopt;
    return most->first;
}

bool fits_segments(const Layout& layout, const Geometry& geometry) {
    bool any = false;
    for (const std::uint32_t id : layout.segments()) {
        const auto own = geometry_of(File(layout.segment(id), O_RDONLY), id);
        if (!own) continue;
        if (own->key == geometry.key && own->segment_bytes == geometry.segment_bytes) return true;
        any = true;
    }
    return !any;
}

void rebuild_control(const Layout& layout) {
    std::optional<Geometry> geometry = geometry_of_most(layout);
    if (!geometry) {
        throw Error(Errc::corrupt_metadata,
                    "control.meta is damaged and no segment has a valid header", layout.control(),
                    -1, "restore control.meta or one segment from a copy");
    }
    if (!geometry->keyed()) {
        // The headers of that version do not contain it; the very first record does.
        const File first(layout.segment(layout.segments().front()), O_RDONLY);
        alignas(8) std::byte header[kRecordHeaderBytes];
        const Commit commit = Commit::read(first, kSegmentDataOffset, header);
        if (layout.segments().front() == 0 && commit &&
            check_header(commit, HeaderSeed(), kSegmentDataOffset, geometry->segment_bytes) ==
                Fault::none &&
            commit.header().type_id != format::kPadType) {
            geometry->first_seq = commit.header().seq;
        }
    }
    if (file_exists(layout.control())) {
        std::string kept = layout.control() + ".damaged";
        for (int n = 2; file_exists(kept); ++n)
            kept = layout.control() + ".damaged." + std::to_string(n);
        rename_over(layout.control(), kept);
    }
    Control::create(layout, *geometry, last_writer_epoch(layout));
}

}  // namespace tapewire::queue
