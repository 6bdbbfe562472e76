// Clearing up behind processes that were killed. Whoever does it holds the lock of the dead one
// meanwhile, so that a living one is never touched.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

// A queue that nobody writes, for as long as this lives.
class Upkeep {
  public:
    // Throws writer_already_active.
    explicit Upkeep(std::string root);

    // Takes the name of a killed writer out of writer.lock.
    void clear_owner() const noexcept { lock_.withdraw(); }
    std::vector<std::string> remove_temporary_files() const;

  private:
    Layout layout_;
    std::optional<Control> control_;  // one of the locks is on it; empty: it is damaged
    WriterLock lock_;
};

// Forgets a reader that is not running. False when its heartbeat is not `heartbeat_ns` any more: it
// came back since somebody looked. Throws reader_already_active, or ENOENT when there is none by
// that name.
bool remove_reader(const std::string& root, const std::string& name,
                   std::optional<std::uint64_t> heartbeat_ns);

// A line for each seek index that does not say what its segment says. They are hints: nothing is
// lost.
std::vector<std::string> wrong_indexes(const std::string& root);

}  // namespace tapewire::queue
