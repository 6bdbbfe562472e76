// Converts from one decimal scale to another, exactly or not at all.
#pragma once

#include <array>
#include <cstdint>

#include "tapewire/format/market.hpp"

namespace tapewire::book {

class Rescale {
  public:
    // Both at most kMaxScale.
    Rescale(unsigned from, unsigned to) noexcept
        : factor_(kPowers[from < to ? to - from : from - to]), up_(from <= to) {}

    // False, with the number unchanged, if digits or the sign would be lost.
    bool operator()(std::int64_t& number) const noexcept {
        std::int64_t result = 0;
        if (up_) {
            if (__builtin_mul_overflow(number, factor_, &result)) return false;
        } else {
            if (number % factor_ != 0) return false;
            result = number / factor_;
        }
        number = result;
        return true;
    }

  private:
    static constexpr auto kPowers = [] {
        std::array<std::int64_t, format::kMaxScale + 1> powers{1};
        for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
        return powers;
    }();

    std::int64_t factor_;
    bool up_;
};

}  // namespace tapewire::book
