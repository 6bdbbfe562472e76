// Maps an order's id to its slot in the pool: open addressing with linear probing, 8 bytes per
// entry.
//
// An entry keeps 32 bits of the id's hash with the slot: other entries are skipped without reading
// the pool, and the home of each entry is known when a removal closes the gap. Hence there are no
// tombstones, and a day of added and removed orders leaves the table clean.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tapewire::book {

class OrderIndex {
  public:
    static constexpr std::uint32_t kNone = ~std::uint32_t{0};

    OrderIndex() : entries_(kLeast, Entry{0, kNone}) {}

    static std::uint32_t hash(std::uint64_t id) noexcept {
        // Fibonacci hashing: spreads consecutive ids evenly.
        return static_cast<std::uint32_t>(((id ^ (id >> 32)) * 0x9E3779B97F4A7C15u) >> 32);
    }

    // The slot, or kNone. `id_of(slot)` returns the id of the order in it.
    template <typename IdOf>
    std::uint32_t find(std::uint64_t id, IdOf&& id_of) const noexcept {
        const std::uint32_t h = hash(id);
        const std::size_t mask = entries_.size() - 1;
        for (std::size_t i = home(h);; i = (i + 1) & mask) {
            const Entry e = entries_[i];
            if (e.slot == kNone) return kNone;
            if (e.hash == h && id_of(e.slot) == id) return e.slot;
        }
    }

    // The id must not be in the index.
    void insert(std::uint64_t id, std::uint32_t slot) {
        if ((size_ + 1) * 2 > entries_.size()) [[unlikely]]
            grow();
        place({hash(id), slot});
        ++size_;
    }

    // The id must be in the index, with this slot.
    void erase(std::uint64_t id, std::uint32_t slot) noexcept {
        const std::size_t mask = entries_.size() - 1;
        std::size_t hole = home(hash(id));
        while (entries_[hole].slot != slot) hole = (hole + 1) & mask;
        for (std::size_t i = (hole + 1) & mask; entries_[i].slot != kNone; i = (i + 1) & mask) {
            // It may move back into the hole unless its home is after the hole.
            if (((i - home(entries_[i].hash)) & mask) < ((i - hole) & mask)) continue;
            entries_[hole] = entries_[i];
            hole = i;
        }
        entries_[hole].slot = kNone;
        --size_;
    }

    // Prefetches the entry, and later the order that it probably refers to.
    void prefetch(std::uint64_t id) const noexcept {
        __builtin_prefetch(&entries_[home(hash(id))]);
    }
    std::uint32_t guess(std::uint64_t id) const noexcept { return entries_[home(hash(id))].slot; }

    void clear() noexcept {
        for (Entry& e : entries_) e.slot = kNone;
        size_ = 0;
    }
    std::size_t size() const noexcept { return size_; }
    std::size_t memory_bytes() const noexcept { return entries_.capacity() * sizeof(Entry); }

  private:
    static constexpr std::size_t kLeast = 64;
    struct Entry {
        std::uint32_t hash;
        std::uint32_t slot;
    };

    // The upper bits are well mixed.
    std::size_t home(std::uint32_t h) const noexcept { return h >> shift_; }
    void place(const Entry& e) noexcept {
        const std::size_t mask = entries_.size() - 1;
        std::size_t i = home(e.hash);
        while (entries_[i].slot != kNone) i = (i + 1) & mask;
        entries_[i] = e;
    }
    void grow() {
        std::vector<Entry> old(entries_.size() * 2, Entry{0, kNone});
        old.swap(entries_);
        --shift_;
        for (const Entry& e : old)
            if (e.slot != kNone) place(e);
    }

    std::vector<Entry> entries_;  // size is a power of two
    unsigned shift_ = 32 - std::countr_zero(kLeast);
    std::size_t size_ = 0;
};

}  // namespace tapewire::book
