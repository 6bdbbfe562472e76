// Text tables: whatever the bytes are, every line is reported once, as a row or a bad row; the text
// split into two pieces anywhere gives the same rows; and levels grouped from them are events that
// can be read back.
#include <algorithm>
#include <string_view>

#include "fuzz_kit.hpp"
#include "tapewire/ingest/l2_groups.hpp"
#include "tapewire/ingest/rows.hpp"
#include "tapewire/market/event.hpp"

namespace {

using namespace fuzz;
using namespace tapewire::ingest;

RowParser make_parser() {
    RowParser parser({{Kind::decimal, 8},
                      {Kind::rounded, 2, true},
                      {Kind::word, 0, false, {"bid", "ask", "true"}},
                      {Kind::text},
                      {Kind::id},
                      {Kind::clock, 0, true},
                      {Kind::date, 0, true},
                      {Kind::datetime, 0, true}});
    parser.set_fields({0, 1, RowParser::kSkip, 2, 3, 4, 5, 6, 7});
    parser.set_keys({"a", "b", "c", "d", "e", "f", "g", "h"});
    return parser;
}

struct Parsed {
    std::vector<std::vector<std::int64_t>> rows;  // without their offsets in the piece
    std::vector<std::uint64_t> bad;
};

void parse(RowParser& parser, std::string_view bytes, bool last, bool pairs, Parsed& into,
           std::size_t& used) {
    const std::uint64_t before = parser.line();
    used = pairs ? parser.parse_pairs(bytes, last) : parser.parse_csv(bytes, last);
    REQUIRE(used <= bytes.size(), "more bytes were read than passed");
    REQUIRE(!last || used == bytes.size(), "the end was not read");
    std::uint64_t lines = 0;
    for (std::size_t at = 0; at < parser.rows().size(); at += parser.width()) {
        const std::int64_t* row = parser.rows().data() + at;
        REQUIRE(static_cast<std::size_t>(row[kOffset] + row[kLength]) <= bytes.size(),
                "a row outside the bytes");
        into.rows.emplace_back(row + kFirstColumn, row + parser.width());
        into.rows.back().push_back(row[kLine]);
        ++lines;
    }
    for (const BadRow& row : parser.bad()) {
        REQUIRE(row.offset + row.length <= bytes.size() && row.fault != Fault::none,
                "a bad row outside the bytes");
        into.bad.push_back(row.line);
        ++lines;
    }
    REQUIRE(lines <= parser.line() - before, "a line was reported more than once");
}

void check_groups(const Parsed& parsed) {
    std::vector<LevelRow> rows;
    for (const auto& row : parsed.rows) {
        const std::int64_t small = row[0] & 3;
        rows.push_back(
            {small, 1, 0, row[4] & 3, (row[4] >> 1 & 3) - 1, row[0], row[1], row.back()});
    }
    L2Grouper grouper(1, 1, 8, 8);
    const std::size_t half = rows.size() / 2;
    grouper.add(rows.data(), half);
    grouper.add(rows.data() + half, rows.size() - half);
    grouper.finish();
    std::size_t start = 0;
    std::size_t levels = 0;
    for (std::size_t i = 0; i < grouper.ends().size(); ++i) {
        tapewire::RecordView record{};
        record.timestamp_ns = grouper.timestamps_ns()[i];
        record.type_id = tapewire::format::kBookEvent;
        record.payload = grouper.payloads().data() + start;
        record.payload_len = static_cast<std::uint32_t>(grouper.ends()[i] - start);
        const auto event = tapewire::market::decode_book_event(record);
        levels += event.bid_count + event.ask_count;
        start = grouper.ends()[i];
    }
    const auto given =
        std::count_if(rows.begin(), rows.end(), [](const LevelRow& row) { return row.side >= 0; });
    REQUIRE(levels == static_cast<std::size_t>(given), "levels were lost");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const bool pairs = (data[0] & 1) != 0;
    const std::string_view bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
    const std::size_t cut = bytes.empty() ? 0 : data[0] * bytes.size() / 256;

    Parsed whole;
    std::size_t used;
    RowParser one = make_parser();
    parse(one, bytes, true, pairs, whole, used);

    Parsed pieces;
    RowParser two = make_parser();
    parse(two, bytes.substr(0, cut), false, pairs, pieces, used);
    parse(two, bytes.substr(used), true, pairs, pieces, used);
    REQUIRE(whole.rows == pieces.rows && whole.bad == pieces.bad,
            "splitting the text changes the rows");
    check_groups(whole);
    return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned /*seed*/) {
    return LLVMFuzzerMutate(data, size, max_size);
}
