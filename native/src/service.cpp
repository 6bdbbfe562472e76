#include "tapewire/service.hpp"

#include <sched.h>

#include <algorithm>

#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/thread.hpp"

namespace tapewire {

namespace {
// Leaked on purpose: handles may be closed after static destructors have run.
std::atomic<Services*> instance{nullptr};
}  // namespace

Services& Services::get() noexcept {
    Services* current = instance.load(std::memory_order_acquire);
    if (current == nullptr) {
        auto* made = new Services;
        if (instance.compare_exchange_strong(current, made)) return *made;
        delete made;
    }
    return *current;
}

void Services::forget_in_child() noexcept { instance.store(nullptr, std::memory_order_release); }

void Service::add(Client* client) {
    std::unique_lock lock(mutex_);
    // A stopping thread is joined by the caller that removed the last client, under `stop_`.
    done_.wait(lock, [this] { return !stop_; });
    clients_.push_back(client);
    if (!thread_.joinable()) {
        try {
            thread_ = start_thread(name_, [this] { loop(); });
        } catch (...) {
            clients_.pop_back();
            throw;
        }
    } else {
        lock.unlock();
        poke(client);
    }
}

void Service::remove(Client* client) {
    std::thread leaving;
    {
        std::unique_lock lock(mutex_);
        client->leaving_ = true;
        ++waiting_;
        done_.wait(lock, [client] { return !client->running_; });
        --waiting_;
        clients_.erase(std::remove(clients_.begin(), clients_.end(), client), clients_.end());
        if (!clients_.empty() || !thread_.joinable()) return;
        stop_ = true;
        leaving = std::move(thread_);
    }
    futex_ring(&bell_);
    leaving.join();
    {
        std::lock_guard lock(mutex_);
        stop_ = false;
    }
    done_.notify_all();
}

void Service::poke(Client* client) noexcept {
    client->poked_.store(true, std::memory_order_seq_cst);
    std::atomic_ref(bell_).fetch_add(1, std::memory_order_seq_cst);
    // SYNC doze: pairs with loop(); asleep_ is set before the bell is read for the last time.
    if (std::atomic_ref(asleep_).load(std::memory_order_seq_cst) != 0) futex_wake_all(&bell_);
}

void Service::loop() {
    // BATCH: waking this thread never preempts the thread that rang.
    const sched_param priority{};
    ::sched_setscheduler(0, SCHED_BATCH, &priority);
    std::atomic_ref bell(bell_);
    std::atomic_ref asleep(asleep_);
    std::unique_lock lock(mutex_);
    while (!stop_) {
        asleep.store(
            1, std::memory_order_seq_cst);  // SYNC doze: before the bell and `poked_` are read
        const std::uint32_t heard = bell.load(std::memory_order_seq_cst);
        std::int64_t next = kWhenPoked;
        bool ran = false;
        for (std::size_t i = 0; i < clients_.size() && !stop_; ++i) {
            Client* client = clients_[i];
            if (client->leaving_) continue;
            const std::int64_t now = mono_ns();
            if (client->poked_.load(std::memory_order_seq_cst) || client->due_ns_ <= now) {
                asleep.store(0, std::memory_order_seq_cst);
                client->poked_.store(false, std::memory_order_seq_cst);
                client->running_ = true;
                lock.unlock();  // so that opening another queue does not wait for this one's fsync
                const std::int64_t due = client->run(now);
                lock.lock();
                client->running_ = false;
                client->due_ns_ = due;
                ran = true;
                if (waiting_ != 0) done_.notify_all();
            }
            next = std::min(next, client->due_ns_);
        }
        if (ran) continue;  // something may have become due or been poked meanwhile
        const std::int64_t now = mono_ns();
        if (next <= now || stop_) continue;
        lock.unlock();
        futex_wait(&bell_, heard, std::min<std::int64_t>(next - now, 3'600'000'000'000));
        asleep.store(0, std::memory_order_seq_cst);
        lock.lock();
    }
}

}  // namespace tapewire
