// The words that books are spoken of with: policies, causes of distrust, rows.
#pragma once

#include <cstdint>

#include "tapewire/format/market.hpp"

namespace tapewire::book {

// What a book does when it misses something. Each leaves the book frozen and untrusted.
enum class GapPolicy : std::uint8_t {
    raise,       // throw gap_detected once, then go on as `resync`
    quarantine,  // ignore everything, snapshots too, until release()
    resync,      // keep what comes, and start again from the next snapshot
};

enum class Rules : std::uint8_t { none, szse, sse };

// An event that names an order which is not there, or adds one that is.
enum class Unknown : std::uint8_t { ignore, raise, distrust };  // counted by each of them

// Why a book is not to be believed. Written into states of a loop alone, which have the release's
// version.
enum class Distrust : std::uint8_t {
    none,
    no_snapshot,      // L2 before its first snapshot
    venue_gap,        // the venue's update ids do not follow each other
    record_gap,       // the tape itself lacks records
    reset,            // the venue said that it begins anew
    negative_size,    // a size, or what a delta made of one, is below 0
    unknown_order,    // by Unknown::distrust
    duplicate_order,  // by Unknown::distrust
    does_not_fit,     // a number has no exact place in 64 bits at the book's scale
    overlap,          // deltas of which some are applied already: no telling which
    interrupted,      // an event was applied in part: there was no memory for the rest
    no_side,          // an order was added that is neither to buy nor to sell
};
const char* name_of(Distrust cause) noexcept;

struct Options {
    format::BookMode mode = format::BookMode::l2;
    std::uint8_t price_scale = 8;
    std::uint8_t size_scale = 8;
    Rules rules = Rules::none;
    GapPolicy on_gap = GapPolicy::raise;
    Unknown unknown = Unknown::ignore;
};

struct LevelRow {
    std::int64_t price, size;
    std::uint32_t orders;  // 0 in an L2 book, which does not know
};

// Best of both sides; an empty side, and both of an untrusted book, are zeros.
struct TopRow {
    std::int64_t timestamp_ns, bid_price, bid_size, ask_price, ask_size;
};

// The flags of an order's event that tell of the market, not of the order.
inline constexpr std::uint32_t kL3Phase =
    format::kL3OpeningAuction | format::kL3ClosingAuction | format::kL3RestrictedCancel;

enum class Applied : std::uint8_t {
    changed,
    unchanged,  // stale, a heartbeat, an unknown order
    buffered,   // kept until a snapshot comes
    ignored,    // the book is untrusted, and this does not help
};

struct Gap {
    Distrust cause = Distrust::none;
    // Missing update ids, or record numbers of a record_gap, both inclusive; 0, 0 for other causes.
    std::uint64_t first = 0, last = 0;
    std::uint64_t seq = 0;  // of the record at which it was noticed
    std::int64_t timestamp_ns = 0;
    bool resynced = false;  // a later snapshot made the book good again
};

}  // namespace tapewire::book
