// Maps an order's id to its slot (above 0) in the pool: a hash table whose buckets are cache lines.
//
//    0                    20       24                                    64
//    +--------------------+--------+-------------------------------------+
//    | ten tags of 16 bit | passed |  ten slots of 32 bits               |
//    +--------------------+--------+-------------------------------------+
//
// A tag is part of the id's hash, 0 where the entry is free. All tags of a bucket are compared at
// once: an id is found, inserted and erased in one cache line, without a branch that depends on how
// full the bucket is. An entry whose bucket is full is in the next one with a free place; `passed`
// counts the entries that are in a later bucket for that reason, so a search knows where to stop.
// Hence there are no tombstones, and a day of added and removed orders leaves the table clean.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace tapewire::book {

class OrderIndex {
  public:
    static constexpr std::uint32_t kNone = 0;  // no slot

    OrderIndex() : buckets_(kLeast) {}

    // Where an id is: valid until the next insert. `slot` is kNone if it is not in the index.
    struct Place {
        std::uint32_t slot = kNone;
        std::uint32_t entry = 0;
        std::size_t bucket = 0;
    };

    // `id_of(slot)` returns the id of the order in it, here and below.
    template <typename IdOf>
    Place find(std::uint64_t id, IdOf&& id_of) const noexcept {
        const std::uint32_t h = hash(id);
        std::size_t at = home(h);
        for (std::size_t left = buckets_.size(); left > 0; --left, at = after(at)) {
            const Bucket& bucket = buckets_[at];
            for (unsigned found = bucket.with(tag(h)); found != 0; found &= found - 1) {
                const auto entry = static_cast<std::uint32_t>(std::countr_zero(found));
                const std::uint32_t slot = bucket.slots[entry];
                if (id_of(slot) == id) [[likely]]
                    return {slot, entry, at};
            }
            if (bucket.passed == 0) [[likely]]
                break;
        }
        return {};
    }

    // False, with nothing changed, if the id is in the index.
    template <typename IdOf>
    bool insert(std::uint64_t id, std::uint32_t slot, IdOf&& id_of) {
        if (size_ == full_) [[unlikely]]
            grow(id_of);
        const std::uint32_t h = hash(id);
        Bucket& bucket = buckets_[home(h)];
        const unsigned free = bucket.with(kFree);
        if ((bucket.with(tag(h)) | bucket.passed) != 0 || free == 0) [[unlikely]] {
            if (find(id, id_of).slot != kNone) return false;
            place(h, slot);
        } else {
            bucket.put(free, tag(h), slot);
        }
        ++size_;
        return true;
    }

    void erase(std::uint64_t id, const Place& place) noexcept {
        buckets_[place.bucket].tags[place.entry] = kFree;
        --size_;
        for (std::size_t at = home(hash(id)); at != place.bucket; at = after(at)) [[unlikely]]
            --buckets_[at].passed;
    }

    // Prefetches the bucket, and later returns the slot of the order if the id is in the index;
    // otherwise any number.
    void prefetch(std::uint64_t id) const noexcept {
        __builtin_prefetch(&buckets_[home(hash(id))]);
    }
    std::uint32_t guess(std::uint64_t id) const noexcept {
        const std::uint32_t h = hash(id);
        const Bucket& bucket = buckets_[home(h)];
        return bucket.slots[std::countr_zero(bucket.with(tag(h)) | 1u << (kEntries - 1))];
    }

    void clear() noexcept {
        for (Bucket& bucket : buckets_) bucket = {};
        size_ = 0;
    }
    std::size_t size() const noexcept { return size_; }
    std::size_t memory_bytes() const noexcept { return buckets_.capacity() * sizeof(Bucket); }

  private:
    static constexpr std::size_t kLeast = 8;     // buckets; always a power of two
    static constexpr std::size_t kEntries = 10;  // of a bucket
    static constexpr std::size_t kFull = 7;      // entries per bucket at which the table grows
    static constexpr std::uint16_t kFree = 0;

    struct alignas(64) Bucket {
        std::array<std::uint16_t, kEntries> tags{};
        std::uint32_t passed = 0;
        std::array<std::uint32_t, kEntries> slots{};

        void put(unsigned free, std::uint16_t with_tag, std::uint32_t slot) noexcept {
            const int i = std::countr_zero(free);
            tags[i] = with_tag;
            slots[i] = slot;
        }

        // Bit i is set if entry i has this tag.
        unsigned with(std::uint16_t wanted) const noexcept {
#if defined(__SSE2__)
            const auto* const words = reinterpret_cast<const __m128i*>(this);
            const __m128i all = _mm_set1_epi16(static_cast<short>(wanted));
            const __m128i equal = _mm_packs_epi16(_mm_cmpeq_epi16(_mm_load_si128(words), all),
                                                  _mm_cmpeq_epi16(_mm_load_si128(words + 1), all));
            return static_cast<unsigned>(_mm_movemask_epi8(equal)) & ((1u << kEntries) - 1);
#else
            unsigned equal = 0;
            for (std::size_t i = 0; i < kEntries; ++i) equal |= unsigned{tags[i] == wanted} << i;
            return equal;
#endif
        }
    };
    static_assert(sizeof(Bucket) == 64);

    static std::uint32_t hash(std::uint64_t id) noexcept {
        // Fibonacci hashing: spreads consecutive ids evenly.
        return static_cast<std::uint32_t>(((id ^ (id >> 32)) * 0x9E3779B97F4A7C15u) >> 32);
    }
    // The upper bits are well mixed; the lower ones are another part of the hash.
    std::size_t home(std::uint32_t h) const noexcept { return h >> shift_; }
    static std::uint16_t tag(std::uint32_t h) noexcept {
        return static_cast<std::uint16_t>(h | 1);  // not kFree
    }
    std::size_t after(std::size_t at) const noexcept { return (at + 1) & (buckets_.size() - 1); }

    void place(std::uint32_t h, std::uint32_t slot) noexcept {
        for (std::size_t at = home(h);; at = after(at)) {
            Bucket& bucket = buckets_[at];
            if (const unsigned free = bucket.with(kFree); free != 0) [[likely]]
                return bucket.put(free, tag(h), slot);
            ++bucket.passed;
        }
    }
    template <typename IdOf>
    [[gnu::noinline]] void grow(IdOf&& id_of) {
        std::vector<Bucket> old(buckets_.size() * 2);
        old.swap(buckets_);
        --shift_;
        full_ = buckets_.size() * kFull;
        for (const Bucket& bucket : old)
            for (std::size_t i = 0; i < kEntries; ++i)
                if (bucket.tags[i] != kFree) place(hash(id_of(bucket.slots[i])), bucket.slots[i]);
    }

    std::vector<Bucket> buckets_;
    unsigned shift_ = 32 - std::countr_zero(kLeast);
    std::size_t size_ = 0;
    std::size_t full_ = kLeast * kFull;
};

}  // namespace tapewire::book
