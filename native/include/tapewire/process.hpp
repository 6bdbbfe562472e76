// Facts about processes: which descriptors and handles a forked child must give up, and whether
// another process is still the one that it claims to be.
//
// After fork the child holds copies of every descriptor. An inherited flock would outlive its
// owner, so the child closes all of Tapewire's descriptors at once, and every inherited handle
// rejects calls.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>

namespace tapewire {

namespace detail {
extern std::atomic<std::uint32_t> fork_generation;
}

// Changes in a forked child and never otherwise.
inline std::uint32_t fork_generation() noexcept {
    return detail::fork_generation.load(std::memory_order_relaxed);
}

// Opens or closes a descriptor that a forked child must not keep. Atomic with respect to fork: a
// child either does not have the descriptor or knows that it must close it.
int open_descriptor(const char* path, int flags, unsigned mode) noexcept;
int open_eventfd() noexcept;  // non-blocking, empty
int open_timerfd() noexcept;  // of the monotonic clock, non-blocking
int open_epoll() noexcept;
void close_descriptor(int fd) noexcept;
void disown_descriptor(int fd) noexcept;  // if other code closes it

// A handle whose fast path must be disabled in a forked child. `on_forked` runs in the child before
// anything else; it may only store to plain members.
class ForkAware {
  public:
    ForkAware();
    ForkAware(const ForkAware&) = delete;
    ForkAware& operator=(const ForkAware&) = delete;
    bool forked() const noexcept { return born_ != fork_generation(); }
    virtual void on_forked() noexcept {}  // not pure: a fork may occur during our own constructor

  protected:
    virtual ~ForkAware();

  private:
    friend struct ForkRegistry;
    std::uint32_t born_;
    ForkAware* next_ = nullptr;
    ForkAware* prev_ = nullptr;
};

// Field 22 of /proc/PID/stat, counted after the last ')': a process may be named "a) b (c". Empty
// if there is no such process, or it is a zombie.
std::optional<std::uint64_t> process_start_ticks(std::int64_t pid);

// Of the running kernel: differs after a reboot, which loses the page cache. All zero if it cannot
// be read.
using BootId = std::array<std::uint8_t, 16>;
const BootId& boot_id() noexcept;
// Inode of this process's pid namespace: pids from another namespace cannot be compared. 0:
// unknown.
std::uint64_t pid_namespace() noexcept;

}  // namespace tapewire
