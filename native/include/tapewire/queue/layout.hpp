// The names of the files of a queue, and which of them exist.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tapewire::queue {

struct Layout {
    std::string root;

    std::string control() const { return root + "/control.meta"; }
    std::string writer_lock() const { return root + "/writer.lock"; }
    std::string writer_guard() const { return root + "/writer.guard"; }
    std::string tail_checkpoint() const { return root + "/index.meta"; }
    std::string stats() const { return root + "/stats.meta"; }
    std::string readers() const { return root + "/readers"; }
    std::string reader_meta(std::string_view name) const;
    std::string segment(std::uint32_t id) const;
    std::string segment_temp(std::uint32_t id) const { return segment(id) + ".tmp"; }
    std::string damaged_copy(std::uint32_t id) const { return segment(id) + ".damaged"; }
    std::string index(std::uint32_t id) const;

    // Ids of the published segments, ascending.
    std::vector<std::uint32_t> segments() const;
    std::vector<std::uint32_t> indexes() const;
    // A free name for a copy of this segment, or for the segment itself.
    std::string free_damaged_name(std::uint32_t id) const;
    // Unfinished files of a killed process.
    std::vector<std::string> temporary_files() const;
    // Copies of segments from before recovery repaired them.
    std::vector<std::string> damaged_copies() const;
    std::vector<std::string> reader_names() const;

  private:
    std::vector<std::uint32_t> numbers_of(std::string_view suffix) const;
};

// Reader names become file names: the rule of name.hpp, as an error.
void check_reader_name(std::string_view name);

}  // namespace tapewire::queue
