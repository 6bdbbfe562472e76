// The limits of this machine, without Python and without Tapewire; compiled and run by
// benchmarks/bare.py. Each mode prints its numbers in nanoseconds (or bytes per second), one per
// line.
//
//   pingpong line  CPU_A CPU_B BATCHES        one way of a cache line, mean of each batch
//   pingpong futex CPU_A CPU_B COUNT GAP_US   from before FUTEX_WAKE to after FUTEX_WAIT, each
//   pingpong clock COUNT                      clock_gettime(CLOCK_REALTIME), mean
//   pingpong memcpy BYTES COUNT               bytes per second of each copy
#include <linux/futex.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <vector>

namespace {

std::int64_t now_ns(clockid_t clock = CLOCK_MONOTONIC) {
    timespec t;
    clock_gettime(clock, &t);
    return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

void pin(const char* cpu) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(std::atoi(cpu), &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) {
        std::perror("sched_setaffinity");
        std::exit(1);
    }
}

inline void relax() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

// Each word on a pair of lines of its own: prefetchers fetch lines in pairs.
struct Shared {
    alignas(256) std::atomic<std::uint32_t> ping{0};
    alignas(256) std::atomic<std::uint32_t> pong{0};
    alignas(256) std::atomic<std::uint32_t> asleep{0};
    alignas(256) std::atomic<std::int64_t> sent{0};
};

Shared* shared_memory() {
    constexpr int kFlags = MAP_SHARED | MAP_ANONYMOUS;
    void* at = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, kFlags, -1, 0);
    if (at == MAP_FAILED) std::exit(1);
    return new (at) Shared;
}

constexpr std::uint32_t kBatch = 1000;

void line(char** args) {
    Shared* shared = shared_memory();
    const auto batches = static_cast<std::uint32_t>(std::atoi(args[2]));
    if (const pid_t child = fork(); child == 0) {
        pin(args[1]);
        for (std::uint32_t i = 1; i <= batches * kBatch; ++i) {
            while (shared->ping.load(std::memory_order_acquire) != i) {
            }
            shared->pong.store(i, std::memory_order_release);
        }
        _exit(0);
    }
    pin(args[0]);
    std::vector<double> means;
    std::uint32_t i = 0;
    for (std::uint32_t batch = 0; batch < batches; ++batch) {
        const std::int64_t begin = now_ns();
        for (std::uint32_t n = 0; n < kBatch; ++n) {
            shared->ping.store(++i, std::memory_order_release);
            while (shared->pong.load(std::memory_order_acquire) != i) {
            }
        }
        means.push_back(static_cast<double>(now_ns() - begin) / (2.0 * kBatch));
    }
    wait(nullptr);
    for (double mean : means) std::printf("%.2f\n", mean);
}

void futex(char** args) {
    Shared* shared = shared_memory();
    const auto count = static_cast<std::uint32_t>(std::atoi(args[2]));
    const std::int64_t gap_ns = std::atoll(args[3]) * 1000;
    auto* word = reinterpret_cast<std::uint32_t*>(&shared->ping);
    if (const pid_t child = fork(); child == 0) {
        pin(args[1]);
        std::vector<std::int64_t> took;
        for (std::uint32_t i = 0; i < count; ++i) {
            shared->asleep.store(i + 1, std::memory_order_release);
            while (shared->ping.load(std::memory_order_acquire) == i) {
                syscall(SYS_futex, word, FUTEX_WAIT, i, nullptr, nullptr, 0);
            }
            took.push_back(now_ns() - shared->sent.load(std::memory_order_relaxed));
        }
        for (std::int64_t ns : took) std::printf("%lld\n", static_cast<long long>(ns));
        std::fflush(stdout);
        _exit(0);
    }
    pin(args[0]);
    for (std::uint32_t i = 0; i < count; ++i) {
        while (shared->asleep.load(std::memory_order_acquire) != i + 1) relax();
        for (const std::int64_t due = now_ns() + gap_ns; now_ns() < due;) relax();
        shared->sent.store(now_ns(), std::memory_order_relaxed);
        shared->ping.store(i + 1, std::memory_order_seq_cst);
        syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
    }
    wait(nullptr);
}

void clock(char** args) {
    const long long count = std::atoll(args[0]);
    const std::int64_t begin = now_ns();
    std::int64_t sum = 0;
    for (long long i = 0; i < count; ++i) sum += now_ns(CLOCK_REALTIME);
    const std::int64_t took = now_ns() - begin;
    std::printf("%.2f\n", static_cast<double>(took + (sum == 1)) / static_cast<double>(count));
}

void copy(char** args) {
    const auto bytes = static_cast<std::size_t>(std::atoll(args[0]));
    std::vector<char> from(bytes, 1), to(bytes, 2);
    for (int i = std::atoi(args[1]); i > 0; --i) {
        const std::int64_t begin = now_ns();
        std::memcpy(to.data(), from.data(), bytes);
        asm volatile("" : : "r"(to.data()) : "memory");
        const auto took_ns = static_cast<double>(now_ns() - begin);
        std::printf("%.0f\n", static_cast<double>(bytes) * 1e9 / took_ns);
    }
}

}  // namespace

int main(int argc, char** argv) {
    struct Mode {
        const char* name;
        int arguments;
        void (*run)(char**);
    };
    constexpr Mode modes[] = {
        {"line", 3, line}, {"futex", 4, futex}, {"clock", 1, clock}, {"memcpy", 2, copy}};
    for (const Mode& mode : modes) {
        if (argc == mode.arguments + 2 && std::strcmp(argv[1], mode.name) == 0) {
            mode.run(argv + 2);
            return 0;
        }
    }
    std::fputs(
        "pingpong line A B BATCHES | futex A B COUNT GAP_US | clock COUNT | memcpy BYTES COUNT\n",
        stderr);
    return 2;
}
