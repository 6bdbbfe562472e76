#include "tapewire/ready_fd.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "tapewire/error.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/process.hpp"
#include "tapewire/thread.hpp"

namespace tapewire {

namespace {

constexpr std::int64_t kForEverNs = 3'600'000'000'000;
// A writer may have died between clearing the waiters' flag and ringing: look again after this
// time.
constexpr std::int64_t kLookAgainNs = 1'000'000'000;
constexpr std::int64_t kNapNs = 1'000'000;

bool changed(const ReadyFd::Watch& watch) noexcept {
    const bool any =
        std::any_of(watch.words.begin(), watch.words.end(), [](const ReadyFd::Word& word) {
            // atomic_ref requires a mutable word; the mapping may be read-only, and nothing is
            // stored.
            return word.at != nullptr &&
                   std::atomic_ref(*const_cast<std::uint32_t*>(word.at)).load() != word.then;
        });
    // After the loads, which detect it: in a truncated file, zeros may equal the old values.
    return any || (watch.owner && watch.owner->lost());
}

}  // namespace

ReadyFd::ReadyFd(std::uint32_t* bell, MappingRef bell_owner)
    : bell_(bell), bell_owner_(std::move(bell_owner)) {
    fd_ = open_eventfd();
    if (fd_ < 0) throw_os_error(errno, "cannot create an eventfd", "");
    fill();
    try {
        thread_ = start_thread("tw-ready", [this] { loop(); });
    } catch (...) {
        close_descriptor(fd_);
        throw;
    }
}

ReadyFd::~ReadyFd() {
    {
        std::lock_guard lock(mutex_);
        stop_ = true;
    }
    make_readable();
    // It may sleep on the shared bell: one extra ring is a spurious wake-up for all other readers.
    if (bell_ != nullptr) futex_ring(bell_);
    thread_.join();
    close_descriptor(fd_);
}

void ReadyFd::fill() const noexcept {
    const std::uint64_t one = 1;
    // A full eventfd (2^64 - 2 fillings) is readable, too: nothing to do then.
    [[maybe_unused]] const ssize_t written = ::write(fd_, &one, sizeof one);
}

void ReadyFd::change(bool armed, const Watch* watch) {
    std::lock_guard lock(mutex_);
    if (armed) {
        std::uint64_t fillings;
        [[maybe_unused]] const ssize_t n = ::read(fd_, &fillings, sizeof fillings);  // never blocks
        watch_ = *watch;
    } else {
        fill();
        watch_ = Watch();
    }
    armed_.store(armed, std::memory_order_release);
    futex_ring(&changes_);
}

void ReadyFd::arm(const Watch& watch) { change(true, &watch); }
void ReadyFd::make_readable() { change(false, nullptr); }

void ReadyFd::sleep_on(const Watch& watch) const noexcept {
    if (bell_ != nullptr) {
        futex_wait(bell_, watch.heard, kLookAgainNs);
    } else {
        const timespec nap{0, kNapNs};
        ::nanosleep(&nap, nullptr);
    }
}

void ReadyFd::loop() {
    for (;;) {
        Watch watch;  // a new copy each round: a mapping is not held longer than it is watched
        std::uint32_t seen;
        bool armed;
        {
            std::lock_guard lock(mutex_);
            if (stop_) return;
            seen = changes_;
            armed = armed_.load(std::memory_order_relaxed);
            watch = watch_;
        }
        if (!armed) {
            futex_wait(&changes_, seen, kForEverNs);
            continue;
        }
        sleep_on(watch);
        const bool rung = bell_ != nullptr &&
                          std::atomic_ref(*bell_).load(std::memory_order_seq_cst) != watch.heard;
        if (!rung && !changed(watch)) continue;
        std::lock_guard lock(mutex_);
        if (changes_ != seen) continue;  // armed again meanwhile: the observation may be stale
        watch_ = Watch();
        ++changes_;
        armed_.store(false, std::memory_order_release);
        fill();  // last: when the descriptor becomes readable, it must not be armed any more
    }
}

}  // namespace tapewire
