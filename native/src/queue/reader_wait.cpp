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

// With seq_cst loads: pairs with the writer's commit and SEALED stores. A sealed last segment without a
// successor is the end of a log, not progress: peek() has just found nothing behind it.
bool Reader::progress_made() const noexcept {
    if (offset_ + kRecordHeaderBytes <= end_ &&
        load_commit(base_ + offset_, std::memory_order_seq_cst) != 0) {
        return true;
    }
    return segment_.sealed(std::memory_order_seq_cst);
}

// The writer has passed this place and still nothing is committed here: the commit word was damaged.
// Without this a reader would sleep for ever in front of it.
void Reader::check_hidden_record() const {
    const auto at = control_.position();
    if (!at || at->first != segment_.id() || at->second <= offset_ ||
        offset_ + kRecordHeaderBytes > end_ || load_commit(base_ + offset_) != 0) {
        return;
    }
    throw_fault(Fault::uncommitted);
}

WaitOutcome Reader::wait(std::int64_t max_ns) {
    const std::int64_t begin = mono_ns();
    const std::int64_t deadline = begin + max_ns;
    const bool park = options_.wait == WaitKind::spin_then_park && control_.writable();
    // A reader that cannot write the flag cannot be woken: it looks again every so often.
    const bool sleep =
        options_.wait == WaitKind::sleep || (options_.wait == WaitKind::spin_then_park && !park);
    const std::int64_t nap_ns =
        options_.wait == WaitKind::sleep ? std::max<std::int64_t>(options_.wait_ns, 1) : 1'000'000;
    const std::int64_t spin_until = sleep ? begin : begin + (park ? options_.wait_ns : max_ns);

    RecordView record;
    for (std::uint32_t spins = 0;; ++spins) {
        if (peek(record)) return WaitOutcome::ready;
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

        // SYNC wake: pairs with Writer::wake_if_waiting.
        std::uint32_t* const notify = control_.notify_word();
        const std::uint32_t heard = std::atomic_ref(*notify).load(std::memory_order_acquire);
        std::atomic_ref(*control_.waiters_word()).store(1, std::memory_order_seq_cst);
        const bool was_sealed = segment_.sealed(std::memory_order_seq_cst);
        if (progress_made()) {
            // Sealed: peek() moves on, unless this is the end of the log; then only commits count, and
            // nothing can be committed here, so sleep until a writer opens and rings.
            if (!was_sealed || peek(record)) {
                spins = ~0u;
                if (was_sealed) return WaitOutcome::ready;
                continue;
            }
            if (!segment_
                     .sealed()) {  // peek() went on to a segment that is still empty: test again there
                spins = ~0u;
                continue;
            }
        }
        // At most a second: a writer may have died between clearing the flag and waking.
        if (futex_wait(notify, heard, std::min<std::int64_t>(deadline - now, 1'000'000'000)) ==
            FutexResult::interrupted) {
            return WaitOutcome::interrupted;
        }
        spins = ~0u;
    }
}

}  // namespace tapewire::queue
