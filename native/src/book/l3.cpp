#include "tapewire/book/l3.hpp"

#include <algorithm>
#include <cassert>

namespace tapewire::book {

std::uint32_t L3::new_level(format::Side side, std::int64_t price) {
    std::uint32_t at = free_level_;
    if (at == 0) {
        at = static_cast<std::uint32_t>(levels_.size());
        levels_.push_back({});
    }
    levels_of(side).set(price, at);  // may throw: the level is still free
    free_level_ = levels_[at].head;
    levels_[at] = {price, 0, kNone, kNone, 0};
    return at;
}

void L3::drop_level(const Order& last) noexcept {
    Level& level = levels_[last.level];
    levels_of(last.side).set(level.price, 0);
    level.head = free_level_;
    free_level_ = last.level;
}

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
    for (auto& side : sides_) side.clear();
    orders_.resize(1);
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
    return sides_[0].memory_bytes() + sides_[1].memory_bytes() +
           orders_.capacity() * sizeof(Order) + levels_.capacity() * sizeof(Level) +
           index_.memory_bytes();
}

bool L3::consistent() const {
    if (!sides_[0].consistent() || !sides_[1].consistent()) return false;
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
