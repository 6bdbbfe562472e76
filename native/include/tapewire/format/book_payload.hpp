// A saved book: the payload of a snapshot file.
//
//    0        4     6  7  8  9  10   12       16              24
//    +--------+-----+--+--+--+--+----+--------+---------------+
//    | CRC-32C|ver=1|md|ru|ps|ss| st | phase  |  last_update  |
//    +--------+-----+--+--+--+--+----+--------+---------------+
//    |   last_seq   |   last_time   | exchange_time | unknown |  32 … 56
//    +--------------+---------------+---------------+---------+
//    |  settling_id | settling_price| bids   | asks   | unpriced |   0   |  56 … 88
//    +--------------+---------------+--------+--------+----------+-------+
//
// then, bids before asks, each best first:
//    book_mode l2   a Level for each
//    book_mode l3   for each level a SavedLevel and its orders in queue order: SavedOrder
//                   then the orders without a price, by id: SavedUnpriced
//
// The checksum covers everything after it. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

inline constexpr std::uint16_t kBookPayloadVersion = 1;

struct BookPayload {
    std::uint32_t crc;       // CRC-32C of everything after it
    std::uint16_t version;   // kBookPayloadVersion
    std::uint8_t book_mode;  // BookMode
    std::uint8_t rules;      // 0 none, 1 SZSE, 2 SSE, 3 continuous
    std::uint8_t price_scale;
    std::uint8_t size_scale;
    std::uint16_t settling;  // 1: settling_id and settling_price are set
    std::uint32_t phase;     // kL3OpeningAuction and so on
    std::uint64_t last_update;
    std::uint64_t last_seq;
    std::int64_t last_timestamp_ns;
    std::uint64_t last_exchange_ns;
    std::uint64_t unknown_count;
    std::uint64_t settling_id;
    std::int64_t settling_price;
    std::uint32_t bid_levels;
    std::uint32_t ask_levels;
    std::uint32_t unpriced;
    std::uint32_t reserved;
};

static_assert(sizeof(BookPayload) == 88);
static_assert(offsetof(BookPayload, crc) == 0);
static_assert(offsetof(BookPayload, version) == 4);
static_assert(offsetof(BookPayload, book_mode) == 6);
static_assert(offsetof(BookPayload, rules) == 7);
static_assert(offsetof(BookPayload, price_scale) == 8);
static_assert(offsetof(BookPayload, size_scale) == 9);
static_assert(offsetof(BookPayload, settling) == 10);
static_assert(offsetof(BookPayload, phase) == 12);
static_assert(offsetof(BookPayload, last_update) == 16);
static_assert(offsetof(BookPayload, last_seq) == 24);
static_assert(offsetof(BookPayload, last_timestamp_ns) == 32);
static_assert(offsetof(BookPayload, last_exchange_ns) == 40);
static_assert(offsetof(BookPayload, unknown_count) == 48);
static_assert(offsetof(BookPayload, settling_id) == 56);
static_assert(offsetof(BookPayload, settling_price) == 64);
static_assert(offsetof(BookPayload, bid_levels) == 72);
static_assert(offsetof(BookPayload, ask_levels) == 76);
static_assert(offsetof(BookPayload, unpriced) == 80);
static_assert(offsetof(BookPayload, reserved) == 84);

struct SavedLevel {
    std::int64_t price;
    std::uint32_t orders;  // count of orders that follow; at least one
    std::uint32_t reserved;
};

static_assert(sizeof(SavedLevel) == 16);
static_assert(offsetof(SavedLevel, price) == 0);
static_assert(offsetof(SavedLevel, orders) == 8);
static_assert(offsetof(SavedLevel, reserved) == 12);

struct SavedOrder {
    std::uint64_t id;
    std::int64_t remaining;  // > 0
};

static_assert(sizeof(SavedOrder) == 16);
static_assert(offsetof(SavedOrder, id) == 0);
static_assert(offsetof(SavedOrder, remaining) == 8);

struct SavedUnpriced {
    std::uint64_t id;
    std::int64_t remaining;  // > 0
    std::uint64_t side;      // 1 buy, 2 sell
};

static_assert(sizeof(SavedUnpriced) == 24);
static_assert(offsetof(SavedUnpriced, id) == 0);
static_assert(offsetof(SavedUnpriced, remaining) == 8);
static_assert(offsetof(SavedUnpriced, side) == 16);

}  // namespace tapewire::format
