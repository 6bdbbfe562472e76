// Parses text tables into columns of integers: comma-separated rows, and lines of key=value pairs.
//
// Numbers are exact. A decimal becomes an integer at its column's scale without going through a
// float; one that does not fit makes the row invalid and is never rounded. The exception must be
// requested by name (Kind::rounded): files written from binary floats print 20.58 as
// 20.579999999999998.
//
// A row is either valid or rejected as a unit. For any bytes, parsing throws nothing but
// std::bad_alloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tapewire::ingest {

enum class Kind : std::uint8_t {
    decimal,   // value * 10^scale, exactly
    rounded,   // the same, rounded half to even where that moves it by at most 1e-9 of itself
    word,      // one of the column's words: its index
    text,      // any text: its index in RowParser::texts()
    id,        // an integer of up to 64 bits, else the XXH64 of the text; 0 if empty
    clock,     // HH:MM:SS with up to nine decimals: nanoseconds since midnight
    date,      // YYYY.MM.DD, YYYY-MM-DD or YYYYMMDD: days since 1970-01-01
    datetime,  // a date, T or a blank, a clock: nanoseconds since 1970-01-01, file's own zone
};

enum class Fault : std::uint8_t {
    none,
    field_count,  // another number of fields than the header
    empty,        // no value in a column that requires one
    not_a_number,
    too_precise,   // digits would be lost at the column's scale
    out_of_range,  // does not fit 64 bits at the column's scale
    unknown_word,
    not_a_time,
    not_a_pair,  // not key=value
    repeated_key,
};

struct Column {
    Kind kind = Kind::decimal;
    std::uint8_t scale = 0;
    bool optional = false;  // an empty field is kMissing instead of a fault
    std::vector<std::string> words = {};
};

// The value of an optional column that is empty. No number parses to it.
inline constexpr std::int64_t kMissing = std::numeric_limits<std::int64_t>::min();

struct BadRow {
    std::uint64_t line;  // from 1
    std::uint64_t offset;
    std::uint64_t length;
    std::uint32_t column;
    Fault fault;
};

// The fields of every row before its columns.
enum RowField : std::size_t { kLine = 0, kOffset = 1, kLength = 2, kFirstColumn = 3 };

// [first, last) as a decimal; sets `out` if it returns Fault::none.
Fault parse_decimal(std::string_view text, std::uint8_t scale, bool rounded,
                    std::int64_t& out) noexcept;

class RowParser {
  public:
    static constexpr std::uint32_t kSkip = 0xFFFFFFFF;

    explicit RowParser(std::vector<Column> columns);

    // Assigns to each field of a row its column or kSkip.
    void set_fields(std::vector<std::uint32_t> fields);
    // The key of each column. Columns whose key is absent from a line are kMissing.
    void set_keys(const std::vector<std::string>& keys);

    // Parses the complete lines in `bytes` (with `last`, also what follows the last line feed),
    // replacing rows() and bad(). Returns how many bytes those lines take. Empty lines are counted
    // and skipped.
    std::size_t parse_csv(std::string_view bytes, bool last);
    std::size_t parse_pairs(std::string_view bytes, bool last);

    // width() values per row: line, offset in the bytes, length, then the columns.
    const std::vector<std::int64_t>& rows() const noexcept { return rows_; }
    std::size_t width() const noexcept { return kFirstColumn + columns_.size(); }
    const std::vector<BadRow>& bad() const noexcept { return bad_; }
    const std::vector<std::string>& texts() const noexcept { return texts_; }
    std::uint64_t line() const noexcept { return line_; }
    void set_line(std::uint64_t line) noexcept { line_ = line; }  // of the line before

  private:
    struct StringHash : std::hash<std::string_view> {
        using is_transparent = void;
    };

    template <typename ParseLine>
    std::size_t parse_lines(std::string_view bytes, bool last, ParseLine&& parse_line);
    Fault parse_row(std::string_view line, std::int64_t* out, std::uint32_t& column);
    Fault parse_pair_line(std::string_view line, std::int64_t* out, std::uint32_t& column);
    Fault parse_value(std::uint32_t column, std::string_view text, std::int64_t& out);
    std::int64_t intern(std::uint32_t column, std::string_view text);

    std::vector<Column> columns_;
    std::vector<std::uint32_t> fields_;
    std::unordered_map<std::string, std::uint32_t, StringHash, std::equal_to<>> keys_;
    std::vector<std::int64_t> rows_;
    std::vector<BadRow> bad_;
    std::vector<std::string> texts_;
    std::unordered_map<std::string, std::int64_t, StringHash, std::equal_to<>> text_numbers_;
    std::vector<std::int64_t> last_text_;  // of each column: most values repeat the one before
    std::uint64_t line_ = 0;
};

}  // namespace tapewire::ingest
