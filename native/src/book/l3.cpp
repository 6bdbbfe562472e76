#include "tapewire/book/l3.hpp"

#include <algorithm>
#include <cassert>

namespace tapewire::book {

bool L3::move(std::uint32_t slot, std::int64_t price, std::int64_t qty) {
    const Order& o = orders_[slot];
    assert(qty > 0 && o.remaining > 0);
    if (const Level* to = level_at(o.side, price)) {
        const bool same = o.level != 0 && to == &levels_[o.level];
        std::int64_t sum = to->size - (same ? o.remaining : 0);
        if (__builtin_add_overflow(sum, qty, &sum)) return false;
    }
    if (rests(slot)) {
        unlink(slot);
    } else {
        --unpriced_;
    }
    orders_[slot].remaining = qty;
    return link(slot, price);
}

void L3::move_to_unpriced(std::uint32_t slot, std::int64_t qty) noexcept {
    assert(qty > 0 && orders_[slot].remaining > 0);
    if (rests(slot)) {
        unlink(slot);
        ++unpriced_;
    }
    orders_[slot].remaining = qty;
}

void L3::clear() noexcept {
    bids_.clear();
    asks_.clear();
    orders_.clear();
    levels_.resize(1);
    index_.clear();
    free_order_ = kNone;
    free_level_ = 0;
    unpriced_ = 0;
}

std::vector<std::uint32_t> L3::unpriced_slots() const {
    std::vector<std::uint32_t> slots;
    if (unpriced_ == 0) return slots;
    for (std::uint32_t slot = 0; slot < orders_.size(); ++slot)
        if (orders_[slot].remaining > 0 && !rests(slot)) slots.push_back(slot);
    std::sort(slots.begin(), slots.end(),
              [this](auto a, auto b) { return orders_[a].id < orders_[b].id; });
    return slots;
}

std::size_t L3::memory_bytes() const noexcept {
    return bids_.memory_bytes() + asks_.memory_bytes() + orders_.capacity() * sizeof(Order) +
           levels_.capacity() * sizeof(Level) + index_.memory_bytes();
}

bool L3::consistent() const {
    if (!bids_.consistent() || !asks_.consistent()) return false;
    std::size_t seen = unpriced_slots().size();
    if (seen != unpriced_) return false;
    bool right = true;
    for (const format::Side s : {format::Side::buy, format::Side::sell}) {
        side(s).each(side(s).size(), [&](std::int64_t price, std::uint32_t at) {
            const Level& level = levels_[at];
            std::int64_t size = 0;
            std::uint32_t count = 0, prev = kNone;
            for (std::uint32_t i = level.head; i != kNone; prev = i, i = orders_[i].next) {
                const Order& o = orders_[i];
                right = right && o.side == s && o.level == at && o.prev == prev &&
                        o.remaining > 0 && find(o.id) == i;
                size += o.remaining;
                ++count;
            }
            right = right && level.price == price && level.size == size && level.tail == prev &&
                    level.orders == count && count > 0;
            seen += count;
        });
    }
    return right && seen == index_.size();
}

}  // namespace tapewire::book
