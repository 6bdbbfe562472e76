// A descriptor that is readable while its reader may have something to read: for event loops.
//
// An eventfd, and one thread that sleeps where the reader would. It is readable from the start, so
// the loop calls the reader, which reads to the end and there arms it: only then is the descriptor
// emptied, and the thread fills it again as soon as one of the watched words changes. A reader that
// stops before the end leaves it readable. Appending and reading know nothing of all this.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <thread>

#include "tapewire/mapping.hpp"

namespace tapewire {

class ReadyFd {
  public:
    // A word of shared memory, and what it held when there was nothing to read.
    struct Word {
        const std::uint32_t* at = nullptr;
        std::uint32_t then = 0;
    };
    struct Watch {
        std::uint32_t heard = 0;      // of the bell; read before the last look for a record
        std::array<Word, 3> words{};  // tested once a second, or each millisecond without a bell
        MappingRef owner;             // of those words
    };

    // `bell` is the futex word that a writer rings, in `bell_owner`; null where it cannot be waited
    // on.
    ReadyFd(std::uint32_t* bell, MappingRef bell_owner);
    ReadyFd(const ReadyFd&) = delete;
    ReadyFd& operator=(const ReadyFd&) = delete;
    // Wakes whoever polls a copy of the descriptor, then closes it.
    ~ReadyFd();

    int fd() const noexcept { return fd_; }

    // For the reader's thread alone.
    bool watching() const noexcept { return armed_.load(std::memory_order_acquire); }
    void arm(const Watch& watch);
    void make_readable();  // the reader has moved

  private:
    void loop();
    void sleep_on(const Watch& watch) const noexcept;
    void fill() const noexcept;
    void change(bool armed, const Watch* watch);

    std::uint32_t* const bell_;
    const MappingRef bell_owner_;
    int fd_ = -1;
    std::mutex mutex_;
    Watch watch_;                // the next three: under the mutex
    std::uint32_t changes_ = 0;  // futex word of the thread while nothing is watched
    bool stop_ = false;
    std::atomic<bool> armed_{false};  // written under the mutex
    std::thread thread_;
};

}  // namespace tapewire
