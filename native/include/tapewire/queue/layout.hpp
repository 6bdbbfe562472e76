// The names of a queue's files, and which of them are there.
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
    // Where a copy of this segment, or the segment itself, can be kept without replacing another.
    std::string free_damaged_name(std::uint32_t id) const;
    // Files that a killed process left half-made.
    std::vector<std::string> temporary_files() const;
    // Segments as they were before recovery mended them.
    std::vector<std::string> damaged_copies() const;
    std::vector<std::string> reader_names() const;

  private:
    std::vector<std::uint32_t> numbers_of(std::string_view suffix) const;
};

// Reader names become file names: the rule of name.hpp, as an error.
void check_reader_name(std::string_view name);

}  // namespace tapewire::queue
