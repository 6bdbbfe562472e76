// Bus errors in foreign memory, in two threads at once: each reaches the handler that was installed
// before, which repairs it.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <thread>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/file.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/mapping.hpp"

namespace {

constexpr std::size_t kPage = 4096;
constexpr int kThreads = 2;
std::atomic<int> inside{0};

// Repairs the page, as the handler of a virtual machine does; returns when all threads are in it.
void repair(int, siginfo_t* info, void*) {
    inside.fetch_add(1);
    const std::int64_t deadline = tapewire::mono_ns() + 10'000'000'000;
    while (inside.load() < kThreads && tapewire::mono_ns() < deadline) tapewire::cpu_relax();
    void* page =
        reinterpret_cast<void*>(reinterpret_cast<std::uintptr_t>(info->si_addr) & ~(kPage - 1));
    ::mmap(page, kPage, PROT_READ, MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

void install(void (*handler)(int, siginfo_t*, void*)) {
    struct sigaction action{};
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

// A page whose file was truncated: a load from it is a bus error.
const volatile char* cut_short(const std::string& path) {
    const tapewire::File file(path, O_RDWR | O_CREAT);
    file.resize(kPage);
    void* at = ::mmap(nullptr, kPage, PROT_READ, MAP_SHARED, file.fd(), 0);
    file.resize(0);
    return static_cast<const volatile char*>(at);
}

TEST(two_threads_with_bus_errors_elsewhere_both_reach_the_handler_before_ours) {
    const kit::Scratch scratch;
    install(repair);
    const tapewire::File own(scratch / "own", O_RDWR | O_CREAT);
    own.resize(kPage);
    const tapewire::Mapping map(own, kPage, tapewire::Mapping::Access::read_only);  // our handler
    const std::array foreign{cut_short(scratch / "a"), cut_short(scratch / "b")};
    std::array<std::thread, kThreads> threads;
    std::atomic<int> loaded{0};
    for (std::size_t i = 0; i < threads.size(); ++i) {
        threads[i] = std::thread([&, i] { loaded.fetch_add(1 + *foreign[i]); });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK_EQ(loaded.load(), kThreads);
    CHECK_EQ(inside.load(), kThreads);
    CHECK(!map.lost());
}

}  // namespace

TEST_MAIN()
