// Converts exact integers to the nearest double, rounded once.
//
// Features are sums and products of scaled integers, in 128 bits, and become doubles only when a
// row is made: a value depends on its inputs only, not on the order of computation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace tapewire::replay {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// 10^scale, scale <= 18.
inline constexpr auto kPowersOfTen = [] {
    std::array<std::uint64_t, 19> powers{1};
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
    return powers;
}();
inline std::uint64_t power_of_ten(std::uint8_t scale) noexcept { return kPowersOfTen[scale]; }

// nearest_ratio() of numbers of any size.
double nearest_ratio_of_large(Int128 numerator, UInt128 denominator) noexcept;

// The double nearest to numerator / denominator, ties to even. 0 < denominator < 2^127.
inline double nearest_ratio(Int128 numerator, UInt128 denominator) noexcept {
    // Up to this every integer is a double: one division, one rounding.
    constexpr std::uint64_t kExact = std::uint64_t{1} << 53;
    if (static_cast<UInt128>(numerator) + kExact <= 2 * kExact && denominator <= kExact) [[likely]]
        return static_cast<double>(static_cast<std::int64_t>(numerator)) /
               static_cast<double>(static_cast<std::int64_t>(denominator));
    return nearest_ratio_of_large(numerator, denominator);
}

// The same of numerator / (denominator * 10^scale); that denominator must be below 2^127 too. scale
// <= 18.
inline double nearest_scaled(Int128 numerator, UInt128 denominator, std::uint8_t scale) noexcept {
    return nearest_ratio(numerator, denominator * power_of_ten(scale));
}

}  // namespace tapewire::replay
