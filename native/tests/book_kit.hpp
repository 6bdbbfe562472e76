// Events for books, as a decoder would give them.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/market/event.hpp"

namespace kit {

using tapewire::format::BookMode;
using tapewire::format::EventType;
using tapewire::format::L3Type;
using tapewire::format::Level;
using tapewire::format::Side;
using tapewire::market::BookEvent;
using Levels = std::vector<Level>;

inline BookEvent event(EventType type, BookMode mode) {
    BookEvent e;
    e.head.event_type = static_cast<std::uint8_t>(type);
    e.head.book_mode = static_cast<std::uint8_t>(mode);
    e.head.record_len = 128;
    e.price_scale = e.size_scale = 8;
    return e;
}

// Keeps the levels that events point to, for as long as the test runs.
inline const Levels& kept(const Levels& levels) {
    static std::deque<Levels> all;
    return all.emplace_back(levels);
}

inline BookEvent of_levels(EventType type, const Levels& bids, const Levels& asks) {
    BookEvent e = event(type, BookMode::l2);
    e.bids = reinterpret_cast<const std::byte*>(kept(bids).data());
    e.bid_count = static_cast<std::uint32_t>(bids.size());
    e.asks = reinterpret_cast<const std::byte*>(kept(asks).data());
    e.ask_count = static_cast<std::uint32_t>(asks.size());
    return e;
}
inline BookEvent snapshot(const Levels& bids, const Levels& asks, std::uint64_t id) {
    BookEvent e = of_levels(EventType::snapshot, bids, asks);
    e.update_last = e.head.native_seq = id;
    return e;
}
inline BookEvent diff(const Levels& bids, const Levels& asks, std::uint64_t prev,
                      std::uint64_t last) {
    BookEvent e = of_levels(EventType::diff, bids, asks);
    e.update_prev = prev;
    e.update_last = last;
    return e;
}
inline BookEvent order(L3Type type, std::uint64_t id, Side side = Side::unknown,
                       std::int64_t price = 0, std::int64_t qty = 0) {
    BookEvent e = event(EventType::diff, BookMode::l3);
    e.order.event_type = static_cast<std::uint8_t>(type);
    e.order.side = static_cast<std::uint8_t>(side);
    e.order.order_id = id;
    e.order.price = price;
    e.order.qty = qty;
    return e;
}
inline BookEvent trade(std::uint64_t bid, std::uint64_t ask, std::int64_t price, std::int64_t qty,
                       Side aggressor = Side::unknown) {
    BookEvent e = order(L3Type::trade, 0, aggressor, price, qty);
    e.order.bid_order_id = bid;
    e.order.ask_order_id = ask;
    if (bid != 0) e.order.flags |= tapewire::format::kL3HasBidId;
    if (ask != 0) e.order.flags |= tapewire::format::kL3HasAskId;
    return e;
}

}  // namespace kit
