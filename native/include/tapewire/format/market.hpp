// The market data messages, protocol version 3: the payloads of records 0x1000 … 0x10FF.
//
// BookEvent (0x1000) is a BookEventHeader followed by, depending on book_mode and event_type:
//
//    book_mode l2, snapshot   L2Snapshot, bid_count levels, ask_count levels
//    book_mode l2, diff       L2Diff, bid_count levels, ask_count levels
//    book_mode l3, diff       L3Event
//    reset, heartbeat         nothing; in book_mode l3 an L3Event may follow, as in a diff
//    loss                     Loss, in both book modes
//
// BookEventHeader:
//    0     2     4        8  9 10    12       16       20       24               32
//    +-----+-----+--------+--+--+-----+--------+--------+--------+----------------+
//    | ver |  0  |rec len |en| 0|venue| market | stream |   0    |   ingest_ts    |
//    +-----+-----+--------+--+--+-----+--------+--------+--------+----------------+
//    |  exchange_ts   |      seq      |   native_seq    |ev|md|flags|      0       |
//    +----------------+---------------+-----------------+--+--+-----+--------------+
//    32               40              48                56 57 58    60             64
//
// Little-endian, as the supported machines are. Levels may be unaligned: copy them out.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

inline constexpr std::uint16_t kBookEvent = 0x1000;
inline constexpr std::uint16_t kBookTicker = 0x1001;
inline constexpr std::uint16_t kTrade = 0x1002;
inline constexpr std::uint16_t kQuote = 0x1003;
inline constexpr std::uint16_t kTradeTick = 0x1004;
inline constexpr std::uint16_t kVenueRaw = 0x10FF;

inline constexpr std::uint16_t kMarketVersion = 3;        // written, except for a loss
inline constexpr std::uint16_t kMarketVersionOldest = 2;  // still readable: the same layout
// Of a loss alone: earlier releases refuse it instead of ignoring it, and read the other events.
inline constexpr std::uint16_t kMarketVersionLoss = 4;
inline constexpr std::uint8_t kLittleEndian = 0;
inline constexpr std::uint8_t kMaxScale = 18;  // 10^18 is the largest power of ten in an i64

enum class EventType : std::uint8_t { snapshot = 1, diff = 2, reset = 3, heartbeat = 4, loss = 5 };
enum class BookMode : std::uint8_t { l2 = 0, l3 = 1 };
enum class L3Type : std::uint8_t {
    add = 1,
    cancel = 2,
    modify = 3,
    trade = 4,
    reset = 5,
    heartbeat = 6,
};
enum class Side : std::uint8_t { unknown = 0, buy = 1, sell = 2 };
// Why a book must not be trusted from a loss on.
enum class LossCause : std::uint16_t {
    rejected = 1,       // a row of the source was rejected
    missing = 2,        // sequence numbers of the feed are missing: first … last
    out_of_order = 3,   // sequence numbers or times of the feed go back
    damaged = 4,        // part of the source is damaged
    no_snapshot = 5,    // the source begins without a snapshot or reset
    unknown_order = 6,  // an event refers to an order that was never added
    venue = 7,          // the venue or the vendor reports lost messages
    partial = 8,        // the source has only events of orders at the best levels
};
inline constexpr std::uint16_t kMaxLossCause = 8;

// BookEventHeader.flags; the first two also in L2Diff.flags.
inline constexpr std::uint16_t kEventAbsolute = 1;  // sizes are absolute; 0 = no level
inline constexpr std::uint16_t kEventDelta = 2;     // sizes are changes
inline constexpr std::uint16_t kEventHasScale = 4;  // price_scale and size_scale were set
inline constexpr std::uint16_t kEventFlags = 7;

// L3Event.flags.
inline constexpr std::uint32_t kL3PriceIsMarket = 1;
inline constexpr std::uint32_t kL3OpeningAuction = 2;
inline constexpr std::uint32_t kL3ClosingAuction = 4;
inline constexpr std::uint32_t kL3RestrictedCancel = 8;  // a cancel in a window that forbids them
inline constexpr std::uint32_t kL3HasBidId = 16;
inline constexpr std::uint32_t kL3HasAskId = 32;
inline constexpr std::uint32_t kL3Flags = 63;

// TradeTick.is_buyer_maker.
inline constexpr std::uint8_t kMakerUnknown = 2;

struct BookEventHeader {
    std::uint16_t schema_version;  // kMarketVersion, kMarketVersionLoss of a loss
    std::uint8_t reserved0[2];
    std::uint32_t record_len;  // this header and all that follows: the payload length of the record
    std::uint8_t endianness;   // kLittleEndian
    std::uint8_t reserved1;
    std::uint16_t venue_id;  // see instruments.json
    std::uint32_t market_id;
    std::uint32_t stream_id;  // a venue's channel or shard; 0 where it has none
    std::uint8_t reserved2[4];
    std::uint64_t ingest_ts_ns;    // equals the record's timestamp_ns
    std::uint64_t exchange_ts_ns;  // the venue's own; 0 = absent
    std::uint64_t seq;             // written as 0: the record has its own
    std::uint64_t native_seq;      // the venue's sequence number of this event; 0 = absent
    std::uint8_t event_type;       // EventType
    std::uint8_t book_mode;        // BookMode
    std::uint16_t flags;           // kEvent…
    std::uint8_t reserved3[4];
};

static_assert(sizeof(BookEventHeader) == 64);
static_assert(offsetof(BookEventHeader, schema_version) == 0);
static_assert(offsetof(BookEventHeader, record_len) == 4);
static_assert(offsetof(BookEventHeader, endianness) == 8);
static_assert(offsetof(BookEventHeader, venue_id) == 10);
static_assert(offsetof(BookEventHeader, market_id) == 12);
static_assert(offsetof(BookEventHeader, stream_id) == 16);
static_assert(offsetof(BookEventHeader, ingest_ts_ns) == 24);
static_assert(offsetof(BookEventHeader, exchange_ts_ns) == 32);
static_assert(offsetof(BookEventHeader, seq) == 40);
static_assert(offsetof(BookEventHeader, native_seq) == 48);
static_assert(offsetof(BookEventHeader, event_type) == 56);
static_assert(offsetof(BookEventHeader, book_mode) == 57);
static_assert(offsetof(BookEventHeader, flags) == 58);
static_assert(offsetof(BookEventHeader, reserved3) == 60);

// The venue's update ids: `prev` is the last id of the previous update; all 0 if it has none.
struct L2Diff {
    std::uint64_t update_id_first;
    std::uint64_t update_id_last;
    std::uint64_t update_id_prev;
    std::uint8_t price_scale;  // price / 10^price_scale
    std::uint8_t size_scale;
    std::uint16_t flags;  // 0, or the same of kEventAbsolute and kEventDelta as in the header
    std::uint16_t bid_count;
    std::uint16_t ask_count;
};

static_assert(sizeof(L2Diff) == 32);
static_assert(offsetof(L2Diff, update_id_first) == 0);
static_assert(offsetof(L2Diff, update_id_last) == 8);
static_assert(offsetof(L2Diff, update_id_prev) == 16);
static_assert(offsetof(L2Diff, price_scale) == 24);
static_assert(offsetof(L2Diff, size_scale) == 25);
static_assert(offsetof(L2Diff, flags) == 26);
static_assert(offsetof(L2Diff, bid_count) == 28);
static_assert(offsetof(L2Diff, ask_count) == 30);

struct L2Snapshot {
    std::uint8_t price_scale;
    std::uint8_t size_scale;
    std::uint8_t reserved[2];
    std::uint32_t bid_count;
    std::uint32_t ask_count;
};

static_assert(sizeof(L2Snapshot) == 12);
static_assert(offsetof(L2Snapshot, price_scale) == 0);
static_assert(offsetof(L2Snapshot, size_scale) == 1);
static_assert(offsetof(L2Snapshot, bid_count) == 4);
static_assert(offsetof(L2Snapshot, ask_count) == 8);

struct Level {
    std::int64_t price;
    std::int64_t size;
};

static_assert(sizeof(Level) == 16);
static_assert(offsetof(Level, price) == 0);
static_assert(offsetof(Level, size) == 8);

// One order's event. price, qty and amt are 64-bit two's-complement numbers: negative prices are
// valid.
struct L3Event {
    std::uint8_t event_type;  // L3Type
    std::uint8_t side;        // Side
    std::uint8_t ord_type;    // the venue's own letter, 0 = absent
    std::uint8_t exec_type;   // the venue's own letter, 0 = absent
    std::uint8_t price_scale;
    std::uint8_t size_scale;
    std::uint8_t reserved0[2];
    std::uint32_t flags;  // kL3…
    std::uint8_t reserved1[4];
    std::uint64_t order_id;
    std::uint64_t bid_order_id;
    std::uint64_t ask_order_id;
    std::int64_t price;
    std::int64_t qty;
    std::int64_t amt;
};

static_assert(sizeof(L3Event) == 64);
static_assert(offsetof(L3Event, event_type) == 0);
static_assert(offsetof(L3Event, side) == 1);
static_assert(offsetof(L3Event, ord_type) == 2);
static_assert(offsetof(L3Event, exec_type) == 3);
static_assert(offsetof(L3Event, price_scale) == 4);
static_assert(offsetof(L3Event, size_scale) == 5);
static_assert(offsetof(L3Event, flags) == 8);
static_assert(offsetof(L3Event, order_id) == 16);
static_assert(offsetof(L3Event, bid_order_id) == 24);
static_assert(offsetof(L3Event, ask_order_id) == 32);
static_assert(offsetof(L3Event, price) == 40);
static_assert(offsetof(L3Event, qty) == 48);
static_assert(offsetof(L3Event, amt) == 56);

// What is missing or invalid before this place; as large as an L3Event, so that it fits into an
// array of order events. The book is untrusted until its next snapshot, or reset in book_mode l3.
struct Loss {
    std::uint64_t first;  // the feed's sequence numbers that are missing, inclusive; 0: unknown
    std::uint64_t last;
    std::uint16_t cause;  // LossCause
    std::uint8_t reserved[46];
};

static_assert(sizeof(Loss) == sizeof(L3Event));
static_assert(offsetof(Loss, first) == 0);
static_assert(offsetof(Loss, last) == 8);
static_assert(offsetof(Loss, cause) == 16);

// For interchange with chronicle-rs: floats. Tapewire's own feeds write Quote and TradeTick.
struct BookTicker {
    std::uint64_t timestamp_ns;
    double bid_price;
    double bid_qty;
    double ask_price;
    double ask_qty;
    std::uint64_t symbol_hash;  // XXH64 of "venue:symbol"
};

static_assert(sizeof(BookTicker) == 48);
static_assert(offsetof(BookTicker, timestamp_ns) == 0);
static_assert(offsetof(BookTicker, bid_price) == 8);
static_assert(offsetof(BookTicker, bid_qty) == 16);
static_assert(offsetof(BookTicker, ask_price) == 24);
static_assert(offsetof(BookTicker, ask_qty) == 32);
static_assert(offsetof(BookTicker, symbol_hash) == 40);

struct Trade {
    std::uint64_t timestamp_ns;
    double price;
    double qty;
    std::uint64_t trade_id;
    std::uint64_t buyer_order_id;
    std::uint64_t seller_order_id;
    std::uint8_t is_buyer_maker;
    std::uint8_t reserved[7];
    std::uint64_t symbol_hash;
};

static_assert(sizeof(Trade) == 64);
static_assert(offsetof(Trade, timestamp_ns) == 0);
static_assert(offsetof(Trade, price) == 8);
static_assert(offsetof(Trade, qty) == 16);
static_assert(offsetof(Trade, trade_id) == 24);
static_assert(offsetof(Trade, buyer_order_id) == 32);
static_assert(offsetof(Trade, seller_order_id) == 40);
static_assert(offsetof(Trade, is_buyer_maker) == 48);
static_assert(offsetof(Trade, symbol_hash) == 56);

// The best bid and ask of one market. timestamp_ns is the venue's, or ingest time if it sends none.
struct Quote {
    std::uint64_t timestamp_ns;
    std::int64_t bid_price;
    std::int64_t bid_size;
    std::int64_t ask_price;
    std::int64_t ask_size;
    std::uint64_t symbol_hash;
    std::uint32_t market_id;
    std::uint8_t price_scale;
    std::uint8_t size_scale;
    std::uint8_t reserved[2];
};

static_assert(sizeof(Quote) == 56);
static_assert(offsetof(Quote, timestamp_ns) == 0);
static_assert(offsetof(Quote, bid_price) == 8);
static_assert(offsetof(Quote, bid_size) == 16);
static_assert(offsetof(Quote, ask_price) == 24);
static_assert(offsetof(Quote, ask_size) == 32);
static_assert(offsetof(Quote, symbol_hash) == 40);
static_assert(offsetof(Quote, market_id) == 48);
static_assert(offsetof(Quote, price_scale) == 52);
static_assert(offsetof(Quote, size_scale) == 53);

// One trade. timestamp_ns is the venue's, or ingest time if it sends none.
struct TradeTick {
    std::uint64_t timestamp_ns;
    std::int64_t price;
    std::int64_t size;
    std::uint64_t trade_id;
    std::uint64_t buyer_order_id;
    std::uint64_t seller_order_id;
    std::uint64_t symbol_hash;
    std::uint32_t market_id;
    std::uint8_t price_scale;
    std::uint8_t size_scale;
    std::uint8_t is_buyer_maker;  // 1 the buyer was the maker, 0 the seller was, 2 unknown
    std::uint8_t reserved;
};

static_assert(sizeof(TradeTick) == 64);
static_assert(offsetof(TradeTick, timestamp_ns) == 0);
static_assert(offsetof(TradeTick, price) == 8);
static_assert(offsetof(TradeTick, size) == 16);
static_assert(offsetof(TradeTick, trade_id) == 24);
static_assert(offsetof(TradeTick, buyer_order_id) == 32);
static_assert(offsetof(TradeTick, seller_order_id) == 40);
static_assert(offsetof(TradeTick, symbol_hash) == 48);
static_assert(offsetof(TradeTick, market_id) == 56);
static_assert(offsetof(TradeTick, price_scale) == 60);
static_assert(offsetof(TradeTick, size_scale) == 61);
static_assert(offsetof(TradeTick, is_buyer_maker) == 62);

}  // namespace tapewire::format
