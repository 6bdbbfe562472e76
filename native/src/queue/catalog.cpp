#include "tapewire/queue/catalog.hpp"

#include <fcntl.h>

#include "tapewire/error.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

const std::vector<std::uint32_t>& Catalog::ids() {
    if (ids_.empty() || !file_exists(layout_.segment(ids_.front()))) {
        ids_ = layout_.segments();
        facts_.erase(facts_.begin(),
                     ids_.empty() ? facts_.end() : facts_.lower_bound(ids_.front()));
        return ids_;
    }
    while (file_exists(layout_.segment(ids_.back() + 1))) ids_.push_back(ids_.back() + 1);
    return ids_;
}

// Empty if its header is damaged: then nothing is known about it, and entering it reports that.
std::optional<Segment> Catalog::open(std::uint32_t id) const {
    try {
        auto segment = Segment::open(layout_, geometry_, id, Mapping::Access::read_only);
        if (!segment) throw Error(Errc::segment_missing, "segment is missing", layout_.segment(id));
        return segment;
    } catch (const Error& e) {
        if (e.code != Errc::corrupt_metadata) throw;
        return std::nullopt;
    }
}

// Without a header check: another implementation wrote it, and may assign its sequence numbers
// again.
bool Catalog::is_foreign(const format::RecordHeader& header) const noexcept {
    return !geometry_.keyed() && header.header_check == 0;
}

const Catalog::Facts& Catalog::first_record(std::uint32_t id) {
    Facts& facts = facts_[id];
    if (facts.first_seq || facts.empty) return facts;
    // The usual case needs 64 bytes of the file, not a mapping.
    std::optional<File> file;
    try {
        file = open_segment_file(layout_, id, O_RDONLY);
    } catch (const Error& e) {
        if (e.code != Errc::corrupt_metadata) throw;
        return facts;
    }
    if (!file) throw Error(Errc::segment_missing, "segment is missing", layout_.segment(id));
    alignas(8) std::byte header[format::kRecordHeaderBytes];
    const Commit commit = Commit::read(*file, format::kSegmentDataOffset, header);
    if (!commit) {
        const std::size_t got = file->read_at(header, sizeof header, format::kSegmentDataOffset);
        if (got != sizeof header || all_zero(header, sizeof header)) return facts;
    } else if (commit.header().type_id != format::kPadType &&
               check_header(commit, HeaderSeed(geometry_.key, id), format::kSegmentDataOffset,
                            geometry_.segment_bytes) == Fault::none) {
        facts.first_seq = commit.header().seq;
        facts.foreign = is_foreign(commit.header());
        return facts;
    }
    const auto segment = open(id);
    if (!segment) return facts;
    if (Walk walk = walk_from_start(layout_, geometry_, *segment); walk.step()) {
        facts.first_seq = walk.header().seq;
        facts.foreign = is_foreign(walk.header());
    } else {
        facts.empty = segment->sealed();
    }
    return facts;
}

std::optional<std::uint64_t> Catalog::max_ts(std::uint32_t id) {
    Facts& facts = facts_[id];
    if (facts.max_ts_ns) return facts.max_ts_ns;
    if (const auto index = load_index(layout_, geometry_, id); index && index->complete) {
        if (!index->entries.empty()) facts.max_ts_ns = index->times.max_ns;
        return facts.max_ts_ns;
    }
    const auto segment = open(id);
    if (!segment || !segment->sealed()) return std::nullopt;
    TimeRange times;
    bool any = false;
    for (Walk walk = walk_from_start(layout_, geometry_, *segment); walk.step(); any = true) {
        times.add(walk.header().timestamp_ns);
    }
    if (any) facts.max_ts_ns = times.max_ns;
    return facts.max_ts_ns;
}

}  // namespace tapewire::queue
