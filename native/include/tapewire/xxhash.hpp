// XXH64 and XXH3-128 (by Yann Collet), without a dependency: for ids of names and hashes of books.
// Seed 0 and the default secret, so the results match every other implementation.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tapewire {

std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed = 0) noexcept;

// Text form: high, then low, 16 hexadecimal digits each.
struct Hash128 {
    std::uint64_t low;
    std::uint64_t high;
    bool operator==(const Hash128&) const = default;
};

// XXH3-128 of all bytes passed to update(), in any number of pieces.
class Xxh3 {
  public:
    Xxh3() noexcept;
    void update(const void* data, std::size_t n) noexcept;
    Hash128 digest() const noexcept;

  private:
    static constexpr std::size_t kBufferBytes = 256;  // more than the 240 of a short input

    void consume_buffer() noexcept;

    std::array<std::uint64_t, 8> lanes_;
    std::uint64_t total_ = 0;
    std::size_t buffered_ = 0;
    std::size_t stripe_ = 0;  // within the block
    // The newest bytes at the front, followed by older ones: a digest may need their last stripe.
    std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace tapewire
