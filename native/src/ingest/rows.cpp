#include "tapewire/ingest/rows.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstring>

#include "tapewire/error.hpp"
#include "tapewire/market/decimal.hpp"
#include "tapewire/xxhash.hpp"

namespace tapewire::ingest {

namespace {

constexpr int kDigitsMax = 19;  // any 19 digits fit in 64 bits
constexpr std::uint64_t kInt64Max = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t kNsPerSecond = 1'000'000'000;

constexpr std::array<std::uint64_t, kDigitsMax + 1> kPowers = [] {
    std::array<std::uint64_t, kDigitsMax + 1> powers{1};
    for (std::size_t i = 1; i < powers.size(); ++i) powers[i] = powers[i - 1] * 10;
    return powers;
}();

bool is_digit(char c) noexcept { return static_cast<unsigned char>(c - '0') < 10; }

// The value is mantissa * 10^exponent; `lost` if it has more digits than that.
struct Decimal {
    std::uint64_t mantissa = 0;
    std::int64_t exponent = 0;
    bool negative = false;
    bool lost = false;
};

// The digits after an 'e'. Five are enough to be out of range for any mantissa.
bool read_exponent(const char* p, const char* end, std::int64_t& exponent) noexcept {
    const bool negative = p != end && *p == '-';
    if (p != end && (*p == '-' || *p == '+')) ++p;
    if (p == end || end - p > 5) return false;
    std::int64_t value = 0;
    for (; p != end; ++p) {
        if (!is_digit(*p)) return false;
        value = value * 10 + (*p - '0');
    }
    exponent += negative ? -value : value;
    return true;
}

bool read_decimal(std::string_view text, Decimal& out) noexcept {
    const char* p = text.data();
    const char* const end = p + text.size();
    if (p != end && (*p == '-' || *p == '+')) out.negative = *p++ == '-';
    bool any = false;
    bool fraction = false;
    int digits = 0;
    for (; p != end; ++p) {
        if (is_digit(*p)) {
            any = true;
            if (digits < kDigitsMax) {
                out.mantissa = out.mantissa * 10 + static_cast<std::uint64_t>(*p - '0');
                digits += out.mantissa != 0;
                out.exponent -= fraction;
            } else {
                out.lost |= *p != '0';
                out.exponent += !fraction;
            }
        } else if (*p == '.' && !fraction) {
            fraction = true;
        } else {
            break;
        }
    }
    if (!any) return false;
    if (p == end) return true;
    return (*p == 'e' || *p == 'E') && read_exponent(p + 1, end, out.exponent);
}

// mantissa / 10^places, rounded half to even if that changes it by no more than 1e-9 of its value.
// `lost`: significant digits follow the mantissa.
Fault divide_rounded(std::uint64_t mantissa, bool lost, std::int64_t places,
                     std::uint64_t& out) noexcept {
    if (places > kDigitsMax) return Fault::too_precise;
    const std::uint64_t unit = kPowers[static_cast<std::size_t>(places)];
    out = mantissa / unit;
    const std::uint64_t below = mantissa % unit;
    const std::uint64_t above = unit - below;
    if (std::min(below, above) > mantissa / 1'000'000'000) return Fault::too_precise;
    out += below > above || (below == above && (lost || out % 2 == 1));
    return Fault::none;
}

// A decimal with more digits than the scale.
Fault parse_rounded(std::string_view text, std::uint8_t scale, std::int64_t& out) noexcept {
    Decimal decimal;
    if (!read_decimal(text, decimal)) return Fault::not_a_number;
    const std::int64_t places = -(decimal.exponent + scale);
    if (places <= 0) return Fault::too_precise;
    std::uint64_t value;
    const Fault fault = divide_rounded(decimal.mantissa, decimal.lost, places, value);
    if (fault != Fault::none) return fault;
    if (value > kInt64Max) return Fault::out_of_range;
    out = decimal.negative ? -static_cast<std::int64_t>(value) : static_cast<std::int64_t>(value);
    return Fault::none;
}

bool read_number(const char* p, std::size_t n, std::int64_t& out) noexcept {
    out = 0;
    for (std::size_t i = 0; i < n; ++i) {
        if (!is_digit(p[i])) return false;
        out = out * 10 + (p[i] - '0');
    }
    return true;
}

bool parse_clock(std::string_view text, std::int64_t& out) noexcept {
    if (text.size() < 8 || text[2] != ':' || text[5] != ':') return false;
    std::int64_t hours, minutes, seconds, fraction = 0;
    if (!read_number(text.data(), 2, hours) || !read_number(text.data() + 3, 2, minutes) ||
        !read_number(text.data() + 6, 2, seconds))
        return false;
    if (hours > 23 || minutes > 59 || seconds > 59) return false;
    if (text.size() > 8) {
        const std::size_t digits = text.size() - 9;
        if (text[8] != '.' || digits == 0 || digits > 9 ||
            !read_number(text.data() + 9, digits, fraction))
            return false;
        fraction *= static_cast<std::int64_t>(kPowers[9 - digits]);
    }
    out = ((hours * 60 + minutes) * 60 + seconds) * kNsPerSecond + fraction;
    return true;
}

// 1970 to 2261: such a time in nanoseconds fits in 64 bits.
bool parse_date(std::string_view text, std::int64_t& out) noexcept {
    std::int64_t year, month, day;
    const bool packed = text.size() == 8;
    if (!packed && (text.size() != 10 || text[4] != text[7] ||
                    (text[4] != '.' && text[4] != '-' && text[4] != '/')))
        return false;
    if (!read_number(text.data(), 4, year) ||
        !read_number(text.data() + (packed ? 4 : 5), 2, month) ||
        !read_number(text.data() + (packed ? 6 : 8), 2, day))
        return false;
    const std::chrono::year_month_day date{std::chrono::year(static_cast<int>(year)),
                                           std::chrono::month(static_cast<unsigned>(month)),
                                           std::chrono::day(static_cast<unsigned>(day))};
    if (!date.ok() || year < 1970 || year > 2261) return false;
    out = std::chrono::sys_days(date).time_since_epoch().count();
    return true;
}

bool parse_datetime(std::string_view text, std::int64_t& out) noexcept {
    const std::size_t at = text.find_first_of("T ");
    std::int64_t days, time;
    if (at == std::string_view::npos || !parse_date(text.substr(0, at), days) ||
        !parse_clock(text.substr(at + 1), time))
        return false;
    out = days * 86'400 * kNsPerSecond + time;
    return true;
}

std::int64_t parse_id(std::string_view text) noexcept {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || stop != end)
        number = text.empty() ? 0 : xxh64(std::as_bytes(std::span(text.data(), text.size())));
    return static_cast<std::int64_t>(number);
}

bool is_blank(char c) noexcept { return c == ' ' || c == '\t'; }

// The next field of a row, without the quotes around it; `at` moves past its comma, or past the
// line's end after the last field.
std::string_view next_field(std::string_view line, std::size_t& at) noexcept {
    const std::size_t first = at;
    if (first < line.size() && line[first] == '"') {
        const std::size_t quote = line.find('"', first + 1);
        if (quote != std::string_view::npos &&
            (quote + 1 == line.size() || line[quote + 1] == ',')) {
            at = quote + 2;
            return line.substr(first + 1, quote - first - 1);
        }
    }
    std::size_t comma = first;
    while (comma < line.size() && line[comma] != ',') ++comma;
    at = comma + 1;
    return line.substr(first, comma - first);
}

}  // namespace

Fault parse_decimal(std::string_view text, std::uint8_t scale, bool rounded,
                    std::int64_t& out) noexcept {
    switch (market::parse_decimal(text, scale, out)) {
        case market::Decimal::fits:
            return out == kMissing ? Fault::out_of_range : Fault::none;
        case market::Decimal::not_a_number:
            return Fault::not_a_number;
        case market::Decimal::too_large:
            return Fault::out_of_range;
        case market::Decimal::digits_lost:
            break;
    }
    return rounded ? parse_rounded(text, scale, out) : Fault::too_precise;
}

RowParser::RowParser(std::vector<Column> columns)
    : columns_(std::move(columns)), last_text_(columns_.size(), -1) {
    for (const Column& column : columns_) {
        if (column.scale > 18)
            throw Error(Errc::invalid_option,
                        "a scale must be at most 18: scale=" + std::to_string(column.scale));
    }
}

void RowParser::set_fields(std::vector<std::uint32_t> fields) {
    for (const std::uint32_t column : fields) {
        if (column != kSkip && column >= columns_.size())
            throw Error(Errc::invalid_option, "no such column: column=" + std::to_string(column));
    }
    fields_ = std::move(fields);
}

void RowParser::set_keys(const std::vector<std::string>& keys) {
    if (keys.size() != columns_.size())
        throw Error(Errc::invalid_option,
                    "each column needs a key: keys=" + std::to_string(keys.size()));
    keys_.clear();
    for (std::uint32_t i = 0; i < keys.size(); ++i) keys_.emplace(keys[i], i);
}

std::int64_t RowParser::intern(std::uint32_t column, std::string_view text) {
    std::int64_t& last = last_text_[column];
    if (last >= 0 && texts_[static_cast<std::size_t>(last)] == text) return last;
    const auto found = text_numbers_.find(text);
    if (found != text_numbers_.end()) return last = found->second;
    const auto number = static_cast<std::int64_t>(texts_.size());
    texts_.emplace_back(text);
    text_numbers_.emplace(text, number);
    return last = number;
}

Fault RowParser::parse_value(std::uint32_t index, std::string_view text, std::int64_t& out) {
    const Column& column = columns_[index];
    if (text.empty() && column.kind != Kind::id) {
        out = kMissing;
        return column.optional ? Fault::none : Fault::empty;
    }
    bool right = true;
    switch (column.kind) {
        case Kind::decimal:
            return parse_decimal(text, column.scale, false, out);
        case Kind::rounded:
            return parse_decimal(text, column.scale, true, out);
        case Kind::word: {
            const auto found = std::find(column.words.begin(), column.words.end(), text);
            out = found - column.words.begin();
            return found == column.words.end() ? Fault::unknown_word : Fault::none;
        }
        case Kind::text:
            out = intern(index, text);
            return Fault::none;
        case Kind::id:
            out = parse_id(text);
            return Fault::none;
        case Kind::clock:
            right = parse_clock(text, out);
            break;
        case Kind::date:
            right = parse_date(text, out);
            break;
        case Kind::datetime:
            right = parse_datetime(text, out);
            break;
    }
    return right ? Fault::none : Fault::not_a_time;
}

Fault RowParser::parse_row(std::string_view line, std::int64_t* out, std::uint32_t& column) {
    std::size_t at = 0;
    for (const std::uint32_t field_column : fields_) {
        if (at > line.size()) return Fault::field_count;
        const std::string_view field = next_field(line, at);
        if (field_column == kSkip) continue;
        column = field_column;
        const Fault fault = parse_value(column, field, out[column]);
        if (fault != Fault::none) return fault;
    }
    return at > line.size() ? Fault::none : Fault::field_count;
}

Fault RowParser::parse_pair_line(std::string_view line, std::int64_t* out, std::uint32_t& column) {
    if (line.starts_with("//")) line.remove_prefix(2);
    std::fill_n(out, columns_.size(), kMissing);
    const char* p = line.data();
    const char* const end = p + line.size();
    while (true) {
        while (p != end && is_blank(*p)) ++p;
        if (p == end) return Fault::none;
        const char* const key = p;
        while (p != end && *p != '=' && !is_blank(*p)) ++p;
        if (p == end || *p != '=' || p == key) return Fault::not_a_pair;
        const std::string_view name(key, static_cast<std::size_t>(p - key));
        const char* const value = ++p;
        while (p != end && !is_blank(*p)) ++p;
        const auto found = keys_.find(name);
        if (found == keys_.end()) continue;
        column = found->second;
        if (out[column] != kMissing) return Fault::repeated_key;
        const std::string_view text(value, static_cast<std::size_t>(p - value));
        const Fault fault = parse_value(column, text, out[column]);
        if (fault != Fault::none) return fault;
    }
}

template <typename ParseLine>
std::size_t RowParser::parse_lines(std::string_view bytes, bool last, ParseLine&& parse_line) {
    rows_.clear();
    bad_.clear();
    const std::size_t row_width = width();
    std::size_t at = 0;
    while (at < bytes.size()) {
        const auto* feed =
            static_cast<const char*>(std::memchr(bytes.data() + at, '\n', bytes.size() - at));
        if (feed == nullptr && !last) break;
        const std::size_t end =
            feed == nullptr ? bytes.size() : static_cast<std::size_t>(feed - bytes.data());
        std::string_view line = bytes.substr(at, end - at);
        if (line.ends_with('\r')) line.remove_suffix(1);
        const std::size_t offset = at;
        at = feed == nullptr ? end : end + 1;
        ++line_;
        if (line.empty()) continue;

        const std::size_t row = rows_.size();
        rows_.resize(row + row_width);
        rows_[row + kLine] = static_cast<std::int64_t>(line_);
        rows_[row + kOffset] = static_cast<std::int64_t>(offset);
        rows_[row + kLength] = static_cast<std::int64_t>(line.size());
        std::uint32_t column = 0;
        const Fault fault = parse_line(line, rows_.data() + row + kFirstColumn, column);
        if (fault != Fault::none) {
            rows_.resize(row);
            bad_.push_back({line_, offset, line.size(), column, fault});
        }
    }
    return at;
}

std::size_t RowParser::parse_csv(std::string_view bytes, bool last) {
    return parse_lines(bytes, last, [this](auto line, auto* out, auto& column) {
        return parse_row(line, out, column);
    });
}

std::size_t RowParser::parse_pairs(std::string_view bytes, bool last) {
    return parse_lines(bytes, last, [this](auto line, auto* out, auto& column) {
        return parse_pair_line(line, out, column);
    });
}

}  // namespace tapewire::ingest
