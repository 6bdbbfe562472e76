// FanIn: waiting for any of the sources, and for the limit on silent sources to pass.
#include <poll.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "fan_in_poller.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/futex.hpp"

namespace tapewire {

namespace {

// If no process can ring, and for sources beyond the number that one call can wait for.
constexpr std::int64_t kNapNs = 1'000'000;
// A writer may have died between clearing the waiters' flag and ringing: look again after this
// time.
constexpr std::int64_t kLookAgainNs = 1'000'000'000;
// How often to check whether a silent source still has a writer.
constexpr std::int64_t kAskAgainNs = 100'000'000;

timespec to_timespec(std::int64_t ns) noexcept {
    return {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
}

bool nap(std::int64_t ns) noexcept {
    const timespec length = to_timespec(std::max<std::int64_t>(ns, 0));
    return ::nanosleep(&length, nullptr) == 0;
}

}  // namespace

// When the top of the heap, which is held back, may be returned, by the monotonic clock.
std::int64_t FanIn::release_ns(std::int64_t now) const noexcept {
    if (!limited() || heap_.empty() || top_consumed_ || !held_since_ns_) return INT64_MAX;
    const std::int64_t by_wait = held_since() + options_.max_skew_ns;
    const std::int64_t by_age = now + (heap_[0].time + options_.max_skew_ns - wall_ns());
    return std::max(std::min(by_wait, by_age), now);  // the wall clock may have jumped just now
}

// Sleeps until a silent source may have something, or until `until_ns`.
bool FanIn::park(std::int64_t until_ns) {
    std::array<FutexWord, kMostFutexWords> words;
    std::size_t count = 0;
    std::int64_t until = until_ns;
    for (const Slot slot : silent_) {
        Bell bell;
        if (!sources_[slot].cursor->prepare_to_sleep(bell)) return true;  // look again
        if (bell.word == nullptr || count == words.size()) {
            until = std::min(until, mono_ns() + kNapNs);
        } else {
            words[count++] = {bell.word, bell.heard};
        }
    }
    if (count == 0) return nap(until - mono_ns());
    switch (futex_wait_any({words.data(), count}, until)) {
        case FutexAny::woken:
        case FutexAny::timed_out:
            return true;
        case FutexAny::interrupted:
            return false;
        case FutexAny::unsupported:
            break;
    }
    // A thread for each source rings the descriptor instead. It is armed when the source is
    // checked, so a new one is readable, and this ends at once.
    pollfd ready{ready_fd(), POLLIN, 0};
    nothing_now();
    const std::int64_t left = std::max<std::int64_t>(until - mono_ns(), 0);
    return ::poll(&ready, 1, static_cast<int>((left + 999'999) / 1'000'000)) >= 0;
}

WaitOutcome FanIn::wait(std::int64_t max_ns) {
    check_usable();
    if (gap_) return WaitOutcome::ready;  // the next call throws it
    const std::int64_t begin = mono_ns();
    const std::int64_t deadline = begin + max_ns;
    const bool sleep = options_.wait == WaitKind::sleep;
    const std::int64_t spin_until =
        sleep ? begin
              : begin + (options_.wait == WaitKind::spin_then_park ? options_.wait_ns : max_ns);
    // Without a limit a wait is for all sources, whatever the calls that never block do.
    struct Following {
        FanIn& fan;
        const bool before;
        explicit Following(FanIn& f) : fan(f), before(f.following_) { fan.follow(true); }
        ~Following() { fan.follow(before); }
    } following(*this);

    for (std::uint32_t spins = 0;; ++spins) {
        if (choose(true)) return WaitOutcome::ready;
        if (interrupted_.load(std::memory_order_acquire)) return WaitOutcome::interrupted;
        if (spins % 64 != 0) {
            cpu_relax();
            continue;
        }
        const std::int64_t now = mono_ns();
        if (now < spin_until && now < deadline) continue;
        if (now >= deadline) return WaitOutcome::not_yet;
        std::int64_t until = std::min({deadline, release_ns(now), now + kLookAgainNs});
        if (!limited() && !heap_.empty()) until = std::min(until, now + kAskAgainNs);
        if (sleep) {
            until = std::min(until, now + std::max<std::int64_t>(options_.wait_ns, 1));
            if (!nap(until - now)) return WaitOutcome::interrupted;
        } else if (options_.wait == WaitKind::spin_then_park) {
            if (!park(until)) return WaitOutcome::interrupted;
        }
        spins = ~0u;
    }
}

bool FanIn::prepare_to_sleep(Bell& bell) {
    bell = {};
    check_usable();
    return !choose(true);
}

// ---- by descriptor ------------------------------------------------------------------------------

int FanIn::ready_fd() {
    check_usable();
    if (!poller_) {
        auto poller = std::make_unique<Poller>();
        // All at once: a source arms its descriptor when it is checked and has nothing.
        for (std::size_t slot = 0; slot < sources_.size(); ++slot) {
            if (Cursor* cursor = sources_[slot].cursor; cursor != nullptr && !sources_[slot].over) {
                poller->watch(static_cast<Slot>(slot), *cursor, true);
            }
        }
        poller_ = std::move(poller);
    }
    return poller_->fd();
}

int FanIn::wake_fd() {
    ready_fd();
    return poller_->wake_fd();
}

bool FanIn::nothing_now() {
    if (!poller_) return false;
    for (const Slot slot : silent_) poller_->watch(slot, *sources_[slot].cursor, true);
    for (const Entry& entry : heap_) {
        poller_->watch(static_cast<Slot>(entry.slot), *sources_[entry.slot].cursor, false);
    }
    const std::int64_t now = mono_ns();
    std::int64_t at = release_ns(now);
    if (!limited() && !heap_.empty()) at = now + kAskAgainNs;
    poller_->arm(at == INT64_MAX ? std::nullopt : std::optional(at));
    return false;
}

FanIn::Poller::Poller() {
    epoll_ = open_epoll();
    more_ = open_eventfd();
    timer_ = open_timerfd();
    if (epoll_ < 0 || more_ < 0 || timer_ < 0) {
        const int err = errno;
        for (const int fd : {epoll_, more_, timer_}) {
            if (fd >= 0) close_descriptor(fd);
        }
        throw_os_error(err, "cannot create an epoll descriptor", "");
    }
    add(more_, EPOLLIN);
    add(timer_, EPOLLIN);
    armed_ = true;
    make_readable();
}

FanIn::Poller::~Poller() {
    make_readable();  // for holders of copies of epoll_ and more_
    close_descriptor(timer_);
    close_descriptor(more_);
    close_descriptor(epoll_);
}

void FanIn::Poller::add(int fd, std::uint32_t events) const {
    epoll_event event{};
    event.events = events;
    event.data.fd = fd;
    if (::epoll_ctl(epoll_, EPOLL_CTL_ADD, fd, &event) != 0) {
        throw_os_error(errno, "cannot watch a descriptor", "");
    }
}

void FanIn::Poller::watch(Slot slot, Cursor& cursor, bool silent) {
    if (watched_.size() <= slot) watched_.resize(std::size_t{slot} + 1);
    Watched& watched = watched_[slot];
    if (watched.fd < 0) {
        const int fd = cursor.ready_fd();
        add(fd, silent ? EPOLLIN : 0u);
        watched = {fd, silent};
    } else if (watched.on != silent) {
        epoll_event event{};
        event.events = silent ? EPOLLIN : 0u;
        event.data.fd = watched.fd;
        if (::epoll_ctl(epoll_, EPOLL_CTL_MOD, watched.fd, &event) != 0) {
            throw_os_error(errno, "cannot watch a descriptor", "");
        }
        watched.on = silent;
    }
}

void FanIn::Poller::forget(Slot slot) noexcept {
    if (slot >= watched_.size() || watched_[slot].fd < 0) return;
    ::epoll_ctl(epoll_, EPOLL_CTL_DEL, watched_[slot].fd, nullptr);
    watched_[slot] = {};
}

void FanIn::Poller::arm(std::optional<std::int64_t> at_ns) {
    if (at_ns || timer_set_) {
        itimerspec when{};
        if (at_ns) when.it_value = to_timespec(std::max<std::int64_t>(*at_ns, 1));
        ::timerfd_settime(timer_, TFD_TIMER_ABSTIME, &when, nullptr);
        timer_set_ = at_ns.has_value();
    }
    if (armed_) return;
    std::uint64_t fillings;
    [[maybe_unused]] const ssize_t n = ::read(more_, &fillings, sizeof fillings);  // never blocks
    armed_ = true;
}

void FanIn::Poller::make_readable() noexcept {
    if (!armed_) return;
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t n = ::write(more_, &one, sizeof one);
    armed_ = false;
}

}  // namespace tapewire
