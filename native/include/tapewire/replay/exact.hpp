// Converts exact integers to the nearest double, rounded once.
//
// Features are sums and products of scaled integers, in 128 bits, and become doubles only when a
// row is made: a value depends on its inputs only, not on the order of computation.
#pragma once

#include <cstdint>

namespace tapewire::replay {

__extension__ using Int128 = __int128;
__extension__ using UInt128 = unsigned __int128;

// The double nearest to numerator / denominator, ties to even. 0 < denominator < 2^127.
double nearest_ratio(Int128 numerator, UInt128 denominator) noexcept;

// The same of numerator / (denominator * 10^scale); that denominator must be below 2^127 too. scale
// <= 18.
double nearest_scaled(Int128 numerator, UInt128 denominator, std::uint8_t scale) noexcept;

// 10^scale, scale <= 18.
std::uint64_t power_of_ten(std::uint8_t scale) noexcept;

}  // namespace tapewire::replay
