// What the litmus tests share: two threads that meet before every round and then race, each on its
// own core, and a table of every outcome that was seen.
//
// A forbidden outcome fails the test. A racing outcome must have been seen at least once; otherwise
// the two threads were never close enough for the forbidden one to happen, and its zero means
// nothing. That fails the test too where the race is known to show (unsanitised x86-64, two cores,
// as many rounds as an idle machine runs at once); everywhere else, the table reports it.
#pragma once

#include <sched.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <string>
#include <thread>
#include <vector>

#include "check.hpp"
#include "tapewire/futex.hpp"

namespace litmus {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || !defined(__x86_64__)
inline constexpr bool kRacesShow = false;
#else
inline constexpr bool kRacesShow = true;
#endif

inline std::vector<int> cores() {
    cpu_set_t allowed;
    CPU_ZERO(&allowed);
    std::vector<int> ids;
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return ids;
    for (int id = 0; id < CPU_SETSIZE; ++id) {
        if (CPU_ISSET(id, &allowed)) ids.push_back(id);
    }
    return ids;
}

// Pins the calling thread to the n-th core that this process may use; does nothing if there is only
// one.
inline void pin(std::size_t n) {
    static const std::vector<int> ids = cores();
    if (ids.size() < 2) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(ids[n % ids.size()], &one);
    ::sched_setaffinity(0, sizeof one, &one);
}

// About a nanosecond per unit: shifts the two sides of a race against each other from round to
// round.
inline void linger(std::uint64_t units) {
    for (; units != 0; --units) asm volatile("" ::: "memory");
}

// Brings the two stores of a race together: the side that was first is delayed slightly in the next
// round.
class Phase {
  public:
    void hold_left(std::uint64_t round) const { hold(ahead_, round); }
    void hold_right(std::uint64_t round) const { hold(-ahead_, round); }
    void left_was_first() { ahead_ = std::min(ahead_ + kStep, kMost); }
    void right_was_first() { ahead_ = std::max(ahead_ - kStep, -kMost); }

  private:
    static constexpr std::int64_t kStep = 4;
    static constexpr std::int64_t kMost = 4096;

    static void hold(std::int64_t units, std::uint64_t round) {
        if (units > 0) linger(static_cast<std::uint64_t>(units) + round % 8);
    }

    std::int64_t ahead_ = 0;  // how much too early the left side is
};

// Both sides leave meet() as nearly at the same moment as two cores can.
class Rendezvous {
  public:
    void meet(std::size_t side, std::uint64_t times) {
        sides_[side].arrived.store(times, std::memory_order_release);
        for (std::uint32_t spins = 1;
             sides_[1 - side].arrived.load(std::memory_order_acquire) < times; ++spins) {
            // On a shared core the other side may be waiting for this very core.
            if (spins % 4096 == 0) std::this_thread::yield();
        }
    }

  private:
    struct alignas(128) Side {
        std::atomic<std::uint64_t> arrived{0};
    };
    std::array<Side, 2> sides_;
};

// Runs rounds of `left` concurrently with `right`, each called with the round number. Between
// rounds `judge` examines the outcome; it ends the race by returning false. Nothing here may throw:
// the other side would wait.
template <class Left, class Right, class Judge>
void race(Left left, Right right, Judge judge) noexcept {
    Rendezvous gate;
    bool going = true;  // written by the left side, read by the right one after the rendezvous
    std::thread other([&] {
        pin(1);
        for (std::uint64_t round = 0;; ++round) {
            gate.meet(1, 2 * round + 1);
            if (!going) return;
            right(round);
            gate.meet(1, 2 * round + 2);
        }
    });
    std::thread one([&] {
        pin(0);
        for (std::uint64_t round = 0;; ++round) {
            gate.meet(0, 2 * round + 1);
            if (!going) return;
            left(round);
            gate.meet(0, 2 * round + 2);
            going = judge(round);
        }
    });
    one.join();
    other.join();
}

enum class Kind { allowed, racing, forbidden };

struct Outcome {
    const char* what;
    Kind kind;
    std::uint64_t seen = 0;
};

class Table {
  public:
    // `enough` rounds without a racing outcome are an error of the test; after fewer rounds, the
    // machine was busy.
    Table(std::string name, std::uint64_t enough, std::initializer_list<Outcome> outcomes)
        : name_(std::move(name)), enough_(enough), outcomes_(outcomes) {}

    void count(std::size_t outcome, std::uint64_t times = 1) { outcomes_[outcome].seen += times; }
    std::uint64_t seen(std::size_t outcome) const { return outcomes_[outcome].seen; }

    bool exercised() const {
        for (const Outcome& o : outcomes_) {
            if (o.kind == Kind::racing && o.seen == 0) return false;
        }
        return true;
    }

    // Whether to run another round: a minimum number in any case, more until the race has shown.
    bool wants_more() {
        ++rounds_;
        if (rounds_ % 16 != 0) return true;
        const auto age = std::chrono::steady_clock::now() - begin_;
        const bool well_shown = exercised() && rounds_ >= (kRacesShow ? enough_ : enough_ / 20);
        return age < (well_shown ? std::chrono::milliseconds(150) : std::chrono::milliseconds(600));
    }

    void report() const {
        std::printf("litmus: %s: %llu rounds on %zu core(s)\n", name_.c_str(),
                    static_cast<unsigned long long>(rounds_), cores().size());
        for (const Outcome& o : outcomes_) {
            static constexpr const char* kKinds[] = {"allowed", "racing", "forbidden"};
            std::printf("  %-62s %10llu  %s\n", o.what, static_cast<unsigned long long>(o.seen),
                        kKinds[static_cast<std::size_t>(o.kind)]);
            if (o.kind == Kind::forbidden && !CHECK_EQ(o.seen, 0u)) {
                check::fail(__FILE__, __LINE__, name_ + ": " + o.what);
            }
        }
        if (!exercised())
            std::printf("  the race was not exercised: the zeros above show nothing\n");
        std::fflush(stdout);
        if (kRacesShow && cores().size() >= 2 && rounds_ >= enough_) CHECK(exercised());
    }

  private:
    std::string name_;
    std::uint64_t enough_;
    std::vector<Outcome> outcomes_;
    std::uint64_t rounds_ = 0;
    std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace litmus
