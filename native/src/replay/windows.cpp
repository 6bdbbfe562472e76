#include "tapewire/replay/windows.hpp"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <utility>

#include "tapewire/replay/feature_names.hpp"

namespace tapewire::replay {

namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::min();
constexpr int kReturnBits = 48;  // after the point; |ln| of two 64-bit prices has 6 before it

std::int64_t whole_second(std::int64_t time_ns) noexcept {
    const std::int64_t second = time_ns / kSecondNs;
    return time_ns % kSecondNs < 0 ? second - 1 : second;
}

UInt128 squared(std::int64_t value) noexcept {
    return static_cast<UInt128>(static_cast<Int128>(value) * value);
}

// From the exact difference, so that small returns keep their digits.
std::int64_t log_return(Int128 before, Int128 now) noexcept {
    if (before <= 0 || now <= 0) return kUnknown;
    if (before == now) return 0;
    const double change = nearest_ratio(now - before, static_cast<UInt128>(before));
    // A price that all but vanished: the logarithm of the rest, which is never 0 as a double.
    if (change <= -1.0) return -log_return(now, before);
    return std::llrint(std::ldexp(std::log1p(change), kReturnBits));
}

}  // namespace

TradeWindows::TradeWindows(std::vector<std::int64_t> spans_ns) {
    for (const std::int64_t span : spans_ns) windows_.push_back({span, 0, {}});
}

void TradeWindows::add(const Print& print) {
    if (windows_.empty()) return;
    prints_.push_back(print);
    for (Window& window : windows_) {
        window.sums.flow += static_cast<Int128>(print.sign) * print.size;
        window.sums.volume += print.size;
        window.sums.notional += static_cast<Int128>(print.price) * print.size;
    }
}

void TradeWindows::drop_before(std::int64_t now_ns) {
    const std::uint64_t end = dropped_ + prints_.size();
    std::uint64_t oldest = end;
    for (Window& window : windows_) {
        assert(window.first >= dropped_ && window.first <= end);
        for (; window.first < end; ++window.first) {
            const Print& print = prints_[window.first - dropped_];
            // Unsigned: the difference of two times may need 64 bits. Times do not decrease.
            if (static_cast<std::uint64_t>(now_ns) - static_cast<std::uint64_t>(print.time_ns) <=
                static_cast<std::uint64_t>(window.span_ns))
                break;
            window.sums.flow -= static_cast<Int128>(print.sign) * print.size;
            window.sums.volume -= print.size;
            window.sums.notional -= static_cast<Int128>(print.price) * print.size;
        }
        oldest = std::min(oldest, window.first);
    }
    for (; dropped_ < oldest; ++dropped_) prints_.pop_front();
}

std::size_t TradeWindows::count(std::size_t window) const noexcept {
    return dropped_ + prints_.size() - windows_[window].first;
}

const Print& TradeWindows::at(std::size_t window, std::size_t i) const noexcept {
    return prints_[windows_[window].first - dropped_ + i];
}

void TradeWindows::save(StateWriter& out) const {
    out.put(static_cast<std::uint64_t>(prints_.size()));
    for (const Print& print : prints_) out.put(print);
}

void TradeWindows::load(StateReader& in) {
    const std::size_t n = in.count(sizeof(Print));
    for (std::size_t i = 0; i < n; ++i) {
        const auto print = in.get<Print>();
        const Int128 notional = static_cast<Int128>(print.price) * print.size;
        const bool falls = !prints_.empty() && print.time_ns < prints_.back().time_ns;
        if (falls || print.sign < -1 || print.sign > 1 || notional >> 96 > 0 || notional >> 96 < -1)
            StateReader::refuse("invalid trade: index=" + std::to_string(i));
        add(print);
    }
}

ReturnWindows::ReturnWindows(std::vector<std::int64_t> seconds) {
    std::size_t longest = 0;
    for (const std::int64_t n : seconds) {
        windows_.push_back({static_cast<std::size_t>(n), 0, 0});
        longest = std::max(longest, static_cast<std::size_t>(n));
    }
    ring_.assign(longest, kUnknown);
    sum_up();
}

void ReturnWindows::start(std::int64_t now_ns) {
    std::fill(ring_.begin(), ring_.end(), kUnknown);
    second_ = whole_second(now_ns);
    price_ = 0;
    sum_up();
}

void ReturnWindows::advance(std::int64_t now_ns, Int128 price) {
    if (ring_.empty()) return;
    const std::int64_t now = whole_second(now_ns);
    // After as many seconds as the ring has, none of the old ones is left, and all are alike.
    std::size_t left = ring_.size() + 1;
    for (; second_ < now && left > 0; --left) {
        ++second_;
        push(log_return(price_, price));
        price_ = price;
    }
    if (second_ < now) second_ = now;
}

void ReturnWindows::push(std::int64_t log_return) {
    const auto size = static_cast<std::int64_t>(ring_.size());
    const auto slot = [&](std::int64_t second) {
        const std::int64_t at = second % size;
        return static_cast<std::size_t>(at < 0 ? at + size : at);
    };
    for (Window& window : windows_) {
        const std::int64_t leaves =
            ring_[slot(second_ - static_cast<std::int64_t>(window.seconds))];
        if (leaves == kUnknown) {
            --window.unknown;
        } else {
            window.sum -= squared(leaves);
        }
        if (log_return == kUnknown) {
            ++window.unknown;
        } else {
            window.sum += squared(log_return);
        }
    }
    ring_[slot(second_)] = log_return;
}

// Computes the windows' sums from the ring, whose latest second is second_.
void ReturnWindows::sum_up() {
    const auto size = static_cast<std::int64_t>(ring_.size());
    for (Window& window : windows_) {
        window.sum = 0;
        window.unknown = 0;
        for (std::size_t i = 0; i < window.seconds; ++i) {
            const std::int64_t at = (second_ - static_cast<std::int64_t>(i)) % size;
            const std::int64_t value = ring_[static_cast<std::size_t>(at < 0 ? at + size : at)];
            if (value == kUnknown) {
                ++window.unknown;
            } else {
                window.sum += squared(value);
            }
        }
    }
}

bool ReturnWindows::volatility(std::size_t window, double& out) const noexcept {
    if (windows_[window].unknown != 0) return false;
    const UInt128 sum = windows_[window].sum;
    out = std::ldexp(std::sqrt(nearest_ratio(static_cast<Int128>(sum), 1)), -kReturnBits);
    return true;
}

void ReturnWindows::save(StateWriter& out) const {
    out.put(second_);
    out.put(price_);
    for (const std::int64_t value : ring_) out.put(value);
}

void ReturnWindows::load(StateReader& in) {
    second_ = in.get<std::int64_t>();
    price_ = in.get<Int128>();
    if (price_ < 0) StateReader::refuse("a price must not be below 0");
    for (std::int64_t& value : ring_) {
        value = in.get<std::int64_t>();
        if (value != kUnknown && (value >> 54 > 0 || value >> 54 < -1))
            StateReader::refuse("a return exceeds what prices can yield: value=" +
                                std::to_string(value));
    }
    sum_up();
}

}  // namespace tapewire::replay
