// writer.lock: one writer per queue. The flock decides; the text in the file says who holds it.
#pragma once

#include <cstdint>
#include <optional>

#include "tapewire/file.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

struct LockOwner {
    std::int64_t pid = 0;
    std::uint64_t start_ticks = 0;
    std::uint64_t epoch = 0;
};

// LOCK_EX, tried for 100 ms: somebody who only looks may hold it for an instant.
bool lock_patiently(const File& file);

class WriterLock {
  public:
    // Throws writer_already_active, naming the owner.
    explicit WriterLock(const Layout& layout);
    WriterLock(const WriterLock&) = delete;
    WriterLock& operator=(const WriterLock&) = delete;
    ~WriterLock();
    void announce(std::uint64_t epoch) const;  // "pid start_time_ticks epoch\n"
    // "0 0 epoch\n", at a clean end: an owner named in the file whose lock nobody holds was killed.
    void withdraw() const noexcept;

  private:
    void take() const;
    void write(const LockOwner& owner) const;

    File file_;
};

struct LockLook {
    bool held = false;
    std::optional<LockOwner> owner;  // as written; may be stale or unreadable
};

// Looks without disturbing: takes a shared lock for an instant.
LockLook look_at_writer_lock(const Layout& layout);

std::optional<LockOwner> parse_lock_owner(const std::string& text);

}  // namespace tapewire::queue
