// Sizes by price.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapewire/book/levels.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::book {

class L2 {
  public:
    using Side = Levels<std::int64_t>;

    Side& side(format::Side s) noexcept { return s == format::Side::buy ? bids_ : asks_; }
    const Side& side(format::Side s) const noexcept {
        return s == format::Side::buy ? bids_ : asks_;
    }

    // The level's size is now this; 0: there is no such level. Never below 0.
    static void set(Side& side, std::int64_t price, std::int64_t size) {
        const Side::Place place = side.find(price);
        if (place.found) {
            if (size != 0) {
                side.value(place) = size;
            } else {
                side.erase(place);
            }
        } else if (size != 0) {
            side.insert(place, price, size);
        }
    }

    enum class Sum { done, negative, too_large };
    // The level's size changes by so much; nothing changes unless it is done.
    static Sum add(Side& side, std::int64_t price, std::int64_t change) {
        const Side::Place place = side.find(price);
        std::int64_t size = place.found ? side.value(place) : 0;
        if (__builtin_add_overflow(size, change, &size)) return Sum::too_large;
        if (size < 0) return Sum::negative;
        if (place.found) {
            if (size != 0) {
                side.value(place) = size;
            } else {
                side.erase(place);
            }
        } else if (size != 0) {
            side.insert(place, price, size);
        }
        return Sum::done;
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
