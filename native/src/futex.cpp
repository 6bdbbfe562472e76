#include "tapewire/futex.hpp"

#include <algorithm>
#include <array>

namespace tapewire {

namespace {

std::atomic<bool> pretend_unsupported{false};

// As in <linux/futex.h> since 5.16, which may be newer than the headers of the build.
struct WaitvEntry {
    std::uint64_t value;
    std::uint64_t address;
    std::uint32_t flags;
    std::uint32_t reserved;
};
static_assert(sizeof(WaitvEntry) == 24);
constexpr std::uint32_t kWord32 = 2;  // FUTEX_32 without FUTEX_PRIVATE_FLAG: other processes ring
constexpr long kSysFutexWaitv = 449;  // the same on all architectures

}  // namespace

FutexAny futex_wait_any(std::span<const FutexWord> words, std::int64_t until_ns) noexcept {
    if (pretend_unsupported.load(std::memory_order_relaxed)) return FutexAny::unsupported;
    std::array<WaitvEntry, kMostFutexWords> entries;
    const std::size_t count = std::min(words.size(), entries.size());
    for (std::size_t i = 0; i < count; ++i) {
        entries[i] = {words[i].expected, reinterpret_cast<std::uintptr_t>(words[i].word), kWord32,
                      0};
    }
    timespec until{static_cast<time_t>(until_ns / 1'000'000'000),
                   static_cast<long>(until_ns % 1'000'000'000)};
    if (::syscall(kSysFutexWaitv, entries.data(), static_cast<unsigned>(count), 0, &until,
                  CLOCK_MONOTONIC) >= 0) {
        return FutexAny::woken;
    }
    switch (errno) {
        case EAGAIN:
            return FutexAny::woken;
        case ETIMEDOUT:
            return FutexAny::timed_out;
        case EINTR:
            return FutexAny::interrupted;
        default:  // ENOSYS, or EPERM in a sandbox that does not know the call
            return FutexAny::unsupported;
    }
}

void futex_wait_any_is_unsupported(bool pretend) noexcept {
    pretend_unsupported.store(pretend, std::memory_order_relaxed);
}

}  // namespace tapewire
