// One writer per queue, by four locks:
//
//   writer.guard   flock. Not readable by those who may only read the queue, so that none of them can hold
//                  it and keep the writer out. Decides between writers.
//   control.meta   an open-file-description lock for writing, which needs write permission. Cannot be
//                  removed without the queue being unusable: holds when somebody removes the other two.
//                  Readers ask by it whether a writer lives, without taking anything.
//   NNNNNNNNN.q    the same on the segment that is written and on the next one (see Segment). Holds when
//                  control.meta is removed or replaced, too.
//   writer.lock    flock, as releases before this one and chronicle-rs take it. The text in it names the
//                  owner.
//
// A process that may only read can keep a writer from the last three, and a writer opens without
// them. Where one of them is held, and nothing shows by whom, the owner named in writer.lock
// decides, or the heartbeat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "tapewire/file.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

struct LockOwner {
    std::int64_t pid = 0;
    std::uint64_t start_ticks = 0;
    std::uint64_t epoch = 0;
};

// LOCK_EX, tried for 100 ms: a process that only looks may hold it for an instant.
bool lock_patiently(const File& file);

class WriterLock {
  public:
    // Throws writer_already_active, naming the owner.
    explicit WriterLock(const Layout& layout);
    WriterLock(const WriterLock&) = delete;
    WriterLock& operator=(const WriterLock&) = delete;
    ~WriterLock();
    // The third lock, once control.meta is open. Throws as the constructor.
    void bind(const Control& control);
    void announce(std::uint64_t epoch) const;  // "pid start_time_ticks epoch\n"
    // "0 0 epoch\n", at a clean end: an owner named in the file whose lock no process holds was
    // killed.
    void withdraw() const noexcept;
    // Empty while each lock is on the file that others find under its name; else what was removed
    // or replaced. Also takes what could not be had at first because of somebody without write
    // permission.
    std::optional<std::string> lost(const Control& control) const noexcept;
    bool complete() const noexcept { return announced_locked_ && bound_; }  // nothing left to take

  private:
    [[noreturn]] void refuse() const;
    bool take_announced() const;
    void write(const LockOwner& owner) const;

    Layout layout_;
    File guard_;
    File file_;
    // Opened for the lock alone: the mapping of the other one holds its open file description, and
    // so would hold the lock in a forked child.
    File control_;
    mutable bool announced_locked_ = false;  // the flock of writer.lock is ours
    mutable bool bound_ = false;             // the lock of control.meta is ours
};

struct LockLook {
    bool held = false;
    std::optional<LockOwner> owner;  // as written; may be stale or unreadable
};

// Looks without disturbing. `control` is the queue's control.meta where it is open already.
LockLook look_at_writer_lock(const Layout& layout, const File* control = nullptr);

std::optional<LockOwner> parse_lock_owner(const std::string& text);
// As writer.lock names it, of a writer that was closed, too; 1 when that cannot be read.
std::uint64_t last_writer_epoch(const Layout& layout);

}  // namespace tapewire::queue
