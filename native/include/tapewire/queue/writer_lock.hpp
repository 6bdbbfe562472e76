// A queue has one writer, which holds four locks:
//
//   writer.guard   flock. Not readable with read permission on the queue alone, so that no such
//                  process can hold it and keep the writer out. Decides between writers.
//   control.meta   an open-file-description lock for writing, which needs write permission. Without
//                  the file the queue is unusable: the lock holds if the other two are removed.
//                  Readers test it to find a live writer, without taking anything.
//   NNNNNNNNN.q    the same on the current segment and on the next one (see Segment). Also holds if
//                  control.meta is removed or replaced.
//   writer.lock    flock, as taken by earlier releases and chronicle-rs. Its text names the
//                  owner.
//
// A process with read permission only can prevent a writer from taking the last three; the writer
// then opens without them. If one of them is held and its holder cannot be determined, the owner
// named in writer.lock decides, or the heartbeat.
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

// LOCK_EX, retried for 100 ms: a process that only inspects the queue may hold it briefly.
bool lock_patiently(const File& file);

class WriterLock {
  public:
    // Throws writer_already_active, naming the owner.
    explicit WriterLock(const Layout& layout);
    WriterLock(const WriterLock&) = delete;
    WriterLock& operator=(const WriterLock&) = delete;
    ~WriterLock();
    // Takes the third lock, after control.meta is open. Throws as the constructor does.
    void bind(const Control& control);
    void announce(std::uint64_t epoch) const;  // "pid start_time_ticks epoch\n"
    // Writes "0 0 epoch\n", at a clean end: if the file names an owner and no process holds its
    // lock, that owner was killed.
    void withdraw() const noexcept;
    // Empty while each lock is on the file that other processes find under its name; otherwise the
    // file that was removed or replaced. Also retries the locks that a process without write
    // permission prevented at first.
    std::optional<std::string> lost(const Control& control) const noexcept;
    bool complete() const noexcept { return announced_locked_ && bound_; }  // no lock left to take

  private:
    [[noreturn]] void refuse() const;
    bool take_announced() const;
    void write(const LockOwner& owner) const;

    Layout layout_;
    File guard_;
    File file_;
    // Opened for the lock only: the mapping of the other descriptor keeps its open file
    // description, and would keep the lock in a forked child.
    File control_;
    mutable bool announced_locked_ = false;  // holds the flock of writer.lock
    mutable bool bound_ = false;             // holds the lock of control.meta
};

struct LockLook {
    bool held = false;
    std::optional<LockOwner> owner;  // as written; may be stale or unreadable
};

// Inspects without interfering. `control`: the queue's control.meta if it is already open.
LockLook look_at_writer_lock(const Layout& layout, const File* control = nullptr);

std::optional<LockOwner> parse_lock_owner(const std::string& text);
// From writer.lock, also after the writer was closed; 1 if it cannot be read.
std::uint64_t last_writer_epoch(const Layout& layout);

}  // namespace tapewire::queue
