// Orders by id, in time priority at each price.
//
// An order takes 32 bytes in a pool and is linked into the queue of its level; a level keeps the
// sum and the count of its orders, so tops and depth do not walk them. Freed entries are reused
// first: no allocation once the book has reached its size. Policies are the caller's: it has found
// the order and checked that the numbers fit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tapewire/book/ladder.hpp"
#include "tapewire/book/order_index.hpp"
#include "tapewire/book/types.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::book {

class L3 {
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

    std::uint32_t find(std::uint64_t id) const noexcept {
        return index_.find(id, [this](std::uint32_t slot) { return orders_[slot].id; });
    }
    // For loops that know which orders come next: prefetches the entry of one, and some events
    // later the order and its neighbours. Wrong guesses are harmless.
    void prefetch_entry(std::uint64_t id) const noexcept { index_.prefetch(id); }
    void prefetch_order(std::uint64_t id) const noexcept {
        const std::uint32_t slot = index_.guess(id);
        __builtin_prefetch(orders_.data() + (slot == kNone ? 0 : slot));
    }
    const Order& order(std::uint32_t slot) const noexcept { return orders_[slot]; }
    const Level& level(std::uint32_t slot) const noexcept { return levels_[slot]; }
    bool rests(std::uint32_t slot) const noexcept { return orders_[slot].level != 0; }

    // The id must not be in the book, and `qty` > 0. Joins the end of the queue at its price.
    // Returns false, with nothing changed, if the sum of its level would not fit in 64 bits.
    bool add(std::uint64_t id, format::Side side, std::int64_t price, std::int64_t qty);
    // An order that is known but has no price yet.
    void add_unpriced(std::uint64_t id, format::Side side, std::int64_t qty) {
        make(id, side, qty);
        ++unpriced_;
    }
    // Reduces the order by 0 < by <= remaining; removes it if nothing remains.
    void reduce(std::uint32_t slot, std::int64_t by) noexcept {
        Order& o = orders_[slot];
        if (by == o.remaining) return remove(slot);
        o.remaining -= by;
        if (o.level != 0) levels_[o.level].size -= by;
    }
    void remove(std::uint32_t slot) noexcept;
    // Moves it to the end of the queue at a price (also at its own price). False as in add.
    bool move(std::uint32_t slot, std::int64_t price, std::int64_t qty);
    void move_to_unpriced(std::uint32_t slot, std::int64_t qty) noexcept;
    void clear() noexcept;

    const Ladder<std::uint32_t>& side(format::Side s) const noexcept {
        return s == format::Side::buy ? bids_ : asks_;
    }
    // The level at this price, or null.
    const Level* level_at(format::Side s, std::int64_t price) const noexcept {
        const std::uint32_t at = side(s).get(price);
        return at == 0 ? nullptr : &levels_[at];
    }
    // Whether the best bid is not below the best ask.
    bool crossed() const noexcept {
        return !bids_.empty() && !asks_.empty() && bids_.best_price() >= asks_.best_price();
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
        return s == format::Side::buy ? bids_ : asks_;
    }
    std::uint32_t make(std::uint64_t id, format::Side side, std::int64_t qty) {
        std::uint32_t slot = free_order_;
        if (slot == kNone) [[unlikely]] {
            slot = static_cast<std::uint32_t>(orders_.size());
            orders_.push_back({});
            orders_[slot].next = kNone;
        }
        index_.insert(id, slot);  // may throw: the slot is still free
        free_order_ = orders_[slot].next;
        orders_[slot] = {id, qty, kNone, kNone, 0, side};
        return slot;
    }
    void unmake(std::uint32_t slot) noexcept {
        Order& o = orders_[slot];
        index_.erase(o.id, slot);
        o.remaining = 0;
        o.next = free_order_;
        free_order_ = slot;
    }
    bool link(std::uint32_t slot, std::int64_t price);
    void unlink(std::uint32_t slot) noexcept;
    std::vector<std::uint32_t> unpriced_slots() const;

    Ladder<std::uint32_t> bids_{format::Side::buy}, asks_{format::Side::sell};  // slots of levels_
    std::vector<Order> orders_;
    std::vector<Level> levels_{1};  // entry 0 is unused: 0 means no level
    OrderIndex index_;
    std::uint32_t free_order_ = kNone;
    std::uint32_t free_level_ = 0;  // linked through `head`
    std::size_t unpriced_ = 0;
};

// Inline: four of five events do nothing else.

inline bool L3::add(std::uint64_t id, format::Side side, std::int64_t price, std::int64_t qty) {
    const std::uint32_t slot = make(id, side, qty);
    const bool linked = link(slot, price);
    if (!linked) [[unlikely]]
        unmake(slot);
    return linked;
}

inline void L3::remove(std::uint32_t slot) noexcept {
    if (orders_[slot].level == 0) [[unlikely]] {
        --unpriced_;
    } else {
        unlink(slot);
    }
    unmake(slot);
}

inline bool L3::link(std::uint32_t slot, std::int64_t price) {
    Order& o = orders_[slot];
    auto& levels = levels_of(o.side);
    std::uint32_t at = levels.get(price);
    if (at == 0) {
        at = free_level_;
        if (at == 0) {
            at = static_cast<std::uint32_t>(levels_.size());
            levels_.push_back({});
        }
        levels.set(price, at);  // may throw: the level is still free
        free_level_ = levels_[at].head;
        levels_[at] = {price, 0, kNone, kNone, 0};
    }
    Level& level = levels_[at];
    std::int64_t sum;
    if (__builtin_add_overflow(level.size, o.remaining, &sum)) [[unlikely]]
        return false;
    level.size = sum;
    o.level = at;
    o.prev = level.tail;
    o.next = kNone;
    // A select between two addresses, here and below: a branch would be unpredictable.
    std::uint32_t* const before = level.tail == kNone ? &level.head : &orders_[level.tail].next;
    *before = slot;
    level.tail = slot;
    ++level.orders;
    return true;
}

inline void L3::unlink(std::uint32_t slot) noexcept {
    Order& o = orders_[slot];
    Level& level = levels_[o.level];
    std::uint32_t* const before = o.prev == kNone ? &level.head : &orders_[o.prev].next;
    std::uint32_t* const after = o.next == kNone ? &level.tail : &orders_[o.next].prev;
    *before = o.next;
    *after = o.prev;
    level.size -= o.remaining;
    if (--level.orders == 0) {
        levels_of(o.side).set(level.price, 0);
        level.head = free_level_;
        free_level_ = o.level;
    }
    o.level = 0;
}

}  // namespace tapewire::book
