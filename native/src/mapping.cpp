#include "tapewire/mapping.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cassert>
#include <cerrno>
#include <mutex>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"

#ifndef MADV_POPULATE_READ  // Linux 5.14; older headers lack them
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

namespace tapewire {

namespace detail {
std::atomic<std::uint32_t> mappings_lost{0};
}

// Read by a signal handler: plain atomics in blocks that are linked once and never freed.
struct MappingSlot {
    std::atomic<std::uintptr_t> begin{0};
    std::atomic<std::uintptr_t> end{0};
    std::atomic<int> protection{0};
    std::atomic<bool> lost{false};
    bool used = false;  // under the table's mutex
};

namespace {

struct SlotBlock {
    MappingSlot slots[256];
    std::atomic<SlotBlock*> next{nullptr};
};

SlotBlock& first_block() {
    static SlotBlock* const block = new SlotBlock;  // leaked: the handler may run at any time
    return *block;
}

std::mutex& table_mutex() {
    static std::mutex* const mutex = new std::mutex;
    return *mutex;
}

// The action for SIGBUS before ours, or the one that has replaced it since. Read by the handler:
// replaced as a unit, never freed.
std::atomic<const struct sigaction*> previous_action{nullptr};
// A handler that returns has either repaired the page or done nothing, like faulthandler's after
// its disable(): then the fault recurs. After this many in a row at one address it ends the
// process.
constexpr int kReturnsMost = 64;

// State of forwarded signals. Each thread has its own faults: another thread's handler is
// irrelevant to them.
struct PassedOn {
    bool under_way;
    int returned_times;
    std::uintptr_t returned_address;
};
// Initial-exec: the default model of a library that is loaded late allocates at a thread's first
// access, which a signal handler must not do. Volatile: the handler interrupts itself.
__attribute__((tls_model("initial-exec"))) constinit thread_local volatile PassedOn passed_on{false,
                                                                                              0, 0};
std::uintptr_t page_bytes = 4096;
SlotBlock* handler_blocks = nullptr;

void on_sigbus(int signal, siginfo_t* info, void* context) {
    const int saved_errno = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const bool fault = info->si_code > 0;  // else it was sent by a process: it has no address
    for (SlotBlock* block = fault ? handler_blocks : nullptr; block != nullptr;
         block = block->next.load(std::memory_order_acquire)) {
        for (MappingSlot& slot : block->slots) {
            const std::uintptr_t begin = slot.begin.load(std::memory_order_acquire);
            if (begin == 0 || address < begin ||
                address >= slot.end.load(std::memory_order_acquire)) {
                continue;
            }
            void* page = reinterpret_cast<void*>(address & ~(page_bytes - 1));
            if (::mmap(page, page_bytes, slot.protection.load(std::memory_order_relaxed),
                       MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED) {
                break;  // no memory for one page: crash with the original signal
            }
            slot.lost.store(true, std::memory_order_relaxed);
            detail::mappings_lost.fetch_add(1, std::memory_order_relaxed);
            errno = saved_errno;
            return;
        }
    }
    errno = saved_errno;
    const struct sigaction& previous = *previous_action.load(std::memory_order_acquire);
    const bool has_handler = (previous.sa_flags & SA_SIGINFO) != 0 ||
                             (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN);
    // A handler that reinstalls its predecessor and raises again (faulthandler) comes back here:
    // end the process.
    const bool stuck =
        fault && passed_on.returned_address == address && passed_on.returned_times >= kReturnsMost;
    const bool again = passed_on.under_way || stuck;
    passed_on.under_way = true;
    if (has_handler && !again) {
        if ((previous.sa_flags & SA_SIGINFO) != 0) {
            previous.sa_sigaction(signal, info, context);
        } else {
            previous.sa_handler(signal);
        }
        if (fault) {
            const bool same = passed_on.returned_address == address;
            passed_on.returned_times = same ? passed_on.returned_times + 1 : 1;
            passed_on.returned_address = address;
        }
        passed_on.under_way = false;
        return;
    }
    if (previous.sa_handler == SIG_IGN && !fault && !again) {
        passed_on.under_way = false;
        return;  // and stay installed
    }
    struct sigaction standard{};
    standard.sa_handler = SIG_DFL;
    ::sigaction(signal, &standard, nullptr);
    if (!fault) ::raise(signal);  // a fault recurs
}

// Under the table's mutex.
void install_handler() {
    struct sigaction now{};
    if (::sigaction(SIGBUS, nullptr, &now) != 0) return;
    if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_sigbus) return;
    previous_action.store(new struct sigaction(now), std::memory_order_release);
    struct sigaction action{};
    action.sa_sigaction = on_sigbus;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&action.sa_mask);
    ::sigaction(SIGBUS, &action, nullptr);
}

MappingSlot* claim_slot() {
    std::lock_guard lock(table_mutex());
    static const bool installed = [] {
        page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
        handler_blocks = &first_block();
        // A fork must not leave the child with the table locked by a thread that it does not have.
        pthread_atfork([] { table_mutex().lock(); }, [] { table_mutex().unlock(); },
                       [] { table_mutex().unlock(); });
        return true;
    }();
    (void)installed;
    install_handler();
    for (SlotBlock* block = &first_block();; block = block->next.load(std::memory_order_relaxed)) {
        for (MappingSlot& slot : block->slots) {
            if (!slot.used) {
                slot.used = true;
                slot.lost.store(false, std::memory_order_relaxed);
                return &slot;
            }
        }
        if (block->next.load(std::memory_order_relaxed) == nullptr) {
            block->next.store(new SlotBlock, std::memory_order_release);
        }
    }
}

void release_slot(MappingSlot* slot) noexcept {
    std::lock_guard lock(table_mutex());
    slot->begin.store(0, std::memory_order_release);
    slot->end.store(0, std::memory_order_release);
    slot->used = false;
}

}  // namespace

void guard_against_sigbus_now() noexcept {
    std::lock_guard lock(table_mutex());
    if (handler_blocks != nullptr) install_handler();
}

void guard_against_sigbus() noexcept {
    constexpr std::int64_t kPauseNs = 50'000'000;
    static std::atomic<std::int64_t> looked_ns{0};
    const std::int64_t now = mono_ns();
    std::int64_t last = looked_ns.load(std::memory_order_relaxed);
    if (now - last < kPauseNs || !looked_ns.compare_exchange_strong(last, now)) return;
    guard_against_sigbus_now();
}

Mapping::Mapping(const File& file, std::size_t bytes, Access access, std::string path)
    : size_(bytes),
      writable_(access == Access::read_write),
      path_(path.empty() ? file.path() : std::move(path)) {
    const int protection = writable_ ? PROT_READ | PROT_WRITE : PROT_READ;
    void* at = ::mmap(nullptr, bytes, protection, MAP_SHARED, file.fd(), 0);
    if (at == MAP_FAILED) throw_errno("cannot map " + std::to_string(bytes) + " bytes", path_);
    data_ = static_cast<std::byte*>(at);
    slot_ = claim_slot();
    lost_ = &slot_->lost;
    slot_->protection.store(protection, std::memory_order_relaxed);
    slot_->end.store(reinterpret_cast<std::uintptr_t>(data_) + bytes, std::memory_order_release);
    slot_->begin.store(reinterpret_cast<std::uintptr_t>(data_), std::memory_order_release);
}

Mapping::~Mapping() {
    if (slot_ != nullptr) release_slot(slot_);
    if (data_ != nullptr) ::munmap(data_, size_);
}

void Mapping::throw_lost() const {
    throw Error(Errc::mapping_lost, "the file was truncated while it was mapped", path_, -1,
                "restore the file, then open the log again");
}

bool Mapping::populate(std::size_t from, std::size_t bytes) const noexcept {
    assert(from <= size_ && bytes <= size_ - from);
    const std::size_t begin = from & ~(page_bytes - 1);
    const std::size_t end = from + bytes < size_ ? from + bytes : size_;
    if (begin >= end) return true;
    const int advice = writable_ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    while (::madvise(data_ + begin, end - begin, advice) != 0) {
        if (errno == EINVAL) {
            touch(begin, end);  // before Linux 5.14
            return true;
        }
        // A page that is unavailable (a bad sector, a truncated file, a full tmpfs) is a matter for
        // the code that accesses it. Touching it here would mark the entire mapping lost.
        if (errno != EINTR && errno != EAGAIN) return false;
    }
    return true;
}

// An atomic add of 0 dirties a page without changing a byte.
void Mapping::touch(std::size_t begin, std::size_t end) const noexcept {
    assert(end <= size_);
    for (std::size_t at = begin; at < end; at += page_bytes) {
        auto* word = reinterpret_cast<std::uint32_t*>(data_ + at);
        if (writable_) {
            std::atomic_ref(*word).fetch_add(0, std::memory_order_relaxed);
        } else {
            (void)std::atomic_ref(*word).load(std::memory_order_relaxed);
        }
    }
}

bool Mapping::lock_in_memory() const noexcept { return ::mlock(data_, size_) == 0; }

}  // namespace tapewire
