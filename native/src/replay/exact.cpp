#include "tapewire/replay/exact.hpp"

#include <bit>
#include <cmath>

namespace tapewire::replay {

namespace {

int bits_of(UInt128 value) noexcept {
    const auto high = static_cast<std::uint64_t>(value >> 64);
    return high != 0 ? 128 - std::countl_zero(high)
                     : 64 - std::countl_zero(static_cast<std::uint64_t>(value));
}

// A quotient of 55 bits or more, whose lowest bit is also set if there is a remainder, rounds to 53
// bits as the exact quotient does.
double from_quotient(std::uint64_t quotient, bool rest, int shift) noexcept {
    return std::ldexp(static_cast<double>(quotient | (rest ? 1U : 0U)), -shift);
}

// Bit by bit, for denominators that leave no space to shift the numerator. Both are below 2^127.
double by_long_division(UInt128 numerator, UInt128 denominator) noexcept {
    const int whole = bits_of(numerator) - bits_of(denominator);
    int shift = 0;  // the quotient is that of numerator * 2^shift
    UInt128 rest = 0;
    std::uint64_t quotient = 0;
    for (int bit = bits_of(numerator) - 1; bit >= 0; --bit) {
        rest = (rest << 1) | ((numerator >> bit) & 1);
        quotient <<=
            1;  // at most `whole` + 1 bits: below 64, for this denominator has more than 64
        if (rest >= denominator) {
            rest -= denominator;
            quotient |= 1;
        }
    }
    for (; shift < 56 - whole; ++shift) {
        rest <<= 1;
        quotient <<= 1;
        if (rest >= denominator) {
            rest -= denominator;
            quotient |= 1;
        }
    }
    return from_quotient(quotient, rest != 0, shift);
}

double nearest_positive(UInt128 numerator, UInt128 denominator) noexcept {
    const int denominator_bits = bits_of(denominator);
    if (denominator_bits > 70) return by_long_division(numerator, denominator);
    // A quotient of 56 or 57 bits: floor(floor(n / 2^k) / d) is floor(n / (2^k d)), so bits that
    // are shifted out only count as a remainder.
    const int shift = denominator_bits + 56 - bits_of(numerator);
    UInt128 shifted = 0;
    bool rest = false;
    if (shift >= 0) {
        shifted = numerator << shift;
    } else {
        shifted = numerator >> -shift;
        rest = (shifted << -shift) != numerator;
    }
    const UInt128 quotient = shifted / denominator;
    rest = rest || quotient * denominator != shifted;
    return from_quotient(static_cast<std::uint64_t>(quotient), rest, shift);
}

}  // namespace

double nearest_ratio_of_large(Int128 numerator, UInt128 denominator) noexcept {
    if (numerator == 0) return 0.0;
    if (numerator < 0) return -nearest_positive(-static_cast<UInt128>(numerator), denominator);
    return nearest_positive(static_cast<UInt128>(numerator), denominator);
}

}  // namespace tapewire::replay
