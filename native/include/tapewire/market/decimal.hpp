// Exact conversion of prices and sizes from a venue's decimal text to integers.
#pragma once

#include <cstdint>
#include <string_view>

namespace tapewire::market {

enum class Decimal { fits, not_a_number, digits_lost, too_large };

// text * 10^scale. The text is a sign, digits with at most one point, and an exponent; all but the
// digits are optional. `scale` is 0 to 18. Sets `out` only if the result fits.
Decimal parse_decimal(std::string_view text, int scale, std::int64_t& out) noexcept;

}  // namespace tapewire::market
