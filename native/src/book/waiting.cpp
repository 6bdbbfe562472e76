#include "tapewire/book/waiting.hpp"

#include <utility>

namespace tapewire::book {

void WaitingDiffs::push(const market::BookEvent& diff, std::uint64_t record_seq) {
    // Asks follow the bids in a record, but not necessarily in an event assembled in code.
    const std::size_t bid_bytes = std::size_t{diff.bid_count} * sizeof(format::Level);
    const std::size_t ask_bytes = std::size_t{diff.ask_count} * sizeof(format::Level);
    Diff d{diff, record_seq, {}};  // until it is complete it points to the caller's levels
    d.levels.reserve(bid_bytes + ask_bytes);
    if (bid_bytes > 0) d.levels.insert(d.levels.end(), diff.bids, diff.bids + bid_bytes);
    if (ask_bytes > 0) d.levels.insert(d.levels.end(), diff.asks, diff.asks + ask_bytes);
    d.event.bids = d.levels.data();
    d.event.asks = d.levels.data() + bid_bytes;
    const std::size_t bytes = d.bytes();
    diffs_.push_back(std::move(d));
    bytes_ += bytes;
    while (bytes_ > kMaxBytes && diffs_.size() > 1) {
        bytes_ -= diffs_.front().bytes();
        diffs_.pop_front();
    }
}

}  // namespace tapewire::book
