// Sorted keys, each with a value; the largest key is the best. Ladder keeps here what is outside
// its window, and all levels of a small side.
//
//   directory   first_ [ -∞ | k | k | k ]       smallest key of each chunk; the best is in the last
//   chunks      keys   [ …worst → best, +∞ … ]  up to 64 keys and values, in separate arrays
//
// The best is at the end of every array: a change near it moves few bytes, and the directory search
// starts there. A change moves the levels of one chunk at most, whatever the depth. Emptied chunks
// are kept for reuse: no allocation once a side has reached its size.
#pragma once

#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

namespace tapewire::book {

template <typename Value>
class Levels {
    struct Chunk;

  public:
    static constexpr std::size_t kChunk = 64;
    static constexpr std::int64_t kPad = std::numeric_limits<std::int64_t>::max();

    Levels() { append_chunk(); }

    std::size_t size() const noexcept { return size_; }
    bool empty() const noexcept { return size_ == 0; }

    // There must be at least one key.
    std::int64_t best_key() const noexcept {
        const Chunk& c = *chunks_.back();
        return c.keys[c.count - 1];
    }
    const Value& best_value() const noexcept {
        const Chunk& c = *chunks_.back();
        return c.values[c.count - 1];
    }

    // Where a key is, or would be inserted. Valid until the next change.
    struct Place {
        std::size_t chunk;
        std::size_t at;
        bool found;
    };
    Place find(std::int64_t key) const noexcept {
        const std::size_t chunk = chunk_of(key);
        const Chunk& c = *chunks_[chunk];
        const std::size_t at = c.below(key);
        return {chunk, at, at < c.count && c.keys[at] == key};
    }
    Value& value(const Place& p) noexcept { return chunks_[p.chunk]->values[p.at]; }
    const Value& value(const Place& p) const noexcept { return chunks_[p.chunk]->values[p.at]; }

    // Inserts the level that find() did not find.
    void insert(Place p, std::int64_t key, const Value& value) {
        if (chunks_[p.chunk]->count == kChunk) [[unlikely]]
            p = split(p);
        Chunk& c = *chunks_[p.chunk];
        c.open(p.at);
        c.keys[p.at] = key;
        c.values[p.at] = value;
        if (p.at == 0) first_[p.chunk] = key;
        ++size_;
    }

    void erase(const Place& p) {
        Chunk& c = *chunks_[p.chunk];
        c.close(p.at);
        --size_;
        if (c.count < kChunk / 4) [[unlikely]] {
            shrink(p.chunk);
        } else if (p.at == 0) {
            first_[p.chunk] = c.keys[0];
        }
    }

    void clear() noexcept {
        while (chunks_.size() > 1) drop_chunk(chunks_.size() - 1);
        chunks_[0]->clear();
        size_ = 0;
    }

    // Iterates from the best to the worst.
    class Walk {
      public:
        bool done() const noexcept { return at_ == 0; }
        std::int64_t key() const noexcept { return chunk().keys[at_ - 1]; }
        const Value& value() const noexcept { return chunk().values[at_ - 1]; }
        void next() noexcept {
            if (--at_ == 0 && chunk_ > 0) at_ = levels_->chunks_[--chunk_]->count;
        }

      private:
        friend class Levels;
        explicit Walk(const Levels& levels) noexcept
            : levels_(&levels), chunk_(levels.chunks_.size() - 1), at_(chunk().count) {}
        const Chunk& chunk() const noexcept { return *levels_->chunks_[chunk_]; }

        const Levels* levels_;
        std::size_t chunk_;
        std::size_t at_;  // one past the current entry
    };
    Walk best() const noexcept { return Walk(*this); }

    std::size_t memory_bytes() const noexcept {
        return (chunks_.size() + spare_.size()) * sizeof(Chunk) +
               (chunks_.capacity() + spare_.capacity()) * sizeof(void*) +
               first_.capacity() * sizeof(std::int64_t);
    }

    // For tests: checks the invariants above.
    bool consistent() const noexcept;

  private:
    struct Chunk {
        std::array<std::int64_t, kChunk> keys;  // ascending; kPad from `count` on
        std::array<Value, kChunk> values;
        std::size_t count = 0;

        Chunk() { keys.fill(kPad); }

        // The number of smaller keys: counts every eighth key, then within eight. Two rounds of
        // independent loads without branches are faster than the six rounds of a binary search.
        std::size_t below(std::int64_t key) const noexcept {
            const std::int64_t* k = keys.data();
            const std::size_t block = (k[7] < key) + (k[15] < key) + (k[23] < key) + (k[31] < key) +
                                      (k[39] < key) + (k[47] < key) + (k[55] < key);
            k += block * 8;
            return block * 8 + (k[0] < key) + (k[1] < key) + (k[2] < key) + (k[3] < key) +
                   (k[4] < key) + (k[5] < key) + (k[6] < key) + (k[7] < key);
        }
        void open(std::size_t at) noexcept {
            std::memmove(&keys[at] + 1, &keys[at], (count - at) * sizeof keys[0]);
            std::memmove(&values[at] + 1, &values[at], (count - at) * sizeof values[0]);
            ++count;
        }
        void close(std::size_t at) noexcept {
            --count;
            std::memmove(&keys[at], &keys[at] + 1, (count - at) * sizeof keys[0]);
            std::memmove(&values[at], &values[at] + 1, (count - at) * sizeof values[0]);
            keys[count] = kPad;
        }
        // Appends `n` levels of another chunk, which keeps them.
        void take(const Chunk& from, std::size_t at, std::size_t n) noexcept {
            std::memcpy(&keys[count], &from.keys[at], n * sizeof keys[0]);
            std::memcpy(&values[count], &from.values[at], n * sizeof values[0]);
            count += n;
        }
        void cut(std::size_t to) noexcept {
            for (std::size_t i = to; i < count; ++i) keys[i] = kPad;
            count = to;
        }
        void clear() noexcept { cut(0); }
    };

    // The last chunk whose first key is not above this one, else the first chunk.
    std::size_t chunk_of(std::int64_t key) const noexcept {
        std::size_t i = chunks_.size() - 1;
        const std::size_t near = i > 4 ? i - 4 : 0;
        while (i > near && first_[i] > key) --i;
        if (i == 0 || first_[i] <= key) return i;
        std::size_t base = 0, n = i;  // in [0, i): chunk 0 also covers every lower key
        while (n > 1) {
            const std::size_t half = n / 2;
            base = first_[base + half] <= key ? base + half : base;
            n -= half;
        }
        return base;
    }

    std::unique_ptr<Chunk> new_chunk() {
        if (spare_.empty()) return std::make_unique<Chunk>();
        std::unique_ptr<Chunk> c = std::move(spare_.back());
        spare_.pop_back();
        return c;
    }
    void append_chunk() {
        spare_.reserve(chunks_.size() + spare_.size() + 1);  // returning a chunk must not fail
        first_.reserve(chunks_.size() + 1);
        chunks_.push_back(new_chunk());
        first_.push_back(kPad);
    }
    void drop_chunk(std::size_t i) noexcept {
        chunks_[i]->clear();
        spare_.push_back(std::move(chunks_[i]));
        chunks_.erase(chunks_.begin() + static_cast<std::ptrdiff_t>(i));
        first_.erase(first_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    Place split(const Place& p);
    void shrink(std::size_t chunk) noexcept;

    std::size_t size_ = 0;
    std::vector<std::int64_t> first_;
    std::vector<std::unique_ptr<Chunk>> chunks_;  // never empty
    std::vector<std::unique_ptr<Chunk>> spare_;
};

// Makes space in a full chunk. A new best or a new worst gets a chunk of its own, so that a side
// that grows at one end fills its chunks; otherwise the better half moves to a new chunk after it.
template <typename Value>
typename Levels<Value>::Place Levels<Value>::split(const Place& p) {
    const bool best = p.chunk + 1 == chunks_.size() && p.at == kChunk;
    const bool worst = p.chunk == 0 && p.at == 0;
    append_chunk();
    const std::size_t target = worst ? 0 : p.chunk + 1;
    for (std::size_t i = chunks_.size() - 1; i > target; --i) {
        std::swap(chunks_[i], chunks_[i - 1]);
        first_[i] = first_[i - 1];
    }
    if (best || worst) return {target, 0, false};
    Chunk& full = *chunks_[p.chunk];
    Chunk& fresh = *chunks_[target];
    fresh.take(full, kChunk / 2, kChunk / 2);
    full.cut(kChunk / 2);
    first_[target] = fresh.keys[0];
    if (p.at > kChunk / 2) return {target, p.at - kChunk / 2, false};
    return p;
}

// After a chunk has lost levels: merges it with a neighbour if that leaves space to grow.
template <typename Value>
void Levels<Value>::shrink(std::size_t chunk) noexcept {
    Chunk& c = *chunks_[chunk];
    if (c.count == 0) {
        if (chunks_.size() > 1) drop_chunk(chunk);
        return;
    }
    first_[chunk] = c.keys[0];
    const std::size_t left = chunk > 0 ? chunk - 1 : chunk;
    if (left + 1 >= chunks_.size()) return;
    Chunk& into = *chunks_[left];
    const Chunk& from = *chunks_[left + 1];
    if (into.count + from.count > kChunk / 2) return;
    into.take(from, 0, from.count);
    drop_chunk(left + 1);
}

template <typename Value>
bool Levels<Value>::consistent() const noexcept {
    std::size_t total = 0;
    std::int64_t last = 0;
    for (std::size_t i = 0; i < chunks_.size(); ++i) {
        const Chunk& c = *chunks_[i];
        if (c.count == 0 && chunks_.size() > 1) return false;
        if (i > 0 && first_[i] != c.keys[0]) return false;
        for (std::size_t at = 0; at < kChunk; ++at) {
            if (at >= c.count && c.keys[at] != kPad) return false;
            if (at >= c.count) continue;
            if (total > 0 && c.keys[at] <= last) return false;
            last = c.keys[at];
            ++total;
        }
    }
    for (const auto& c : spare_)
        if (c->count != 0 || c->keys[0] != kPad) return false;
    return total == size_ && first_.size() == chunks_.size();
}

}  // namespace tapewire::book
