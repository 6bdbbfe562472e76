// Orders by id, in time priority at each price.
//
// An order takes 32 bytes in a pool and is linked into the queue of its level; a level keeps the
// sum and the count of its orders, so tops and depth do not walk them. Freed entries are reused
// first: no allocation once the book has reached its size. Policies are the caller's: it has found
// the order and checked that the numbers fit.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tapewire/book/ladder.hpp"
#include "tapewire/book/order_index.hpp"
#include "tapewire/book/types.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::book {

class L3 {
    auto id_of() const noexcept {
        return [this](std::uint32_t slot) { return orders_[slot].id; };
    }

  public:
    static constexpr std::uint32_t kNone = OrderIndex::kNone;

    struct Order {
        std::uint64_t id;
        std::int64_t remaining;    // > 0
        std::uint32_t prev, next;  // in its queue; `next` links the free slots
        std::uint32_t level;       // 0: no price
        format::Side side;
    };
    static_assert(sizeof(Order) == 32);

    struct Level {
        std::int64_t price;
        std::int64_t size;  // the sum over its orders
        std::uint32_t head, tail;
        std::uint32_t orders;
    };

    // Where an order is: valid until the next add.
    using Place = OrderIndex::Place;
    Place place_of(std::uint64_t id) const noexcept { return index_.find(id, id_of()); }
    // Its slot, or kNone.
    std::uint32_t find(std::uint64_t id) const noexcept { return place_of(id).slot; }
    // For loops that know which orders come next: prefetches the entry of one, and some events
    // later the order. Wrong guesses are harmless. Not worth the instructions while all orders fit
    // into the cache next to the core.
    bool prefetches() const noexcept { return orders_.size() > kCachedOrders; }
    void prefetch_entry(std::uint64_t id) const noexcept { index_.prefetch(id); }
    void prefetch_order(std::uint64_t id) const noexcept {
        __builtin_prefetch(orders_.data() + index_.guess(id));
    }
    const Order& order(std::uint32_t slot) const noexcept { return orders_[slot]; }
    const Level& level(std::uint32_t slot) const noexcept { return levels_[slot]; }
    bool rests(std::uint32_t slot) const noexcept { return orders_[slot].level != 0; }

    enum class Added {
        added,
        known,      // the id is in the book
        too_large,  // the sum of its level would not fit in 64 bits
    };
    // Joins the end of the queue at its price; `qty` > 0. Changes nothing unless it returns added.
    Added add(std::uint64_t id, format::Side side, std::int64_t price, std::int64_t qty);
    // An order that is known but has no price yet. The id must not be in the book.
    void add_unpriced(std::uint64_t id, format::Side side, std::int64_t qty) {
        make(id, side, qty);
        ++unpriced_;
    }
    // Reduces the order by 0 < by <= remaining; removes it if nothing remains.
    void reduce(const Place& place, std::int64_t by) noexcept {
        Order& o = orders_[place.slot];
        if (by == o.remaining) return remove(place);
        o.remaining -= by;
        if (o.level != 0) levels_[o.level].size -= by;
    }
    void remove(const Place& place) noexcept;
    // Moves it to the end of the queue at a price (also at its own price). False as in add.
    bool move(std::uint32_t slot, std::int64_t price, std::int64_t qty);
    void move_to_unpriced(std::uint32_t slot, std::int64_t qty) noexcept;
    void clear() noexcept;

    const Ladder<std::uint32_t>& side(format::Side s) const noexcept {
        return sides_[s == format::Side::sell];
    }
    // The level at this price, or null.
    const Level* level_at(format::Side s, std::int64_t price) const noexcept {
        const std::uint32_t at = side(s).get(price);
        return at == 0 ? nullptr : &levels_[at];
    }
    // Whether the best bid is not below the best ask.
    bool crossed() const noexcept {
        const auto& [bids, asks] = sides_;
        return !bids.empty() && !asks.empty() && bids.best_price() >= asks.best_price();
    }
    std::size_t order_count() const noexcept { return index_.size(); }
    std::size_t unpriced_count() const noexcept { return unpriced_; }
    // Calls f(order) for each order without a price, by ascending id.
    template <typename F>
    void each_unpriced(F&& f) const {
        for (const std::uint32_t slot : unpriced_slots()) f(orders_[slot]);
    }
    std::size_t memory_bytes() const noexcept;
    bool consistent() const;  // for tests

  private:
    Ladder<std::uint32_t>& levels_of(format::Side s) noexcept {
        return sides_[s == format::Side::sell];  // an index: a branch would be unpredictable
    }
    // The slot of the new order, or kNone if the id is in the book.
    std::uint32_t make(std::uint64_t id, format::Side side, std::int64_t qty) {
        if (free_order_ == kNone) [[unlikely]]
            extend();
        const std::uint32_t slot = free_order_;
        if (!index_.insert(id, slot, id_of())) [[unlikely]]  // may throw: the slot is still free
            return kNone;
        free_order_ = orders_[slot].next;
        orders_[slot] = {id, qty, kNone, kNone, 0, side};
        return slot;
    }
    [[gnu::noinline]] void extend() {
        orders_.push_back({});
        free_order_ = static_cast<std::uint32_t>(orders_.size() - 1);
    }
    void unmake(const Place& place) noexcept {
        Order& o = orders_[place.slot];
        index_.erase(o.id, place);
        o.remaining = 0;
        o.next = free_order_;
        free_order_ = place.slot;
    }
    bool link(std::uint32_t slot, std::int64_t price);
    std::uint32_t new_level(format::Side side, std::int64_t price);
    void drop_level(const Order& last) noexcept;
    void unlink(std::uint32_t slot) noexcept;
    std::vector<std::uint32_t> unpriced_slots() const;

    static constexpr std::size_t kCachedOrders = std::size_t{1} << 13;  // 256 KiB of the pool

    // Bids and asks: slots of levels_.
    std::array<Ladder<std::uint32_t>, 2> sides_{Ladder<std::uint32_t>(format::Side::buy),
                                                Ladder<std::uint32_t>(format::Side::sell)};
    // Entry 0 is no order, and takes the links that the ends of a queue would write to a neighbour:
    // a branch there would be unpredictable.
    std::vector<Order> orders_{1};
    std::vector<Level> levels_{1};  // entry 0 is unused: 0 means no level
    OrderIndex index_;
    std::uint32_t free_order_ = kNone;
    std::uint32_t free_level_ = 0;  // linked through `head`
    std::size_t unpriced_ = 0;
};

// Inline: four of five events do nothing else.

inline L3::Added L3::add(std::uint64_t id, format::Side side, std::int64_t price,
                         std::int64_t qty) {
    const std::uint32_t slot = make(id, side, qty);
    if (slot == kNone) [[unlikely]]
        return Added::known;
    if (link(slot, price)) [[likely]]
        return Added::added;
    unmake(place_of(id));
    return Added::too_large;
}

inline void L3::remove(const Place& place) noexcept {
    if (orders_[place.slot].level == 0) [[unlikely]] {
        --unpriced_;
    } else {
        unlink(place.slot);
    }
    unmake(place);
}

inline bool L3::link(std::uint32_t slot, std::int64_t price) {
    Order& o = orders_[slot];
    std::uint32_t at = levels_of(o.side).get(price);
    if (at == 0) at = new_level(o.side, price);
    Level& level = levels_[at];
    std::int64_t sum;
    if (__builtin_add_overflow(level.size, o.remaining, &sum)) [[unlikely]]
        return false;
    level.size = sum;
    o.level = at;
    o.prev = level.tail;
    o.next = kNone;
    orders_[level.tail].next = slot;
    level.head = level.tail == kNone ? slot : level.head;
    level.tail = slot;
    ++level.orders;
    return true;
}

inline void L3::unlink(std::uint32_t slot) noexcept {
    Order& o = orders_[slot];
    Level& level = levels_[o.level];
    const std::uint32_t prev = o.prev, next = o.next;
    orders_[prev].next = next;
    orders_[next].prev = prev;
    level.head = prev == kNone ? next : level.head;
    level.tail = next == kNone ? prev : level.tail;
    level.size -= o.remaining;
    if (--level.orders == 0) drop_level(o);
    o.level = 0;
}

}  // namespace tapewire::book
