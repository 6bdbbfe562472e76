// The fields of the messages as a table, derived from the structs: numpy's dtypes are built from
// it, and the tests check the Python classes against it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "tapewire/format/market.hpp"
#include "tapewire/market/columns.hpp"

namespace tapewire::market {

struct FieldRow {
    const char* name;
    std::size_t offset;
    std::size_t bytes;
    char kind;  // 'u', 'i' or 'f', as in numpy
};

struct StructRow {
    const char* name;
    std::size_t bytes;
    std::vector<FieldRow> fields;  // without reserved bytes
};

namespace detail {

template <typename T>
constexpr char kind_of = std::is_floating_point_v<T> ? 'f'
                         : std::is_signed_v<T>       ? 'i'
                                                     : 'u';

}  // namespace detail

inline std::vector<StructRow> message_structs() {
#define TW_FIELD(type, member)                                 \
    FieldRow {                                                 \
        #member, offsetof(type, member), sizeof(type::member), \
            detail::kind_of<decltype(type::member)>            \
    }
    using namespace format;
    return {
        {"BookEventHeader",
         sizeof(BookEventHeader),
         {TW_FIELD(BookEventHeader, schema_version), TW_FIELD(BookEventHeader, record_len),
          TW_FIELD(BookEventHeader, endianness), TW_FIELD(BookEventHeader, venue_id),
          TW_FIELD(BookEventHeader, market_id), TW_FIELD(BookEventHeader, stream_id),
          TW_FIELD(BookEventHeader, ingest_ts_ns), TW_FIELD(BookEventHeader, exchange_ts_ns),
          TW_FIELD(BookEventHeader, seq), TW_FIELD(BookEventHeader, native_seq),
          TW_FIELD(BookEventHeader, event_type), TW_FIELD(BookEventHeader, book_mode),
          TW_FIELD(BookEventHeader, flags)}},
        {"L2Diff",
         sizeof(L2Diff),
         {TW_FIELD(L2Diff, update_id_first), TW_FIELD(L2Diff, update_id_last),
          TW_FIELD(L2Diff, update_id_prev), TW_FIELD(L2Diff, price_scale),
          TW_FIELD(L2Diff, size_scale), TW_FIELD(L2Diff, flags), TW_FIELD(L2Diff, bid_count),
          TW_FIELD(L2Diff, ask_count)}},
        {"L2Snapshot",
         sizeof(L2Snapshot),
         {TW_FIELD(L2Snapshot, price_scale), TW_FIELD(L2Snapshot, size_scale),
          TW_FIELD(L2Snapshot, bid_count), TW_FIELD(L2Snapshot, ask_count)}},
        {"Level", sizeof(Level), {TW_FIELD(Level, price), TW_FIELD(Level, size)}},
        {"L3Event",
         sizeof(L3Event),
         {TW_FIELD(L3Event, event_type), TW_FIELD(L3Event, side), TW_FIELD(L3Event, ord_type),
          TW_FIELD(L3Event, exec_type), TW_FIELD(L3Event, price_scale),
          TW_FIELD(L3Event, size_scale), TW_FIELD(L3Event, flags), TW_FIELD(L3Event, order_id),
          TW_FIELD(L3Event, bid_order_id), TW_FIELD(L3Event, ask_order_id),
          TW_FIELD(L3Event, price), TW_FIELD(L3Event, qty), TW_FIELD(L3Event, amt)}},
        {"Loss",
         sizeof(Loss),
         {TW_FIELD(Loss, first), TW_FIELD(Loss, last), TW_FIELD(Loss, cause)}},
        {"BookTicker",
         sizeof(BookTicker),
         {TW_FIELD(BookTicker, timestamp_ns), TW_FIELD(BookTicker, bid_price),
          TW_FIELD(BookTicker, bid_qty), TW_FIELD(BookTicker, ask_price),
          TW_FIELD(BookTicker, ask_qty), TW_FIELD(BookTicker, symbol_hash)}},
        {"Trade",
         sizeof(Trade),
         {TW_FIELD(Trade, timestamp_ns), TW_FIELD(Trade, price), TW_FIELD(Trade, qty),
          TW_FIELD(Trade, trade_id), TW_FIELD(Trade, buyer_order_id),
          TW_FIELD(Trade, seller_order_id), TW_FIELD(Trade, is_buyer_maker),
          TW_FIELD(Trade, symbol_hash)}},
        {"Quote",
         sizeof(Quote),
         {TW_FIELD(Quote, timestamp_ns), TW_FIELD(Quote, bid_price), TW_FIELD(Quote, bid_size),
          TW_FIELD(Quote, ask_price), TW_FIELD(Quote, ask_size), TW_FIELD(Quote, symbol_hash),
          TW_FIELD(Quote, market_id), TW_FIELD(Quote, price_scale), TW_FIELD(Quote, size_scale)}},
        {"TradeTick",
         sizeof(TradeTick),
         {TW_FIELD(TradeTick, timestamp_ns), TW_FIELD(TradeTick, price), TW_FIELD(TradeTick, size),
          TW_FIELD(TradeTick, trade_id), TW_FIELD(TradeTick, buyer_order_id),
          TW_FIELD(TradeTick, seller_order_id), TW_FIELD(TradeTick, symbol_hash),
          TW_FIELD(TradeTick, market_id), TW_FIELD(TradeTick, price_scale),
          TW_FIELD(TradeTick, size_scale), TW_FIELD(TradeTick, is_buyer_maker)}},
        {"LevelRow",
         sizeof(LevelRow),
         {TW_FIELD(LevelRow, event), TW_FIELD(LevelRow, side), TW_FIELD(LevelRow, price),
          TW_FIELD(LevelRow, size)}},
    };
#undef TW_FIELD
}

}  // namespace tapewire::market
