// Reader: waiting for records. The order of loads and stores here is the protocol; see
// docs/formats/queue.md, "Publish, wait, wake".
#include <time.h>

#include <algorithm>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/queue/reader.hpp"

namespace tapewire::queue {

using format::kRecordHeaderBytes;

// With seq_cst loads: pairs with the writer's commit and SEALED stores. A sealed last segment
// without a successor is the end of a log, not progress: look() has just found nothing after it.
bool Reader::progress_made() const noexcept {
    if (offset_ + kRecordHeaderBytes <= end_ &&
        load_commit(base_ + offset_, std::memory_order_seq_cst) != 0) {
        return true;
    }
    return segment_.sealed(std::memory_order_seq_cst);
}

// The writer has passed this position and still nothing is committed here: the commit word was
// damaged. Without this check a reader would sleep before it indefinitely.
void Reader::check_hidden_record() const {
    if (is_outside()) return;
    const auto at = control_.position();
    // From an earlier boot, while a writer recovers the log: the records it refers to may have been
    // lost with the power.
    if (control_.written_in_earlier_boot()) return;
    if (!at || at->first != segment_.id() || at->second <= offset_ ||
        offset_ + kRecordHeaderBytes > end_ || load_commit(base_ + offset_) != 0) {
        return;
    }
    // The hint alone proves nothing: it may be damaged itself.
    if (hides_record(segment_, offset_, at->second)) throw_fault(Fault::uncommitted);
}

// The writer's hint is on the cache line that each append stores to: a reader that polls at the end
// of the log must not take that line from the writer. So the hint is read when a reader first
// reaches an end, then once every so many bytes, and after each of this reader's own heartbeats;
// wait() reads it each time before it sleeps.
void Reader::check_passed_by_writer() {
    constexpr std::uint64_t kEveryBytes = 64 * 1024;
    const bool due = hint_due_.load(std::memory_order_relaxed);
    if (!due && hint_seen_at_ != 0 && offset_ - hint_seen_at_ < kEveryBytes) return;
    check_hidden_record();
    hint_seen_at_ = offset_;  // after the check: what it throws once it throws each time
    hint_due_.store(false, std::memory_order_relaxed);
}

// A reader that cannot write the flag cannot be woken: it polls.
bool Reader::can_park() const noexcept { return control_.writable(); }

// True: there is nothing to read, and the bell will be rung past `heard` when there is. False: look
// again first.
bool Reader::nothing_until_rung(std::uint32_t& heard) {
    // SYNC wake: pairs with Writer::wake_if_waiting.
    heard = std::atomic_ref(*control_.notify_word()).load(std::memory_order_acquire);
    std::atomic_ref(*control_.waiters_word()).store(1, std::memory_order_seq_cst);
    RecordView record;
    // A writer that publishes the awaited segment rings afterwards.
    if (is_outside()) return !look_cold(record) && is_outside();
    const bool was_sealed = segment_.sealed(std::memory_order_seq_cst);
    if (!progress_made()) return true;
    if (!was_sealed) return false;
    // Sealed: look() moves on, unless this is the end of the log; then only commits count, and
    // nothing can be committed here, so sleep until a writer opens the queue and rings. If it moved
    // on and found nothing, the test must be repeated at the new position.
    const std::uint32_t here = segment_.id();
    return !look_cold(record) && segment_.id() == here;
}

bool Reader::prepare_to_sleep(Bell& bell) {
    check_hidden_record();
    RecordView record;
    if (!can_park()) {
        bell = {};
        return !look_cold(record);
    }
    bell.word = control_.notify_word();
    return nothing_until_rung(bell.heard);
}

WaitOutcome Reader::wait(std::int64_t max_ns) {
    const std::int64_t begin = mono_ns();
    const std::int64_t deadline = begin + max_ns;
    const bool park = options_.wait == WaitKind::spin_then_park && can_park();
    const bool sleep =
        options_.wait == WaitKind::sleep || (options_.wait == WaitKind::spin_then_park && !park);
    const std::int64_t nap_ns =
        options_.wait == WaitKind::sleep ? std::max<std::int64_t>(options_.wait_ns, 1) : 1'000'000;
    const std::int64_t spin_until = sleep ? begin : begin + (park ? options_.wait_ns : max_ns);

    RecordView record;
    for (std::uint32_t spins = 0;; ++spins) {
        if (look_cold(record)) return WaitOutcome::ready;
        if (interrupted_.load(std::memory_order_acquire)) return WaitOutcome::interrupted;
        if (spins % 64 != 0) {
            cpu_relax();
            continue;
        }
        const std::int64_t now = mono_ns();
        if (now < spin_until && now < deadline) continue;
        check_hidden_record();
        if (now >= deadline) return WaitOutcome::not_yet;
        if (sleep) {
            const std::int64_t ns = std::min(nap_ns, deadline - now);
            const timespec nap{static_cast<time_t>(ns / 1'000'000'000),
                               static_cast<long>(ns % 1'000'000'000)};
            if (::nanosleep(&nap, nullptr) != 0) return WaitOutcome::interrupted;
            spins = ~0u;
            continue;
        }
        if (!park) continue;

        std::uint32_t heard;
        if (!nothing_until_rung(heard)) {
            spins = ~0u;
            continue;
        }
        // At most a second: a writer may have died between clearing the flag and waking.
        if (futex_wait(control_.notify_word(), heard,
                       std::min<std::int64_t>(deadline - now, 1'000'000'000)) ==
            FutexResult::interrupted) {
            return WaitOutcome::interrupted;
        }
        spins = ~0u;
    }
}

int Reader::ready_fd() {
    check_usable();
    if (!ready_) {
        ready_ = std::make_unique<ReadyFd>(can_park() ? control_.notify_word() : nullptr,
                                           control_.shared_map());
    }
    return ready_->fd();
}

// At the end, if the descriptor is in use: true with a record that has arrived meanwhile; otherwise
// arms the descriptor.
bool Reader::look_again(RecordView& out) {
    if (ready_->watching()) return false;
    for (;;) {
        check_hidden_record();
        ReadyFd::Watch watch;
        watch.owner = map_;
        // Their values are read before the last look, so that no change is missed between the two.
        if (!is_outside()) {
            watch.words[0] = {segment_.flags_address(), segment_.flags(std::memory_order_seq_cst)};
        }
        watch.words[1] = {control_.current_segment_address(), control_.current_segment()};
        if (offset_ + kRecordHeaderBytes <= end_) {
            watch.words[2] = {reinterpret_cast<const std::uint32_t*>(base_ + offset_), 0};
        }
        const bool nothing = can_park() ? nothing_until_rung(watch.heard) : !look_cold(out);
        if (nothing && map_ == watch.owner) {
            ready_->arm(watch);
            return false;
        }
        if (look_cold(out)) return true;
    }
}

}  // namespace tapewire::queue
