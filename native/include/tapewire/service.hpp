// The native threads of the process: one per kind of background work, shared by all its queues,
// started with the first client and joined with the last. They run no user code and never take the
// GIL.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <mutex>
#include <thread>
#include <vector>

namespace tapewire {

inline constexpr std::int64_t kWhenPoked = std::numeric_limits<std::int64_t>::max();

class Service {
  public:
    // A unit of work of one queue. `run` returns the monotonic time at which it is to run again, or
    // kWhenPoked. It must not throw: the client counts its failures.
    class Client {
      public:
        virtual ~Client() = default;
        virtual std::int64_t run(std::int64_t now_mono_ns) noexcept = 0;

      private:
        friend class Service;
        std::atomic<bool> poked_{true};  // runs soon after it was added
        std::int64_t due_ns_ = 0;
        bool running_ = false;
        bool leaving_ = false;
    };

    explicit Service(const char* thread_name) : name_(thread_name) {}
    Service(const Service&) = delete;
    Service& operator=(const Service&) = delete;

    void add(Client* client);
    // Returns when the client is not running and will not run again.
    void remove(Client* client);
    // Runs the client soon. Costs one system call, and only when the thread is asleep.
    void poke(Client* client) noexcept;

  private:
    void loop();

    const char* name_;
    std::mutex mutex_;
    std::condition_variable done_;
    std::vector<Client*> clients_;
    std::thread thread_;
    bool stop_ = false;
    int waiting_ = 0;                     // for a client to finish its run
    alignas(64) std::uint32_t bell_ = 0;  // futex word, rung by poke
    std::uint32_t asleep_ = 0;
};

// The threads of this process. They exist only while they have clients.
struct Services {
    Service heartbeat{"tw-heartbeat"};
    Service prealloc{"tw-prealloc"};
    Service seal{"tw-seal"};
    Service retention{"tw-retention"};
    Service flush{"tw-flush"};
    Service index{"tw-index"};
    Service read_ahead{"tw-read-ahead"};

    static Services& get() noexcept;
    // A forked child does not have the threads: start from scratch.
    static void forget_in_child() noexcept;
};

}  // namespace tapewire
