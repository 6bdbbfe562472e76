// Book events of a batch as columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapewire/cursor.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::market {

// One level of one event, and which event: they are numbered from 0, book events alone.
struct LevelRow {
    std::uint32_t event;
    std::uint8_t side;  // format::Side
    std::uint8_t reserved[3];
    std::int64_t price;
    std::int64_t size;
};

static_assert(sizeof(LevelRow) == 24);

struct BookCounts {
    std::size_t events = 0;
    std::size_t levels = 0;
};

// How much there is in records [from, to); records of other types are passed over. Every event is
// checked, so that the two below cannot fail on the same records.
BookCounts count_book_events(const BatchColumns& batch, std::size_t from, std::size_t to);

// `out` has room for all of them. `seq` is the record's own. What lies in a mapped file may be
// written to in between, by who must not: levels that have no room any more are corrupt_record.
void copy_headers(const BatchColumns& batch, std::size_t from, std::size_t to,
                  format::BookEventHeader* out);
void copy_levels(const BatchColumns& batch, std::size_t from, std::size_t to, LevelRow* out,
                 std::size_t room);

}  // namespace tapewire::market
