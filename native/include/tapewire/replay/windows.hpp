// The history of features: the trades of a span, and the returns of the last seconds. Sums are
// integers, so a value that has left a window leaves no residue in them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tapewire/replay/exact.hpp"
#include "tapewire/replay/state_bytes.hpp"

namespace tapewire::replay {

struct Print {  // one trade
    std::int64_t time_ns;
    std::int64_t price;
    std::int64_t size;
    std::int64_t sign;  // 1: the buyer was the aggressor, -1: the seller, 0: unknown
};

// The trades of the last nanoseconds, for several spans at once.
class TradeWindows {
  public:
    explicit TradeWindows(std::vector<std::int64_t> spans_ns);

    struct Sums {
        Int128 flow = 0;      // of sign * size
        Int128 volume = 0;    // of size
        Int128 notional = 0;  // of price * size
    };

    // Times must not decrease. |price * size| < 2^96, so that 2^31 of them can be summed.
    void add(const Print& print);
    // Removes from each window the trades before now_ns - span.
    void advance(std::int64_t now_ns) {
        if (!prints_.empty()) drop_before(now_ns);
    }
    const Sums& sums(std::size_t window) const noexcept { return windows_[window].sums; }
    // The trades in the window, oldest first.
    std::size_t count(std::size_t window) const noexcept;
    const Print& at(std::size_t window, std::size_t i) const noexcept;

    void save(StateWriter& out) const;
    void load(StateReader& in);

  private:
    struct Window {
        std::int64_t span_ns;
        std::uint64_t first;  // index of its oldest trade
        Sums sums;
    };
    void drop_before(std::int64_t now_ns);

    std::vector<Window> windows_;
    std::deque<Print> prints_;   // of the longest window
    std::uint64_t dropped_ = 0;  // the count of trades before prints_
};

// Squared log returns of a price from second to second, in fixed point.
class ReturnWindows {
  public:
    explicit ReturnWindows(std::vector<std::int64_t> seconds);

    bool empty() const noexcept { return windows_.empty(); }
    // The replay is at `now_ns`; prices at whole seconds up to then are unknown.
    void start(std::int64_t now_ns);
    // The price was this at every whole second not passed yet, up to `now_ns`. A price may be
    // scaled by any positive constant; 0: unknown.
    void advance(std::int64_t now_ns, Int128 price);
    // False if a return in the window is unknown.
    bool volatility(std::size_t window, double& out) const noexcept;

    void save(StateWriter& out) const;
    void load(StateReader& in);

  private:
    struct Window {
        std::size_t seconds;
        UInt128 sum;
        std::size_t unknown;
    };
    void push(std::int64_t log_return);
    void sum_up();

    std::vector<Window> windows_;
    std::vector<std::int64_t>
        ring_;  // of the longest window; second s is at index s modulo its size
    std::int64_t second_ = 0;
    Int128 price_ = 0;  // at second_
};

}  // namespace tapewire::replay
