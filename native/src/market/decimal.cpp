#include "tapewire/market/decimal.hpp"

#include <array>
#include <cstddef>

namespace tapewire::market {

namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

constexpr std::uint64_t kMost = std::uint64_t{1} << 63;  // negative; positive: one less
constexpr std::uint64_t kRoomForOne = kMost / 10 - 1;    // up to this any further digit fits

constexpr std::array<std::uint64_t, 19> kPowers = [] {
    std::array<std::uint64_t, 19> powers{1};
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
    return powers;
}();

// Far above any exponent that matters, far below an overflow.
constexpr int kExponentLimit = 1'000'000;

// Reads an exponent after its letter; false if it is invalid.
bool read_exponent(const char* p, const char* end, int& out) noexcept {
    bool negative = false;
    if (p != end && (*p == '-' || *p == '+')) negative = *p++ == '-';
    if (p == end) return false;
    int value = 0;
    for (; p != end; ++p) {
        if (!is_digit(*p)) return false;
        if (value < kExponentLimit) value = value * 10 + (*p - '0');
    }
    out = negative ? -value : value;
    return true;
}

// value * 10^places; false, with value unchanged, if the result exceeds kMost. Value is not 0.
bool shift(std::uint64_t& value, std::int64_t places) noexcept {
    std::uint64_t shifted = 0;
    if (places >= static_cast<std::int64_t>(kPowers.size()) ||
        __builtin_mul_overflow(value, kPowers[static_cast<std::size_t>(places)], &shifted) ||
        shifted > kMost)
        return false;
    value = shifted;
    return true;
}

}  // namespace

Decimal parse_decimal(std::string_view text, int scale, std::int64_t& out) noexcept {
    const char* p = text.data();
    const char* const end = p + text.size();
    bool negative = false;
    if (p != end && (*p == '-' || *p == '+')) negative = *p++ == '-';

    std::uint64_t value = 0;
    std::int64_t zeros = 0;  // after a value that is nearly full: they may be removed again
    std::int64_t decimals = 0;
    bool any = false;
    bool point = false;
    bool overflow = false;
    for (; p != end; ++p) {
        const char c = *p;
        if (is_digit(c)) {
            const auto digit = static_cast<std::uint64_t>(c - '0');
            any = true;
            decimals += point;
            if (value <= kRoomForOne) [[likely]] {
                value = value * 10 + digit;
            } else if (digit == 0) {
                ++zeros;
            } else {
                overflow = overflow || !shift(value, zeros + 1);
                value += overflow ? 0 : digit;
                zeros = 0;
            }
        } else if (c == '.' && !point) {
            point = true;
        } else {
            break;
        }
    }
    if (!any) return Decimal::not_a_number;
    int exponent = 0;
    if (p != end && ((*p != 'e' && *p != 'E') || !read_exponent(p + 1, end, exponent)))
        return Decimal::not_a_number;
    if (value == 0) {
        out = 0;
        return Decimal::fits;
    }
    // The number is value * 10^power, in units of the scale.
    std::int64_t power = scale + exponent - decimals + zeros;
    for (; power < 0 && !overflow && value % 10 == 0; ++power) value /= 10;
    if (power < 0) return Decimal::digits_lost;
    if (overflow || !shift(value, power)) return Decimal::too_large;
    if (value > kMost - (negative ? 0 : 1)) return Decimal::too_large;
    out = static_cast<std::int64_t>(negative ? 0 - value : value);
    return Decimal::fits;
}

}  // namespace tapewire::market
