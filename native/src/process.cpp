#include "tapewire/process.hpp"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <mutex>
#include <string>
#include <vector>

#include "tapewire/service.hpp"

namespace tapewire {

namespace detail {
std::atomic<std::uint32_t> fork_generation{0};
}

// Leaked on purpose: handles may be destroyed after the static destructors have run.
struct ForkRegistry {
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;  // reinitialised in the child
    std::vector<int> descriptors;
    ForkAware* first = nullptr;

    static ForkRegistry& get() {
        static ForkRegistry* const registry = [] {
            auto* made = new ForkRegistry;
            made->descriptors.reserve(64);
            pthread_atfork([] { pthread_mutex_lock(&get().mutex); },
                           [] { pthread_mutex_unlock(&get().mutex); }, [] { get().in_child(); });
            return made;
        }();
        return *registry;
    }

    void drop(int fd) noexcept;

    void link(ForkAware* handle) {
        pthread_mutex_lock(&mutex);
        handle->next_ = first;
        if (first != nullptr) first->prev_ = handle;
        first = handle;
        pthread_mutex_unlock(&mutex);
    }

    void unlink(ForkAware* handle) {
        pthread_mutex_lock(&mutex);
        if (!handle->forked()) {  // the child has already dropped the entire list
            if (handle->prev_ != nullptr) handle->prev_->next_ = handle->next_;
            if (handle->next_ != nullptr) handle->next_->prev_ = handle->prev_;
            if (first == handle) first = handle->next_;
        }
        pthread_mutex_unlock(&mutex);
    }

    void in_child() {
        mutex = PTHREAD_MUTEX_INITIALIZER;
        detail::fork_generation.fetch_add(1, std::memory_order_relaxed);
        for (int fd : descriptors) ::close(fd);
        descriptors.clear();
        for (ForkAware* handle = first; handle != nullptr; handle = handle->next_) {
            handle->on_forked();
        }
        first = nullptr;
        Services::forget_in_child();
    }
};

template <class Open>
static int open_registered(Open open) noexcept {
    ForkRegistry& registry = ForkRegistry::get();
    pthread_mutex_lock(&registry.mutex);
    int fd;
    do {
        fd = open();
    } while (fd < 0 && errno == EINTR);
    const int err = errno;
    if (fd >= 0) registry.descriptors.push_back(fd);
    pthread_mutex_unlock(&registry.mutex);
    errno = err;
    return fd;
}

int open_descriptor(const char* path, int flags, unsigned mode) noexcept {
    return open_registered([=] { return ::open(path, flags, static_cast<mode_t>(mode)); });
}

int open_eventfd() noexcept {
    return open_registered([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
}

int open_timerfd() noexcept {
    return open_registered(
        [] { return ::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK); });
}

int open_epoll() noexcept {
    return open_registered([] { return ::epoll_create1(EPOLL_CLOEXEC); });
}

void ForkRegistry::drop(int fd) noexcept {
    if (auto it = std::find(descriptors.begin(), descriptors.end(), fd); it != descriptors.end()) {
        *it = descriptors.back();
        descriptors.pop_back();
    }
}

void close_descriptor(int fd) noexcept {
    ForkRegistry& registry = ForkRegistry::get();
    pthread_mutex_lock(&registry.mutex);
    registry.drop(fd);
    ::close(fd);
    pthread_mutex_unlock(&registry.mutex);
}

void disown_descriptor(int fd) noexcept {
    ForkRegistry& registry = ForkRegistry::get();
    pthread_mutex_lock(&registry.mutex);
    registry.drop(fd);
    pthread_mutex_unlock(&registry.mutex);
}

ForkAware::ForkAware() : born_(fork_generation()) { ForkRegistry::get().link(this); }
ForkAware::~ForkAware() { ForkRegistry::get().unlink(this); }

std::optional<std::uint64_t> process_start_ticks(std::int64_t pid) {
    const std::string path = "/proc/" + std::to_string(pid) + "/stat";
    const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return std::nullopt;
    char text[1024];
    const ssize_t n = ::read(fd, text, sizeof text - 1);
    ::close(fd);
    if (n <= 0) return std::nullopt;
    const std::string line(text, static_cast<std::size_t>(n));
    std::size_t at = line.rfind(')');
    if (at == std::string::npos) return std::nullopt;
    // `state` after the name is field 3; start time is field 22. A zombie has ended: only its exit
    // code is left, which its parent has not read yet.
    if (line.compare(at, 3, ") Z") == 0 || line.compare(at, 3, ") X") == 0) return std::nullopt;
    for (int field = 2; field < 22; ++field) {
        at = line.find(' ', at);
        if (at == std::string::npos) return std::nullopt;
        ++at;
    }
    char* end = nullptr;
    const std::uint64_t ticks = std::strtoull(line.c_str() + at, &end, 10);
    if (end == line.c_str() + at) return std::nullopt;
    return ticks;
}

const BootId& boot_id() noexcept {
    static const BootId id = [] {
        BootId parsed{};
        const int fd = ::open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
        if (fd < 0) return parsed;
        char text[64];
        const ssize_t n = ::read(fd, text, sizeof text);
        ::close(fd);
        std::size_t digits = 0;
        for (ssize_t i = 0; i < n && digits < 2 * parsed.size(); ++i) {
            const int digit = std::isxdigit(static_cast<unsigned char>(text[i])) == 0 ? -1
                              : text[i] <= '9' ? text[i] - '0'
                                               : (text[i] | 32) - 'a' + 10;
            if (digit < 0) continue;
            std::uint8_t& byte = parsed[digits++ / 2];
            byte = static_cast<std::uint8_t>(byte << 4 | digit);
        }
        return digits == 2 * parsed.size() ? parsed : BootId{};
    }();
    return id;
}

std::uint64_t pid_namespace() noexcept {
    struct stat st;
    return ::stat("/proc/self/ns/pid", &st) == 0 ? static_cast<std::uint64_t>(st.st_ino) : 0;
}

}  // namespace tapewire
