// Cleans up after killed processes. Holds the lock of the dead process meanwhile, so that a live
// one is never affected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

// A queue without a writer, for as long as this object lives.
class Upkeep {
  public:
    // Throws writer_already_active.
    explicit Upkeep(std::string root);

    // Removes the name of a killed writer from writer.lock.
    void clear_owner() const noexcept { lock_.withdraw(); }
    std::vector<std::string> remove_temporary_files() const;

  private:
    Layout layout_;
    std::optional<Control> control_;  // one of the locks is on it; empty: damaged
    WriterLock lock_;
};

// Removes a reader that is not running. False if its heartbeat no longer equals `heartbeat_ns`: it
// has run since the caller looked. Throws reader_already_active, or ENOENT if there is no reader of
// that name.
bool remove_reader(const std::string& root, const std::string& name,
                   std::optional<std::uint64_t> heartbeat_ns);

// A line for each seek index that does not match its segment. Indexes are hints: no data is lost.
std::vector<std::string> wrong_indexes(const std::string& root);

}  // namespace tapewire::queue
