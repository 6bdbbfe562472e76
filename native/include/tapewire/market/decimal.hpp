// Prices and sizes as venues write them, in decimal text, to integers: exactly, or not at all.
#pragma once

#include <cstdint>
#include <string_view>

namespace tapewire::market {

enum class Decimal { fits, not_a_number, digits_lost, too_large };

// text * 10^scale: a sign, digits with at most one point, and an exponent, each but the digits
// optional. `scale` is 0 to 18. Writes `out` only when it fits.
Decimal parse_decimal(std::string_view text, int scale, std::int64_t& out) noexcept;

}  // namespace tapewire::market
