// Types shared by all books: policies, causes of distrust, rows.
#pragma once

#include <cstdint>

#include "tapewire/format/market.hpp"

namespace tapewire::book {

// What a book does on a gap. Each policy leaves it frozen and untrusted.
enum class GapPolicy : std::uint8_t {
    raise,       // throw gap_detected once, then continue as `resync`
    quarantine,  // ignore everything, including snapshots, until release()
    resync,      // buffer diffs, and start again from the next snapshot
};

// What the events of a venue mean. `continuous`: orders that match trade before they are shown, so
// that outside auctions the book is never crossed. It is the only one that a book of levels has.
enum class Rules : std::uint8_t { none, szse, sse, continuous };
inline constexpr Rules kMaxRules = Rules::continuous;

// Handling of an event that names an order not in the book, or adds one that is: in a complete feed
// there is none, so it proves that something is missing. Counted in every case.
enum class Unknown : std::uint8_t { ignore, raise, distrust };

// Why a book is untrusted. Stored only in loop states, which carry the release's version.
enum class Distrust : std::uint8_t {
    none,
    no_snapshot,      // L2 before its first snapshot
    venue_gap,        // the venue's update ids are not contiguous
    record_gap,       // the log lacks records
    reset,            // the venue announced that it starts from scratch
    negative_size,    // a size, or the result of a delta, is below 0
    unknown_order,    // by Unknown::distrust
    duplicate_order,  // by Unknown::distrust
    does_not_fit,     // a number cannot be represented exactly in 64 bits at the book's scale
    overlap,          // some of the deltas are already applied, and it is unknown which
    interrupted,      // an event was applied in part: out of memory
    no_side,          // an order was added that is neither buy nor sell
    crossed,          // the best bid is not below the best ask, where the venue excludes that
    rejected,         // from here on by a loss event: see format::LossCause
    feed_gap,
    feed_order,
    damaged_source,
    venue_loss,
    partial_source,
};
inline constexpr Distrust kMaxDistrust = Distrust::partial_source;
// Whether a loss event was the cause.
constexpr bool is_loss(Distrust cause) noexcept { return cause >= Distrust::rejected; }
const char* name_of(Distrust cause) noexcept;

struct Options {
    format::BookMode mode = format::BookMode::l2;
    std::uint8_t price_scale = 8;
    std::uint8_t size_scale = 8;
    Rules rules = Rules::none;
    GapPolicy on_gap = GapPolicy::raise;
    Unknown unknown = Unknown::distrust;
};

struct LevelRow {
    std::int64_t price, size;
    std::uint32_t orders;  // 0 in an L2 book, which does not have them
};

// Best of both sides; zeros for an empty side, and for both sides of an untrusted book.
struct TopRow {
    std::int64_t timestamp_ns, bid_price, bid_size, ask_price, ask_size;
};

// The flags of an order's event that describe the market, not the order.
inline constexpr std::uint32_t kL3Phase =
    format::kL3OpeningAuction | format::kL3ClosingAuction | format::kL3RestrictedCancel;

enum class Applied : std::uint8_t {
    changed,
    unchanged,  // stale, a heartbeat, or an unknown order
    buffered,   // held until a snapshot arrives
    ignored,    // the book is untrusted, and this event does not change that
};

struct Gap {
    Distrust cause = Distrust::none;
    // Missing update ids, or for record_gap sequence numbers, both inclusive; 0, 0 for other
    // causes.
    std::uint64_t first = 0, last = 0;
    std::uint64_t seq = 0;  // of the record at which it was detected
    std::int64_t timestamp_ns = 0;
    bool resynced = false;  // a later snapshot has made the book valid again
};

}  // namespace tapewire::book
