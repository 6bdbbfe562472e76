// Two clocks. `wall_ns` stamps records; `mono_ns` measures ages and timeouts, so that a jump of the
// wall clock neither releases anything nor declares any process dead. `shift_wall_clock` lets tests
// make such a jump without changing the machine's clock.
#pragma once

#include <time.h>

#include <atomic>
#include <cstdint>

namespace tapewire {

namespace detail {
extern std::atomic<std::int64_t> wall_shift_ns;
}

inline std::int64_t clock_ns(clockid_t id) noexcept {
    timespec ts;
    ::clock_gettime(id, &ts);
    return static_cast<std::int64_t>(ts.tv_sec) * 1'000'000'000 + ts.tv_nsec;
}

inline std::int64_t wall_ns() noexcept {
    return clock_ns(CLOCK_REALTIME) + detail::wall_shift_ns.load(std::memory_order_relaxed);
}

inline std::int64_t mono_ns() noexcept { return clock_ns(CLOCK_MONOTONIC); }

inline void shift_wall_clock(std::int64_t ns) noexcept {
    detail::wall_shift_ns.fetch_add(ns, std::memory_order_relaxed);
}

}  // namespace tapewire
