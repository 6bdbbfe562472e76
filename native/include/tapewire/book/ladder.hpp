// One side of a book: a value for each price, with the best one cached.
//
//   window   values_  [ . 7 . . 3 9 . 2 ]   one entry per tick, from base_; no value: no level
//            bits_      0 1 0 0 1 1 0 1     set where there is a value; the highest is the best
//   sparse_  the levels outside the window, in order (levels.hpp)
//
// Most instruments have uniform ticks, and nearly all levels are within a few thousand of them:
// such a level is found by a subtraction, a multiplication and a rotation, and changed without a
// branch. The position of the window affects only speed, never the content: a level is in the
// window if it has an entry there, else in sparse_. When too many changes had to go to sparse_ (a
// new book, a price that moved far), the window is rebuilt over the existing levels, wide enough
// for 31 of 32 of them.
//
// A key is a price transformed so that a better one is larger: a bid's price, or the complement of
// an ask's (~p = -p - 1, which cannot overflow).
#pragma once

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <new>
#include <numeric>
#include <utility>
#include <vector>

#include "tapewire/book/levels.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::book {

// Value{} means no level.
template <typename Value>
class Ladder {
  public:
    explicit Ladder(format::Side side) : turn_(side == format::Side::buy ? 0 : std::int64_t{-1}) {}

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    // The side must not be empty.
    std::int64_t best_price() const noexcept { return best_key_ ^ turn_; }
    const Value& best_value() const noexcept { return *best_; }

    // The level's value, or Value{}.
    Value get(std::int64_t price) const noexcept {
        const std::int64_t key = price ^ turn_;
        const std::uint64_t at = place_of(key);
        if (at < width_) [[likely]]
            return values_[at];
        const auto found = sparse_.find(key);
        return found.found ? sparse_.value(found) : Value{};
    }

    // Value{} removes the level.
    void set(std::int64_t price, Value value) {
        const std::int64_t key = price ^ turn_;
        const std::uint64_t at = place_of(key);
        if (at < width_) [[likely]] {
            const bool was = values_[at] != Value{}, is = value != Value{};
            values_[at] = value;
            size_ = size_ + is - was;
            std::uint64_t& word = bits_[at / 64];
            const std::uint64_t bit = at % 64;
            word = (word & ~(std::uint64_t{1} << bit)) | (std::uint64_t{is} << bit);
            if (static_cast<std::int64_t>(at) >= top_) [[unlikely]]
                top_changed(at, is);
        } else {
            set_sparse(key, value);
        }
    }

    // The same for `n` levels; level_at(i) returns {price, value}.
    template <typename LevelAt>
    void set_all(std::uint32_t n, LevelAt level_at) {
        for (std::uint32_t i = set_below_best(0, n, level_at); i < n;
             i = set_below_best(i, n, level_at)) {
            const auto [price, value] = level_at(i++);
            set(price, value);
        }
    }

    void clear() noexcept;

    // Calls f(price, value) for the levels, best first, until it returns false. Returns f, as
    // std::for_each does: what f computes can be kept in it, and hence in registers.
    template <typename F>
    F walk(F f) const;
    // Calls f(price, value) for at most `n` levels, best first.
    template <typename F>
    void each(std::size_t n, F&& f) const;

    std::size_t memory_bytes() const noexcept {
        return sparse_.memory_bytes() + width_ * sizeof(Value) + width_ / 8;
    }

    // For tests: checks the invariants above.
    bool consistent() const;
    std::size_t window() const noexcept { return width_; }

  private:
    static constexpr std::size_t kWindowMin = 256, kWindowMax = 65536;
    static constexpr std::size_t kMissesMin = 1024;
    static constexpr std::uint64_t kLargest = std::numeric_limits<std::int64_t>::max();

    // Below width_ if the key is base_ plus that many ticks. With tick = odd << shift, the inverse
    // of `odd` modulo 2^64 divides exactly where the division has no remainder; the mapping is
    // one-to-one, so no other key maps below width_.
    std::uint64_t place_of(std::int64_t key) const noexcept {
        const std::uint64_t distance =
            static_cast<std::uint64_t>(key) - static_cast<std::uint64_t>(base_);
        return std::rotr(distance * inverse_, shift_);
    }
    std::int64_t key_at(std::int64_t at) const noexcept { return base_ + at * tick_; }

    template <typename LevelAt>
    std::uint32_t set_below_best(std::uint32_t i, std::uint32_t n, LevelAt level_at) noexcept;
    void top_changed(std::uint64_t at, bool is) noexcept;
    void set_sparse(std::int64_t key, Value value);
    void choose_best() noexcept;
    std::int64_t top_below(std::int64_t at) const noexcept;  // highest with a value, < at; or -1
    void refit();
    template <typename F>
    F walk_sparse(F f) const;  // the levels outside the window
    template <typename F>
    F walk_merged(F f) const;  // all levels, where the best are not all in the window

    std::int64_t turn_;  // price ^ turn_ is the key
    std::size_t size_ = 0;
    std::int64_t best_key_ = 0;
    const Value* best_ = nullptr;

    std::size_t width_ = 0;  // 0: no window
    std::int64_t base_ = 0;
    std::int64_t tick_ = 1;
    std::uint64_t inverse_ = 1;
    int shift_ = 0;
    std::int64_t top_ = -1;  // the best entry of the window, or -1
    std::unique_ptr<Value[]> values_;
    std::unique_ptr<std::uint64_t[]> bits_;

    Levels<Value> sparse_;
    std::size_t misses_ = 0;  // changes of sparse_ since the window was built
    std::size_t misses_max_ = kMissesMin;
};

template <typename Value>
std::int64_t Ladder<Value>::top_below(std::int64_t at) const noexcept {
    if (at <= 0) return -1;
    std::int64_t word = (at - 1) / 64;
    std::uint64_t bits = bits_[word] & (~std::uint64_t{0} >> (63 - (at - 1) % 64));
    while (bits == 0 && word > 0) bits = bits_[--word];
    return bits == 0 ? -1 : word * 64 + 63 - std::countl_zero(bits);
}

// Sets the levels from `i` on up to one that set() must set: the best, a better one, or one outside
// the window. Returns its index. What does not change meanwhile is kept in registers.
template <typename Value>
template <typename LevelAt>
std::uint32_t Ladder<Value>::set_below_best(std::uint32_t i, std::uint32_t n,
                                            LevelAt level_at) noexcept {
    const std::uint64_t end = top_ < 0 ? 0 : static_cast<std::uint64_t>(top_);
    const std::int64_t turn = turn_;
    const auto base = static_cast<std::uint64_t>(base_);
    const std::uint64_t inverse = inverse_;
    const int shift = shift_;
    Value* const values = values_.get();
    std::uint64_t* const bits = bits_.get();
    std::size_t size = size_;
    for (; i < n; ++i) {
        const auto [price, value] = level_at(i);
        const std::uint64_t at =
            std::rotr((static_cast<std::uint64_t>(price ^ turn) - base) * inverse, shift);
        if (at >= end) break;
        const bool was = values[at] != Value{}, is = value != Value{};
        values[at] = value;
        size = size + is - was;
        const std::uint64_t word = bits[at / 64], bit = at % 64;
        bits[at / 64] = (word & ~(std::uint64_t{1} << bit)) | (std::uint64_t{is} << bit);
    }
    size_ = size;
    return i;
}

template <typename Value>
void Ladder<Value>::top_changed(std::uint64_t at, bool is) noexcept {
    const auto place = static_cast<std::int64_t>(at);
    if (is) {
        if (place == top_) return;
        top_ = place;
    } else {
        if (place > top_) return;  // it was not there before
        top_ = top_below(place);
    }
    choose_best();
}

template <typename Value>
void Ladder<Value>::choose_best() noexcept {
    if (top_ >= 0) {
        best_key_ = key_at(top_);
        best_ = &values_[top_];
    }
    if (!sparse_.empty() && (top_ < 0 || sparse_.best_key() > best_key_)) {
        best_key_ = sparse_.best_key();
        best_ = &sparse_.best_value();
    }
}

template <typename Value>
void Ladder<Value>::set_sparse(std::int64_t key, Value value) {
    const auto place = sparse_.find(key);
    if (place.found) {
        if (value != Value{}) {
            sparse_.value(place) = value;
        } else {
            sparse_.erase(place);
            --size_;
        }
    } else if (value != Value{}) {
        sparse_.insert(place, key, value);
        ++size_;
    }
    choose_best();
    if (++misses_ > misses_max_) [[unlikely]] {
        try {
            refit();
        } catch (const std::bad_alloc&) {
            // The window stays, only slower; removing a level must not fail for lack of memory.
        }
    }
}

// Rebuilds the window over the existing levels. No visible change.
template <typename Value>
void Ladder<Value>::refit() {
    misses_ = 0;
    misses_max_ = std::max(kMissesMin, 4 * size_);  // to amortise its cost over the changes
    const auto width_now = static_cast<std::int64_t>(width_);
    if (sparse_.size() <= size_ / 16 && top_ >= width_now / 4 && top_ < width_now - width_now / 16)
        return;  // the window fits: the misses are few levels that change often
    std::vector<std::int64_t> keys;
    keys.reserve(size_);
    each(size_, [&](std::int64_t price, const Value&) { keys.push_back(price ^ turn_); });
    if (keys.size() < 2) return;
    const std::size_t covered = std::max<std::size_t>(2, keys.size() - keys.size() / 32);
    const auto gap = [](std::int64_t better, std::int64_t worse) {
        return static_cast<std::uint64_t>(better) - static_cast<std::uint64_t>(worse);
    };
    std::uint64_t tick = 0;
    for (std::size_t i = 1; i < covered; ++i) tick = std::gcd(tick, gap(keys[i - 1], keys[i]));
    const std::uint64_t span = gap(keys[0], keys[covered - 1]) / tick;
    const std::size_t width = std::clamp<std::uint64_t>(
        std::bit_ceil(std::min<std::uint64_t>(span, kWindowMax) * 3 / 2), kWindowMin, kWindowMax);
    // A quarter of the window is beyond the best, for prices that move; none at the limits of the
    // number range.
    const auto ticks = static_cast<std::int64_t>(width / 4);
    std::int64_t above = 0, below = 0, base = 0;
    if (tick > kLargest || __builtin_mul_overflow(static_cast<std::int64_t>(tick), ticks, &above) ||
        __builtin_mul_overflow(above, std::int64_t{3}, &below) ||
        __builtin_sub_overflow(keys[0], below, &base) ||
        __builtin_add_overflow(keys[0], above, &above))
        return;

    Ladder fresh(turn_ == 0 ? format::Side::buy : format::Side::sell);
    fresh.values_ = std::make_unique<Value[]>(width);
    fresh.bits_ = std::make_unique<std::uint64_t[]>(width / 64);
    fresh.width_ = width;
    fresh.base_ = base;
    fresh.tick_ = static_cast<std::int64_t>(tick);
    fresh.shift_ = std::countr_zero(tick);
    const std::uint64_t odd = tick >> fresh.shift_;
    fresh.inverse_ = odd;  // correct in 3 bits; each round doubles them
    for (int i = 0; i < 5; ++i) fresh.inverse_ *= 2 - odd * fresh.inverse_;
    fresh.misses_max_ = std::numeric_limits<std::size_t>::max();
    each(size_, [&](std::int64_t price, const Value& value) { fresh.set(price, value); });
    fresh.misses_ = 0;
    fresh.misses_max_ = misses_max_;
    assert(fresh.size_ == size_ && fresh.consistent());
    *this = std::move(fresh);
}

template <typename Value>
void Ladder<Value>::clear() noexcept {
    for (std::int64_t at = top_; at >= 0; at = top_below(at)) values_[at] = Value{};
    std::fill_n(bits_.get(), width_ / 64, std::uint64_t{0});
    sparse_.clear();
    top_ = -1;
    size_ = 0;
}

template <typename Value>
template <typename F>
F Ladder<Value>::walk(F f) const {
    // Every level of the window is better than the others, unless the price has left the window or
    // there are prices between two ticks.
    if (!sparse_.empty() && sparse_.best_key() > base_) [[unlikely]]
        return walk_merged(std::move(f));
    // The bits above top_ are 0. Without a window top_ is -1, and so is the word.
    for (std::int64_t word = top_ >> 6; word >= 0; --word) {
        for (std::uint64_t bits = bits_[word]; bits != 0;) {
            const int bit = std::countl_zero(bits) ^ 63;
            const std::int64_t at = word * 64 + bit;
            if (!f(key_at(at) ^ turn_, values_[at])) return f;
            bits &= ~(std::uint64_t{1} << bit);
        }
    }
    return walk_sparse(std::move(f));
}

template <typename Value>
template <typename F>
[[gnu::noinline]] F Ladder<Value>::walk_sparse(F f) const {
    auto rest = sparse_.best();
    while (!rest.done() && f(rest.key() ^ turn_, rest.value())) rest.next();
    return f;
}

template <typename Value>
template <typename F>
[[gnu::noinline]] F Ladder<Value>::walk_merged(F f) const {
    auto rest = sparse_.best();
    for (std::int64_t at = top_; at >= 0; at = top_below(at)) {
        for (; !rest.done() && rest.key() > key_at(at); rest.next())
            if (!f(rest.key() ^ turn_, rest.value())) return f;
        if (!f(key_at(at) ^ turn_, values_[at])) return f;
    }
    while (!rest.done() && f(rest.key() ^ turn_, rest.value())) rest.next();
    return f;
}

template <typename Value>
template <typename F>
void Ladder<Value>::each(std::size_t n, F&& f) const {
    if (n == 0) return;
    walk([&f, n](std::int64_t price, const Value& value) mutable {
        f(price, value);
        return --n != 0;
    });
}

template <typename Value>
bool Ladder<Value>::consistent() const {
    if (!sparse_.consistent()) return false;
    std::size_t in_window = 0;
    std::int64_t top = -1;
    for (std::size_t at = 0; at < width_; ++at) {
        const bool is = values_[at] != Value{};
        if (((bits_[at / 64] >> (at % 64)) & 1) != std::uint64_t{is}) return false;
        if (place_of(key_at(static_cast<std::int64_t>(at))) != at) return false;
        in_window += is;
        if (is) top = static_cast<std::int64_t>(at);
    }
    if (top != top_ || in_window + sparse_.size() != size_) return false;
    bool right = true, first = true;
    std::size_t seen = 0;
    std::int64_t last = 0;
    for (auto rest = sparse_.best(); !rest.done(); rest.next())
        right = right && place_of(rest.key()) >= width_ && rest.value() != Value{};
    each(size_, [&](std::int64_t price, const Value& value) {
        const std::int64_t key = price ^ turn_;
        right = right && (first ? key == best_key_ && value == *best_ : key < last);
        first = false;
        last = key;
        ++seen;
    });
    return right && seen == size_;
}

}  // namespace tapewire::book
