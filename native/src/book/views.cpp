// Views of a book, and its hash.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tapewire/book/book.hpp"

namespace tapewire::book {

using format::BookMode;
using format::Side;

std::size_t Book::level_count(Side s) const noexcept {
    return options_.mode == BookMode::l2 ? l2_.side(s).size() : l3_.side(s).size();
}

std::size_t Book::top(Side s, std::size_t n, LevelRow* out) const {
    LevelRow* row = out;
    if (options_.mode == BookMode::l2) {
        l2_.side(s).each(n,
                         [&](std::int64_t price, std::int64_t size) { *row++ = {price, size, 0}; });
    } else {
        l3_.side(s).each(n, [&](std::int64_t price, std::uint32_t at) {
            const L3::Level& level = l3_.level(at);
            *row++ = {price, level.size, level.orders};
        });
    }
    return static_cast<std::size_t>(row - out);
}

std::int64_t Book::depth(Side s, std::size_t n) const noexcept {
    std::int64_t sum = 0;
    const auto add = [&](std::int64_t size) {
        if (__builtin_add_overflow(sum, size, &sum)) sum = std::numeric_limits<std::int64_t>::max();
    };
    if (options_.mode == BookMode::l2) {
        l2_.side(s).each(n, [&](std::int64_t, std::int64_t size) { add(size); });
    } else {
        l3_.side(s).each(n, [&](std::int64_t, std::uint32_t at) { add(l3_.level(at).size); });
    }
    return sum;
}

bool Book::crossed() const noexcept {
    format::Level bid, ask;
    return best(Side::buy, bid) && best(Side::sell, ask) && bid.price >= ask.price;
}

Hash128 Book::hash() const {
    Xxh3 hash;
    const auto put = [&](const auto&... fields) {
        std::byte bytes[(sizeof fields + ...)];
        std::byte* at = bytes;
        ((std::memcpy(at, &fields, sizeof fields), at += sizeof fields), ...);
        hash.update(bytes, sizeof bytes);
    };
    for (const Side s : {Side::buy, Side::sell}) {
        const auto side = static_cast<std::uint8_t>(s);
        if (options_.mode == BookMode::l2) {
            l2_.side(s).each(l2_.side(s).size(), [&](std::int64_t price, std::int64_t size) {
                put(side, price, size);
            });
            continue;
        }
        l3_.side(s).each(l3_.side(s).size(), [&](std::int64_t price, std::uint32_t at) {
            put(side, price);
            for (std::uint32_t i = l3_.level(at).head; i != L3::kNone; i = l3_.order(i).next)
                put(l3_.order(i).id, l3_.order(i).remaining);
        });
    }
    return hash.digest();
}

bool Book::order(std::uint64_t id, OrderRow& out) const noexcept {
    const std::uint32_t slot = l3_.find(id);
    if (slot == L3::kNone) return false;
    const L3::Order& o = l3_.order(slot);
    const bool rests = l3_.rests(slot);
    out = {id, rests ? l3_.level(o.level).price : 0, o.remaining, o.side, rests};
    return true;
}

bool Book::queue_position(std::uint64_t id, std::uint64_t& orders_ahead,
                          std::int64_t& size_ahead) const noexcept {
    const std::uint32_t slot = l3_.find(id);
    if (slot == L3::kNone || !l3_.rests(slot)) return false;
    orders_ahead = 0;
    size_ahead = 0;
    for (std::uint32_t i = l3_.order(slot).prev; i != L3::kNone; i = l3_.order(i).prev) {
        ++orders_ahead;
        size_ahead += l3_.order(i).remaining;  // a part of the level's sum, which fits
    }
    return true;
}

std::vector<OrderRow> Book::orders(Side s, std::int64_t price) const {
    std::vector<OrderRow> rows;
    if (const L3::Level* level = l3_.level_at(s, price)) {
        rows.reserve(level->orders);
        for (std::uint32_t i = level->head; i != L3::kNone; i = l3_.order(i).next)
            rows.push_back({l3_.order(i).id, price, l3_.order(i).remaining, s, true});
    }
    return rows;
}

std::uint32_t Book::order_count(Side s, std::int64_t price) const noexcept {
    const L3::Level* level = l3_.level_at(s, price);
    return level == nullptr ? 0 : level->orders;
}

std::size_t Book::memory_bytes() const noexcept {
    return sizeof *this + l2_.memory_bytes() + l3_.memory_bytes() + waiting_.memory_bytes() +
           rescaled_.capacity() * sizeof(format::Level) + gaps_.capacity() * sizeof(Gap);
}

bool Book::consistent() const {
    return l2_.side(Side::buy).consistent() && l2_.side(Side::sell).consistent() &&
           l3_.consistent();
}

}  // namespace tapewire::book
