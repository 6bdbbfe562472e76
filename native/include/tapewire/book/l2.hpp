// Sizes by price.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapewire/book/ladder.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::book {

class L2 {
  public:
    using Side = Ladder<std::int64_t>;

    Side& side(format::Side s) noexcept { return s == format::Side::buy ? bids_ : asks_; }
    const Side& side(format::Side s) const noexcept {
        return s == format::Side::buy ? bids_ : asks_;
    }

    enum class Sum { done, negative, too_large };
    // Changes the size of the level by this much; changes nothing unless it returns Sum::done.
    static Sum add(Side& side, std::int64_t price, std::int64_t change) {
        std::int64_t size = side.get(price);
        if (__builtin_add_overflow(size, change, &size)) return Sum::too_large;
        if (size < 0) return Sum::negative;
        side.set(price, size);
        return Sum::done;
    }

    // Whether the best bid is not below the best ask.
    bool crossed() const noexcept {
        return !bids_.empty() && !asks_.empty() && bids_.best_price() >= asks_.best_price();
    }

    void clear() noexcept {
        bids_.clear();
        asks_.clear();
    }
    std::size_t memory_bytes() const noexcept {
        return bids_.memory_bytes() + asks_.memory_bytes();
    }

  private:
    Side bids_{format::Side::buy}, asks_{format::Side::sell};
};

}  // namespace tapewire::book
