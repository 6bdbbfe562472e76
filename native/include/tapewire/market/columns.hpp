// The book events of a batch as columns.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tapewire/cursor.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::market {

// One level of one event. `event` is its index from 0, counting book events only.
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

// Counts the book events and levels in records [from, to); other types are skipped. Checks every
// event, so the two functions below cannot fail on the same records.
BookCounts count_book_events(const BatchColumns& batch, std::size_t from, std::size_t to);

// `out` has space for all of them. `seq` is the sequence number of the record. Another process may
// write to a mapped file in between, although it must not: levels that no longer fit are
// corrupt_record.
void copy_headers(const BatchColumns& batch, std::size_t from, std::size_t to,
                  format::BookEventHeader* out);
void copy_levels(const BatchColumns& batch, std::size_t from, std::size_t to, LevelRow* out,
                 std::size_t room);

}  // namespace tapewire::market
