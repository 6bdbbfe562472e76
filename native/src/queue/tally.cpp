#include "tapewire/queue/tally.hpp"

#include <algorithm>

#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

namespace {

// Walking that far costs less than reading the index.
constexpr std::uint64_t kNearBytes = 64 * 1024;

// The last entry at or before `to` whose record matches it.
std::optional<Mark> mark_by_index(const Layout& layout, const Segment& segment, std::uint64_t to) {
    const auto index = load_index(layout, segment);
    // Other implementations may count their stride differently, and have no checksum.
    if (!index || !index->running_max) return std::nullopt;
    const auto& entries = index->entries;
    auto it = std::partition_point(entries.begin(), entries.end(),
                                   [to](const auto& entry) { return entry.offset <= to; });
    // As for seeking: a few wrong entries are damage; if there are more, the index is not trusted.
    for (int tries = 0; tries < 64 && it != entries.begin(); ++tries) {
        --it;
        if (!entry_is_right(segment, *it)) continue;
        return Mark{static_cast<std::uint64_t>(it - entries.begin()) * index->stride, it->offset,
                    std::nullopt};
    }
    return std::nullopt;
}

}  // namespace

Tally count_records(const Layout& layout, const Geometry& geometry, const Segment& segment,
                    std::uint64_t to, const std::optional<Mark>& known, std::uint64_t hint) {
    std::optional<Mark> from;
    if (known && known->offset <= to) from = known;
    const std::uint64_t begin = from ? from->offset : format::kSegmentDataOffset;
    if (std::min(to, hint) > begin + kNearBytes) {
        if (const auto mark = mark_by_index(layout, segment, to); mark && mark->offset > begin)
            from = mark;
    }
    Walk walk = from && from->offset != format::kSegmentDataOffset
                    ? Walk(segment, from->offset, from->numbers)
                    : walk_from_start(layout, geometry, segment);
    Tally tally;
    if (from) tally.mark = *from;
    while (walk.step()) {
        const format::RecordHeader& header = walk.header();
        const RecordPlace place{walk.offset(), header.seq, header.timestamp_ns};
        const auto after = static_cast<std::uint64_t>(walk.numbers()->counted_to);
        if (after > to) {
            tally.next = place;
            break;
        }
        tally.last = place;
        tally.mark = {tally.mark.records + 1, after, walk.numbers()};
    }
    tally.end = walk.offset();
    tally.damage = walk.damage();
    segment.map()->check_not_lost();  // zeros from the SIGBUS handler are not an end
    return tally;
}

}  // namespace tapewire::queue
