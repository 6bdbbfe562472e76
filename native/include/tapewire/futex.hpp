// Futex on a word of shared memory (never the PRIVATE form: waiter and waker are often different
// processes).
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tapewire {

enum class FutexResult { woken, changed, timed_out, interrupted };

// Sleeps while *word == expected, for at most `timeout_ns`.
inline FutexResult futex_wait(std::uint32_t* word, std::uint32_t expected,
                              std::int64_t timeout_ns) noexcept {
    timespec ts{static_cast<time_t>(timeout_ns / 1'000'000'000),
                static_cast<long>(timeout_ns % 1'000'000'000)};
    if (::syscall(SYS_futex, word, FUTEX_WAIT, expected, &ts, nullptr, 0) == 0) {
        return FutexResult::woken;
    }
    switch (errno) {
        case EAGAIN:
            return FutexResult::changed;
        case ETIMEDOUT:
            return FutexResult::timed_out;
        default:  // EINTR; anything else is a bug and must not spin unnoticed: callers test again
            return FutexResult::interrupted;
    }
}

inline void futex_wake_all(std::uint32_t* word) noexcept {
    ::syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

// Changes the word, so that no thread starts to sleep on its old value, and wakes those that do.
inline void futex_ring(std::uint32_t* word) noexcept {
    std::atomic_ref(*word).fetch_add(1, std::memory_order_seq_cst);
    futex_wake_all(word);
}

// One of several words to wait on.
struct FutexWord {
    std::uint32_t* word;
    std::uint32_t expected;
};
inline constexpr std::size_t kMostFutexWords = 128;  // FUTEX_WAITV_MAX

enum class FutexAny { woken, timed_out, interrupted, unsupported };

// Sleeps while all words hold their expected values, until `until_ns` of the monotonic clock. At
// most kMostFutexWords. Unsupported before Linux 5.16.
FutexAny futex_wait_any(std::span<const FutexWord> words, std::int64_t until_ns) noexcept;
// For tests of the fallback on older systems.
void futex_wait_any_is_unsupported(bool pretend) noexcept;

inline void cpu_relax() noexcept {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("isb" ::: "memory");  // yields longer than `yield`, as a spin hint should
#endif
}

}  // namespace tapewire
