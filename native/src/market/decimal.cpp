#include "tapewire/market/decimal.hpp"

namespace tapewire::market {

namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

// Of the digits: a digit more always fits behind, for this is far from the end of 64 bits.
constexpr std::uint64_t kMost = std::uint64_t{1} << 63;

// Far beyond any exponent that can matter, far below what overflows.
constexpr int kExponentLimit = 1'000'000;

// Reads an exponent behind its letter; false when it is none.
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

// value * 10^places; false, and value as it was or part of it, when that is beyond an i64 anyway.
bool shift(std::uint64_t& value, std::int64_t places) noexcept {
    for (; places > 0; --places) {
        if (value > kMost / 10) return false;
        value *= 10;
    }
    return true;
}

}  // namespace

Decimal parse_decimal(std::string_view text, int scale, std::int64_t& out) noexcept {
    const char* p = text.data();
    const char* const end = p + text.size();
    bool negative = false;
    if (p != end && (*p == '-' || *p == '+')) negative = *p++ == '-';

    std::uint64_t value = 0;
    std::int64_t zeros = 0;  // behind the last other digit: counted, for they may be cut off again
    std::int64_t decimals = 0;
    bool any = false;
    bool point = false;
    bool overflow = false;
    for (; p != end; ++p) {
        const char c = *p;
        if (is_digit(c)) {
            any = true;
            decimals += point;
            if (c == '0') {
                zeros += value != 0;
                continue;
            }
            overflow = overflow || !shift(value, zeros + 1);
            zeros = 0;
            value += static_cast<std::uint64_t>(c - '0');
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
    // The number is value * 10^power, in units of the scale; value does not end with a zero.
    const std::int64_t power = scale + exponent - decimals + zeros;
    if (power < 0) return Decimal::digits_lost;
    if (overflow || !shift(value, power)) return Decimal::too_large;
    if (value > kMost - (negative ? 0 : 1)) return Decimal::too_large;
    out = static_cast<std::int64_t>(negative ? 0 - value : value);
    return Decimal::fits;
}

}  // namespace tapewire::market
