#include "tapewire/mapping.hpp"

#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <mutex>

#include "tapewire/error.hpp"

#ifndef MADV_POPULATE_READ  // Linux 5.14; older headers do not name them
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

struct sigaction previous_action;
std::uintptr_t page_bytes = 4096;
SlotBlock* handler_blocks = nullptr;

void on_sigbus(int signal, siginfo_t* info, void* context) {
    const int saved_errno = errno;
    const auto address = reinterpret_cast<std::uintptr_t>(info->si_addr);
    const bool fault = info->si_code > 0;  // else somebody sent it: it has no address
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
                break;  // no memory for one page: let it be a crash with the right signal
            }
            slot.lost.store(true, std::memory_order_relaxed);
            detail::mappings_lost.fetch_add(1, std::memory_order_relaxed);
            errno = saved_errno;
            return;
        }
    }
    errno = saved_errno;
    if ((previous_action.sa_flags & SA_SIGINFO) != 0) {
        previous_action.sa_sigaction(signal, info, context);
    } else if (previous_action.sa_handler == SIG_IGN && !fault) {
        return;  // and go on guarding
    } else if (previous_action.sa_handler != SIG_DFL && previous_action.sa_handler != SIG_IGN) {
        previous_action.sa_handler(signal);
    } else {
        struct sigaction standard{};
        standard.sa_handler = SIG_DFL;
        ::sigaction(signal, &standard, nullptr);
        if (!fault) ::raise(signal);  // a fault comes again by itself, for good
    }
}

MappingSlot* claim_slot() {
    std::lock_guard lock(table_mutex());
    static const bool installed = [] {
        page_bytes = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
        handler_blocks = &first_block();
        // A fork must not leave the child with the table locked by a thread it does not have.
        pthread_atfork([] { table_mutex().lock(); }, [] { table_mutex().unlock(); },
                       [] { table_mutex().unlock(); });
        struct sigaction action{};
        action.sa_sigaction = on_sigbus;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigemptyset(&action.sa_mask);
        return ::sigaction(SIGBUS, &action, &previous_action) == 0;
    }();
    (void)installed;
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
    throw Error(Errc::mapping_lost, "the file was cut short under its mapping", path_, -1,
                "somebody truncated the file; restore it, then open the log again");
}

void Mapping::populate(std::size_t from, std::size_t bytes) const noexcept {
    const std::size_t begin = from & ~(page_bytes - 1);
    const std::size_t end = from + bytes < size_ ? from + bytes : size_;
    if (begin >= end) return;
    const int advice = writable_ ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
    if (::madvise(data_ + begin, end - begin, advice) == 0) return;
    // Before Linux 5.14: touch each page. An atomic add of 0 dirties it without changing a byte.
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
