// AddressSanitizer does not know mapped files: a read past a segment would hit the zeros that fill
// its last page, or whatever is mapped next, and stay undetected. In a fuzz target every file is
// therefore mapped between two inaccessible pages, and the rest of its last page is poisoned.
#include <sanitizer/asan_interface.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>

namespace {

constexpr std::size_t kPage = 65536;  // no relevant system has larger ones

constexpr std::size_t whole_pages(std::size_t bytes) { return (bytes + kPage - 1) & ~(kPage - 1); }

void* system_mmap(void* at, std::size_t bytes, int protection, int flags, int fd, off_t offset) {
    return reinterpret_cast<void*>(::syscall(SYS_mmap, at, bytes, protection, flags, fd, offset));
}

struct Guarded {
    std::mutex mutex;
    std::map<void*, std::size_t> bytes;
};

Guarded& guarded() {
    static Guarded* const instance = new Guarded;  // handles are closed after static destructors
    return *instance;
}

}  // namespace

// Where memory was allocated is not needed here, and recording it takes a tenth of the time.
extern "C" const char* __asan_default_options() { return "malloc_context_size=2"; }

// The library's calls come here and bypass ASan's own wrappers, which only check arguments.
extern "C" void* mmap(void* at, std::size_t bytes, int protection, int flags, int fd,
                      off_t offset) noexcept {
    if (fd < 0 || (flags & MAP_FIXED) != 0)
        return system_mmap(at, bytes, protection, flags, fd, offset);
    const std::size_t room = whole_pages(bytes);
    void* const reserved = system_mmap(nullptr, room + 2 * kPage, PROT_NONE,
                                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) return MAP_FAILED;
    char* const begin = static_cast<char*>(reserved) + kPage;
    if (system_mmap(begin, bytes, protection, flags | MAP_FIXED, fd, offset) == MAP_FAILED) {
        const int why = errno;
        ::syscall(SYS_munmap, reserved, room + 2 * kPage);
        errno = why;
        return MAP_FAILED;
    }
    // Memory is poisoned in words of 8 bytes; the size of every file mapped here is a multiple of
    // that.
    __asan_poison_memory_region(begin + bytes, room - bytes);
    const std::lock_guard lock(guarded().mutex);
    guarded().bytes[begin] = bytes;
    return begin;
}

extern "C" int munmap(void* at, std::size_t bytes) noexcept {
    {
        const std::lock_guard lock(guarded().mutex);
        if (guarded().bytes.erase(at) == 0)
            return static_cast<int>(::syscall(SYS_munmap, at, bytes));
    }
    const std::size_t room = whole_pages(bytes);
    __asan_unpoison_memory_region(static_cast<char*>(at) + bytes, room - bytes);
    return static_cast<int>(
        ::syscall(SYS_munmap, static_cast<char*>(at) - kPage, room + 2 * kPage));
}
