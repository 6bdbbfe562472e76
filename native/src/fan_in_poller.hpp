// The descriptor of a fan-in, for event loops: an epoll of the descriptors of its silent sources,
// of a timer for a record that is held back, and of an eventfd that is readable except while all of
// these are armed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "tapewire/fan_in.hpp"

namespace tapewire {

class FanIn::Poller {
  public:
    Poller();
    Poller(const Poller&) = delete;
    Poller& operator=(const Poller&) = delete;
    ~Poller();

    int fd() const noexcept { return epoll_; }
    int wake_fd() const noexcept { return more_; }

    // Nothing to return: makes it readable when one of these has something, or at a time of the
    // monotonic clock.
    void watch(Slot slot, Cursor& cursor, bool silent);
    void arm(std::optional<std::int64_t> at_ns);
    void forget(Slot slot) noexcept;
    void make_readable() noexcept;

  private:
    struct Watched {
        int fd = -1;
        bool on = false;
    };
    void add(int fd, std::uint32_t events) const;

    int epoll_ = -1;
    int more_ = -1;
    int timer_ = -1;
    bool armed_ = false;
    bool timer_set_ = false;
    std::vector<Watched> watched_;  // by slot
};

}  // namespace tapewire
