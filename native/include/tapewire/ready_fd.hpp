// A descriptor that is readable while its reader may have something to read: for event loops.
//
// An eventfd, and one thread that sleeps on behalf of the reader. It is readable initially, so the
// loop calls the reader, which reads to the end and arms it there: only then is the eventfd
// drained, and the thread makes it readable again as soon as one of the watched words changes. If a
// reader stops before the end, it stays readable. Appending and reading are not affected.
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
    // A word of shared memory, and its value when there was nothing to read.
    struct Word {
        const std::uint32_t* at = nullptr;
        std::uint32_t then = 0;
    };
    struct Watch {
        std::uint32_t heard = 0;      // of the bell; read before the last check for a record
        std::array<Word, 3> words{};  // tested once a second, or every millisecond without a bell
        MappingRef owner;             // of those words
    };

    // `bell` is the futex word that a writer rings, in `bell_owner`; null if it cannot be waited
    // on.
    ReadyFd(std::uint32_t* bell, MappingRef bell_owner);
    ReadyFd(const ReadyFd&) = delete;
    ReadyFd& operator=(const ReadyFd&) = delete;
    // Wakes any poll of a copy of the descriptor, then closes it.
    ~ReadyFd();

    int fd() const noexcept { return fd_; }

    // For the reader's thread only.
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
    Watch watch_;                // this and the next two: under the mutex
    std::uint32_t changes_ = 0;  // futex word of the thread while nothing is watched
    bool stop_ = false;
    std::atomic<bool> armed_{false};  // written under the mutex
    std::thread thread_;
};

}  // namespace tapewire
