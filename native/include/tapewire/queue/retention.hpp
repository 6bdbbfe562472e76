// Which segments nobody needs any more. Off unless the user asked for retention or a limit.
#pragma once

#include <cstdint>
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

// Remembers what it saw of each reader, since staleness is the age of an unchanged value on the
// watcher's own monotonic clock.
class RetentionWatch {
  public:
    explicit RetentionWatch(RetentionRules rules) : rules_(rules) {}

    // Deletes what every reader that counts has committed past. `keep_from` is the highest segment
    // that holds a record: it and those above it never go.
    RetentionResult pass(const Layout& layout, std::uint64_t segment_bytes, Position head,
                         std::uint32_t keep_from, std::int64_t now_mono_ns);

  private:
    struct Seen {
        std::uint64_t heartbeat_ns;
        std::int64_t since_mono_ns;
    };

    RetentionRules rules_;
    std::map<std::string, Seen> seen_;
    std::int64_t last_pass_ns_ = 0;
    std::int64_t kept_out_since_ns_ = 0;
};

}  // namespace tapewire::queue
