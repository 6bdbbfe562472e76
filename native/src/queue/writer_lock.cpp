#include "tapewire/queue/writer_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <cstdio>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/process.hpp"

namespace tapewire::queue {

namespace {

constexpr std::int64_t kLookerPatienceNs = 100'000'000;
// The recorded owner is dead, yet the lock is held: the kernel is still tearing the process down, or a
// child of another program inherited it. Wait longer, but not for ever.
constexpr std::int64_t kDeadOwnerPatienceNs = 1'000'000'000;

bool lock_within(const File& file, std::int64_t patience_ns) {
    const std::int64_t deadline = mono_ns() + patience_ns;
    for (;;) {
        if (file.try_lock(LOCK_EX)) return true;
        if (mono_ns() >= deadline) return false;
        const timespec pause{0, 2'000'000};
        ::nanosleep(&pause, nullptr);
    }
}

bool owner_is_alive(const LockOwner& owner) {
    const auto ticks = process_start_ticks(owner.pid);
    return ticks.has_value() && *ticks == owner.start_ticks;
}

}  // namespace

bool lock_patiently(const File& file) { return lock_within(file, kLookerPatienceNs); }

std::optional<LockOwner> parse_lock_owner(const std::string& text) {
    LockOwner owner;
    long long pid = 0;
    unsigned long long ticks = 0, epoch = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%lld %llu %llu%n", &pid, &ticks, &epoch, &used) != 3)
        return std::nullopt;
    if (pid <= 0 || text.substr(static_cast<std::size_t>(used)) != "\n") return std::nullopt;
    owner.pid = pid;
    owner.start_ticks = ticks;
    owner.epoch = epoch;
    return owner;
}

WriterLock::WriterLock(const Layout& layout) {
    do {
        file_ = File(layout.writer_lock(), O_RDWR | O_CREAT);
        take();
        // Somebody may have removed the file between open and lock: the lock would guard nothing.
    } while (!file_.is_still_at_its_path());
}

// Unlocked before it is closed: a copy of the descriptor in some child must not keep the queue.
WriterLock::~WriterLock() { file_.unlock(); }

void WriterLock::take() const {
    if (lock_patiently(file_)) return;
    const auto owner = parse_lock_owner(read_small_file(file_.path(), 128));
    if (owner && !owner_is_alive(*owner) && lock_within(file_, kDeadOwnerPatienceNs)) return;
    std::string who = "owner unknown";
    if (owner) {
        who = "pid=" + std::to_string(owner->pid) + ", epoch=" + std::to_string(owner->epoch);
        if (!owner_is_alive(*owner))
            who += " (that process is gone; another one inherited its lock)";
    }
    throw Error(Errc::writer_already_active, "the queue has a writer: " + who, file_.path(), -1,
                "a queue has one writer; close the other one first");
}

void WriterLock::write(const LockOwner& owner) const {
    char text[96];
    const int n =
        std::snprintf(text, sizeof text, "%lld %llu %llu\n", static_cast<long long>(owner.pid),
                      static_cast<unsigned long long>(owner.start_ticks),
                      static_cast<unsigned long long>(owner.epoch));
    file_.resize(0);
    file_.write_at(text, static_cast<std::size_t>(n), 0);
}

void WriterLock::announce(std::uint64_t epoch) const {
    write({::getpid(), process_start_ticks(::getpid()).value_or(0), epoch});
}

void WriterLock::withdraw() const noexcept {
    try {
        const auto owner = parse_lock_owner(read_small_file(file_.path(), 128));
        write({0, 0, owner ? owner->epoch : 0});
    } catch (const Error&) {
        // Then whoever looks next takes us for killed.
    }
}

LockLook look_at_writer_lock(const Layout& layout) {
    LockLook look;
    const std::optional<File> file = File::open_existing(layout.writer_lock(), O_RDONLY);
    if (!file) return look;
    look.held = !file->try_lock(LOCK_SH);
    // Before letting go: a writer that came just then would have written its name, and be taken for killed.
    look.owner = parse_lock_owner(read_small_file(layout.writer_lock(), 128));
    if (!look.held) file->unlock();
    return look;
}

}  // namespace tapewire::queue
