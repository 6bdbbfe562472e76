// Pages of a mapping, made present by a service thread before they are read. Mapping a page costs
// more than reading its records, and unmapping costs half of that again: both are moved off the
// reading thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "tapewire/mapping.hpp"
#include "tapewire/service.hpp"

namespace tapewire {

// Belongs to one cursor. A request costs the caller at most one system call.
class ReadAhead final : private Service::Client {
  public:
    ReadAhead() = default;
    ~ReadAhead() override { stop(); }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // Requests [from, to) of `map` soon. Replaces an earlier request that has not been started.
    void want(MappingRef map, std::uint64_t from, std::uint64_t to) noexcept;
    // Drops a mapping; the service thread unmaps it unless it is still in use elsewhere.
    void drop(MappingRef map) noexcept;
    void stop() noexcept;
    bool started() const noexcept { return started_; }
    void forget_in_child() noexcept { started_ = false; }  // the thread exists only in the parent

  private:
    std::int64_t run(std::int64_t now_mono_ns) noexcept override;
    void start_or_poke() noexcept;

    std::mutex mutex_;
    MappingRef map_;
    std::uint64_t from_ = 0;
    std::uint64_t to_ = 0;
    MappingRef dropped_;
    bool started_ = false;
};

}  // namespace tapewire
