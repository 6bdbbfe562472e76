// What a reader knows about a queue's segments, for seeking: read on demand, and remembered once a
// segment is sealed and cannot change.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "tapewire/format/record.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/segment.hpp"

namespace tapewire::queue {

class Catalog {
  public:
    struct Facts {
        std::optional<std::uint64_t> first_seq;  // of the first valid record
        bool foreign = false;  // that record has no header check: written by other software
        std::optional<std::uint64_t> max_ts_ns;  // only for a sealed segment
        bool empty = false;                      // sealed, without records
    };

    Catalog(Layout layout, const Geometry& geometry)
        : layout_(std::move(layout)), geometry_(geometry) {}

    // Ids of the segments, ascending. Cheap after the first call: segments are added at the end and
    // removed at the front.
    const std::vector<std::uint32_t>& ids();
    void forget() noexcept { ids_.clear(); }  // a segment was not where it was expected
    void forget_all() noexcept {
        ids_.clear();
        facts_.clear();
    }

    // Sequence number of the first record; reads the file. Empty: the segment holds no record, or
    // its header and its first record are damaged.
    const Facts& first_record(std::uint32_t id);
    // Highest time in a sealed segment, from its index or by a scan. Empty: not sealed, or no
    // record.
    std::optional<std::uint64_t> max_ts(std::uint32_t id);

  private:
    std::optional<Segment> open(std::uint32_t id) const;
    bool is_foreign(const format::RecordHeader& header) const noexcept;

    Layout layout_;
    Geometry geometry_;
    std::vector<std::uint32_t> ids_;
    std::map<std::uint32_t, Facts> facts_;
};

}  // namespace tapewire::queue
