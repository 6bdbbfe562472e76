// What a reader knows of a queue's segments, for seeking: looked up when needed, remembered once a
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
        std::optional<std::uint64_t> first_seq;  // of the first right record
        bool foreign = false;  // that record has no header check: written elsewhere
        std::optional<std::uint64_t> max_ts_ns;  // only of a sealed segment
        bool empty = false;                      // sealed, and holds no record
    };

    Catalog(Layout layout, const Geometry& geometry)
        : layout_(std::move(layout)), geometry_(geometry) {}

    // Ids of the segments, ascending. Cheap after the first call: segments come at the end and go
    // at the front.
    const std::vector<std::uint32_t>& ids();
    void forget() noexcept { ids_.clear(); }  // something was not where it was expected
    void forget_all() noexcept {
        ids_.clear();
        facts_.clear();
    }

    // Number of the first record; looks into the file. Empty: the segment holds no record, or
    // is damaged in its header and at its first record.
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
