// Diffs that arrived before the snapshot that they apply to.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "tapewire/market/event.hpp"

namespace tapewire::book {

class WaitingDiffs {
  public:
    static constexpr std::size_t kMaxBytes = std::size_t{64} << 20;

    // Copies the diff. Beyond kMaxBytes the oldest are discarded.
    void push(const market::BookEvent& diff, std::uint64_t record_seq);

    // Calls f(event, record_seq) for each in order of arrival and removes it; f may push.
    template <typename F>
    void drain(F&& f) {
        std::deque<Diff> all;
        all.swap(diffs_);
        bytes_ = 0;
        for (const Diff& d : all) f(d.event, d.record_seq);
    }
    // The same, without removing them.
    template <typename F>
    void each(F&& f) const {
        for (const Diff& d : diffs_) f(d.event, d.record_seq);
    }
    void clear() noexcept {
        diffs_.clear();
        bytes_ = 0;
    }
    bool empty() const noexcept { return diffs_.empty(); }
    std::size_t size() const noexcept { return diffs_.size(); }
    std::size_t memory_bytes() const noexcept { return bytes_; }

  private:
    struct Diff {
        market::BookEvent event;  // its levels are in `levels`
        std::uint64_t record_seq;
        std::vector<std::byte> levels;

        std::size_t bytes() const noexcept { return sizeof *this + levels.size(); }
    };
    std::deque<Diff> diffs_;
    std::size_t bytes_ = 0;
};

}  // namespace tapewire::book
