// Finds and removes segments that no reader needs. Off unless retention or a limit is configured.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/reader_meta.hpp"

namespace tapewire::queue {

struct RetentionRules {
    bool enabled = false;
    std::int64_t reader_ttl_ns = 30'000'000'000;
    std::uint64_t max_reader_lag_bytes = std::uint64_t{10} << 30;
};

struct RetentionResult {
    std::uint64_t retired = 0;
    std::vector<std::string> ignored;  // readers that do not count, each with the reason
};

// Keeps the last state of each reader, since staleness is the age of an unchanged value on the
// watcher's own monotonic clock.
class RetentionWatch {
  public:
    explicit RetentionWatch(RetentionRules rules) : rules_(rules) {}

    // Deletes the segments that every reader that counts has committed past. `head` is the position
    // of the writer, from its private memory; `keep_from` is the highest segment that holds a
    // record. These two segments and all above them are never deleted. `sync_queue_directory` syncs
    // the queue's directory, and throws on failure.
    RetentionResult pass(const Layout& layout, std::uint64_t segment_bytes, Position head,
                         std::uint64_t keep_from, std::int64_t now_mono_ns,
                         const std::function<void()>& sync_queue_directory);

    // Every segment below it was released by a pass of this watch, even if the pass failed later;
    // 0: none.
    std::uint32_t retired_below() const noexcept { return retired_below_; }

  private:
    void remove_below(const Layout& layout, std::uint64_t floor,
                      const std::vector<std::string>& counted, std::int64_t now_mono_ns,
                      const std::function<void()>& sync_queue_directory, RetentionResult& result);

    struct Seen {
        std::uint64_t heartbeat_ns;
        std::int64_t since_mono_ns;
    };

    RetentionRules rules_;
    std::map<std::string, Seen> seen_;
    std::uint32_t retired_below_ = 0;
    std::int64_t last_pass_ns_ = 0;
    std::int64_t kept_out_since_ns_ = 0;
};

}  // namespace tapewire::queue
