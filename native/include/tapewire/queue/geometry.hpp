// What is fixed when a queue is created, and the seeds of the header checks that follow from it.
#pragma once

#include <cstdint>

#include "tapewire/checksum.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/format/segment.hpp"

namespace tapewire::queue {

struct Geometry {
    std::uint64_t segment_bytes = 0;
    std::uint64_t first_seq = 0;
    // Random. 0: a queue of an earlier format (control version 3, segment version 2).
    std::uint64_t key = 0;

    bool keyed() const noexcept { return key != 0; }
    bool is_possible() const noexcept {
        return segment_bytes >= format::kSegmentBytesReadableMin &&
               segment_bytes <= format::kSegmentBytesMax &&
               segment_bytes % format::kSegmentUnitBytes == 0;
    }
    bool operator==(const Geometry&) const = default;
};

// Whether a record of a segment of `segment_bytes` can begin or end at `offset`.
constexpr bool is_record_boundary(std::uint64_t offset, std::uint64_t segment_bytes) noexcept {
    return offset >= format::kSegmentDataOffset && offset <= segment_bytes &&
           offset % format::kRecordAlign == 0;
}

// A number for each segment of each queue, by the finaliser of splitmix64. A CRC would not do: it
// is linear, so two segments would differ by the same bits in every queue.
inline std::uint64_t mix_key(std::uint64_t key, std::uint32_t segment_id) noexcept {
    std::uint64_t x = key + (std::uint64_t{segment_id} + 1) * 0x9E3779B97F4A7C15ull;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
    return x ^ (x >> 31);
}

// The initial state of the CRC of a record header, derived from its place. A header that is copied
// to another offset never passes, to another segment or queue once in 2^32.
class HeaderSeed {
  public:
    HeaderSeed() = default;  // without a key: the ordinary state everywhere
    HeaderSeed(std::uint64_t key, std::uint32_t segment_id) noexcept {
        if (key == 0) return;
        base_ = static_cast<std::uint32_t>(mix_key(key, segment_id));
        mask_ = ~std::uint32_t{0};
    }

    std::uint32_t of_segment() const noexcept { return base_; }  // for the end of a segment

    std::uint32_t at(std::uint64_t offset) const noexcept {
        return base_ ^ (static_cast<std::uint32_t>(offset) & mask_);
    }
    bool keyed() const noexcept { return mask_ != 0; }

  private:
    std::uint32_t base_ = kCrc32cState;
    std::uint32_t mask_ = 0;
};

}  // namespace tapewire::queue
