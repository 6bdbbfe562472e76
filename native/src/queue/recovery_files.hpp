// Recovery of a queue's files, before the records in them are examined: segments that a loss of
// power left incomplete, names that are missing, headers that are damaged, and copies made before a
// repair. Internal to recovery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/queue/recovery.hpp"

namespace tapewire::queue {

class RecoveryFiles {
  public:
    // `ids` are the queue's segments, ascending, and are kept up to date; `report` gets a line for
    // each action.
    RecoveryFiles(const Layout& layout, const Geometry& geometry,
                  const std::optional<TailCheckpoint>& checkpoint, bool sparse,
                  std::vector<std::uint32_t>& ids, std::vector<std::string>& report)
        : layout_(layout),
          geometry_(geometry),
          synced_below_(checkpoint ? checkpoint->position.segment : 0),
          sparse_(sparse),
          ids_(ids),
          report_(report) {}

    void repair_unborn();
    std::uint64_t repair_headers();  // returns how many
    // A name may be missing between the checkpoint's segment and the last record, which is in
    // `top`.
    void fill_holes(std::size_t& top);
    // Copies the segment under another name before it is repaired. Once for each segment.
    void keep_copy(const Segment& segment);
    bool drop_index(std::uint32_t id);  // false: there was none, or it could not be removed
    bool has_copied(std::uint32_t id) const noexcept { return copied_ == id; }
    const std::string& last_copy() const noexcept { return copy_path_; }

  private:
    bool is_unborn(const File& file) const;
    bool is_sparse(std::size_t i, const format::SegmentHeader& damaged) const;
    bool sparse_of_neighbour(std::size_t i, bool otherwise) const;
    void keep_file(std::uint32_t id, const std::string& path);

    const Layout& layout_;
    Geometry geometry_;
    std::uint64_t synced_below_;  // every segment below is on disk, with its name
    bool sparse_;                 // for a queue in which no segment shows it
    std::vector<std::uint32_t>& ids_;
    std::vector<std::string>& report_;
    std::uint64_t copied_ = ~std::uint64_t{0};  // the segment that was copied last
    std::string copy_path_;
};

}  // namespace tapewire::queue
