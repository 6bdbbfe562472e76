#include "tapewire/queue/writer_lock.hpp"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cstdio>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/process.hpp"

namespace tapewire::queue {

namespace {

constexpr std::int64_t kLookerPatienceNs = 100'000'000;
// The recorded owner is dead, yet the lock is held: the kernel is still terminating the process, or
// a child that runs another program inherited it. Wait longer, but not indefinitely.
constexpr std::int64_t kDeadOwnerPatienceNs = 1'000'000'000;
constexpr std::int64_t kSilentNs = 1'000'000'000;  // ten heartbeats

template <class Attempt>
bool within(std::int64_t patience_ns, Attempt attempt) {
    const std::int64_t deadline = mono_ns() + patience_ns;
    for (;;) {
        if (attempt()) return true;
        if (mono_ns() >= deadline) return false;
        const timespec pause{0, 2'000'000};
        ::nanosleep(&pause, nullptr);
    }
}

bool owner_is_alive(const LockOwner& owner) {
    const auto ticks = process_start_ticks(owner.pid);
    return ticks.has_value() && *ticks == owner.start_ticks;
}

std::optional<LockOwner> parse_lock_text(const std::string& text) {
    long long pid = 0;
    unsigned long long ticks = 0, epoch = 0;
    int used = 0;
    if (std::sscanf(text.c_str(), "%lld %llu %llu%n", &pid, &ticks, &epoch, &used) != 3)
        return std::nullopt;
    if (pid < 0 || text.substr(static_cast<std::size_t>(used)) != "\n") return std::nullopt;
    return LockOwner{pid, ticks, epoch};
}

// A file that does not exist, or cannot be opened, holds no lock.
bool is_write_locked(const std::string& path) noexcept {
    try {
        const std::optional<File> file = File::open_existing(path, O_RDONLY);
        return file && file->is_write_locked();
    } catch (const Error&) {
        return false;
    }
}

// Tests the lock of a live writer on control.meta, or on its segment if control.meta was removed or
// replaced. A writer is in the last segment, or in the one before it if it has prepared the last
// one.
bool another_writes(const Layout& layout) {
    if (is_write_locked(layout.control())) return true;
    const std::vector<std::uint32_t> ids = layout.segments();
    const auto last = ids.end() - std::min<std::ptrdiff_t>(2, std::ssize(ids));
    return std::any_of(last, ids.end(),
                       [&](auto id) { return is_write_locked(layout.segment(id)); });
}

bool heart_beats(const Control& control) {
    const std::uint64_t before = control.heartbeat_ns();
    return within(kSilentNs, [&] { return control.heartbeat_ns() != before; });
}

// For a writer that a process with read permission only may have kept from its locks. The process
// named in writer.lock decides, if it is the last writer's. Otherwise (in another container, or if
// it is this very process, which may have called exec since) the heartbeat does.
bool last_writer_lives(const Layout& layout, const Control& control) {
    const auto last = parse_lock_text(read_small_file(layout.writer_lock(), 128));
    if (last && last->epoch == control.writer_epoch()) {
        if (last->pid == 0) return false;
        if (control.writer_pid_namespace() == pid_namespace() && last->pid != ::getpid())
            return owner_is_alive(*last);
    }
    return heart_beats(control);
}

format::ControlBlock read_block(const File& control) {
    format::ControlBlock block{};
    (void)control.read_at(&block, sizeof block, 0);  // a short one is not version 4
    return block;
}

// If no lock decides: by the process that the lock names, or in another container by its heartbeat.
bool seems_alive(const LockOwner& owner, const format::ControlBlock& block) {
    if (block.pid_namespace == pid_namespace()) return owner_is_alive(owner);
    const auto now = static_cast<std::uint64_t>(wall_ns());
    return now < block.writer_heartbeat_ns ||
           now - block.writer_heartbeat_ns < static_cast<std::uint64_t>(kSilentNs);
}

// Only processes that may write the queue may lock it: permission to read is not enough.
void keep_from_readers(const File& guard, const Layout& layout) noexcept {
    struct stat own, control;
    if (::fstat(guard.fd(), &own) != 0 || own.st_uid != ::geteuid()) return;
    mode_t wanted = 0600;
    if (::stat(layout.control().c_str(), &control) == 0) wanted |= control.st_mode & 0022;
    if ((own.st_mode & 0777) != wanted) (void)::fchmod(guard.fd(), wanted);
}

}  // namespace

bool lock_patiently(const File& file) {
    return within(kLookerPatienceNs, [&] { return file.try_lock(LOCK_EX); });
}

std::optional<LockOwner> parse_lock_owner(const std::string& text) {
    const auto owner = parse_lock_text(text);
    return owner && owner->pid > 0 ? owner : std::nullopt;
}

std::uint64_t last_writer_epoch(const Layout& layout) {
    const auto owner = parse_lock_text(read_small_file(layout.writer_lock(), 128));
    return owner ? owner->epoch : 1;
}

WriterLock::WriterLock(const Layout& layout) : layout_(layout) {
    do {
        guard_ = File(layout_.writer_guard(), O_WRONLY | O_CREAT);
        if (!lock_patiently(guard_)) {
            const auto owner = parse_lock_owner(read_small_file(layout_.writer_lock(), 128));
            const bool gone = owner && !owner_is_alive(*owner);
            if (!gone || !within(kDeadOwnerPatienceNs, [&] { return guard_.try_lock(LOCK_EX); }))
                refuse();
        }
        // The file may have been removed between open and lock: the lock would protect nothing.
    } while (!guard_.is_still_at_its_path());
    keep_from_readers(guard_, layout_);
    do {
        file_ = File(layout_.writer_lock(), O_RDWR | O_CREAT);
        announced_locked_ = take_announced();
    } while (!file_.is_still_at_its_path());
    // Before anything is recreated, control.meta included.
    if (!within(kDeadOwnerPatienceNs, [&] { return !another_writes(layout_); })) refuse();
}

// Unlocked before it is closed: a copy of the descriptor in a child must not keep the queue.
WriterLock::~WriterLock() {
    control_.unlock();
    if (announced_locked_) file_.unlock();
    guard_.unlock();
}

// A writer of an earlier release has no guard, but it has this lock.
bool WriterLock::take_announced() const {
    if (lock_patiently(file_)) return true;
    const auto owner = parse_lock_owner(read_small_file(file_.path(), 128));
    if (owner && !owner_is_alive(*owner) &&
        within(kDeadOwnerPatienceNs, [&] { return file_.try_lock(LOCK_EX); })) {
        return true;
    }
    // No earlier release can write a queue with a key, and this process has the guard: the lock is
    // held by a process with read permission only. `bind` makes sure.
    try {
        if (Control::open(layout_, false).geometry().keyed()) return false;
    } catch (const Error&) {
        // Missing or damaged: then nothing is known about the holder.
    }
    refuse();
}

void WriterLock::refuse() const {
    const auto owner = parse_lock_owner(read_small_file(layout_.writer_lock(), 128));
    std::string who = "owner unknown";
    std::string hint = "a queue has one writer; close the other one first";
    if (owner) {
        std::uint64_t home = 0;
        try {
            home = Control::open(layout_, false).writer_pid_namespace();
        } catch (const Error&) {
            // The queue is being created: only the text identifies the writer.
        }
        who = "pid=" + std::to_string(owner->pid) + ", epoch=" + std::to_string(owner->epoch);
        if (home != 0 && home != pid_namespace()) {
            who += ", in another pid namespace (a container)";
            hint =
                "stop that writer in its own container; its pid has no meaning here, and removing "
                "lock files does not free the queue";
        } else if (!owner_is_alive(*owner)) {
            who += " (that process is not visible here)";
            hint =
                "the lock is held by a living process: a writer in another container or a child "
                "that inherited the lock; stop it. Removing lock files does not free the queue";
        }
    }
    throw Error(Errc::writer_already_active, "the queue has a writer: " + who,
                layout_.writer_lock(), -1, hint);
}

void WriterLock::bind(const Control& control) {
    control_ = File(control.file().path(), O_RDWR);
    bound_ = within(kLookerPatienceNs, [&] { return control_.try_write_lock(); });
    if (complete()) return;
    // Held by a process with read permission only, or by a writer that such a process kept from the
    // other locks.
    if (control_.is_write_locked() || last_writer_lives(layout_, control)) refuse();
}

std::optional<std::string> WriterLock::lost(const Control& control) const noexcept {
    try {
        for (const File* file : {&guard_, &file_, &control_, &control.file()}) {
            if (!file->is_still_at_its_path()) return file->path();
        }
    } catch (const Error&) {
        return std::nullopt;  // cannot be determined now: the next look will
    }
    if (!announced_locked_) announced_locked_ = ::flock(file_.fd(), LOCK_EX | LOCK_NB) == 0;
    if (!bound_) bound_ = control_.try_write_lock();
    return std::nullopt;
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
    assert(guard_);
    write({::getpid(), process_start_ticks(::getpid()).value_or(0), epoch});
}

void WriterLock::withdraw() const noexcept {
    try {
        write({0, 0, last_writer_epoch(layout_)});
    } catch (const Error&) {
        // Then the next observer considers this writer killed.
    }
}

LockLook look_at_writer_lock(const Layout& layout, const File* control) {
    LockLook look;
    std::optional<File> opened;
    if (control == nullptr) {
        opened = File::open_existing(layout.control(), O_RDONLY);
        if (opened) control = &*opened;
    }
    look.held = control != nullptr && control->is_write_locked();
    const std::optional<File> file = File::open_existing(layout.writer_lock(), O_RDONLY);
    if (!file) return look;
    const auto block = control != nullptr ? read_block(*control) : format::ControlBlock{};
    // The writer of a queue with a key has the lock on control.meta. A flock on writer.lock proves
    // nothing for such a queue: permission to read is enough to take it.
    const bool shows = !look.held && block.version != format::kControlVersion;
    const bool taken = shows && file->try_lock(LOCK_SH);
    // Before unlocking: a writer that came just then would have written its name, and would be
    // considered killed.
    look.owner = parse_lock_owner(read_small_file(layout.writer_lock(), 128));
    if (taken) file->unlock();
    look.held = look.held || (shows && !taken);
    if (!look.held && look.owner && control != nullptr && control->is_read_locked())
        look.held = seems_alive(*look.owner, block);
    return look;
}

}  // namespace tapewire::queue
