// Pages of a mapping, made present by a service thread before they are read. To map a page costs
// more than to read the records in it, and unmapping costs half of that again: neither is the
// reading thread's work.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

#include "tapewire/mapping.hpp"
#include "tapewire/service.hpp"

namespace tapewire {

// Belongs to one cursor. Costs the caller at most one system call for each request.
class ReadAhead final : private Service::Client {
  public:
    ReadAhead() = default;
    ~ReadAhead() override { stop(); }
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // Soon: [from, to) of `map`. Replaces an earlier wish that was not taken up yet.
    void want(MappingRef map, std::uint64_t from, std::uint64_t to) noexcept;
    // Gives a mapping up; it is unmapped there, unless others still hold it.
    void drop(MappingRef map) noexcept;
    void stop() noexcept;
    bool started() const noexcept { return started_; }
    void forget_in_child() noexcept { started_ = false; }  // the thread lives in the parent alone

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
