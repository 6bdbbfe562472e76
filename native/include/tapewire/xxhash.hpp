// XXH64 and XXH3-128 (Yann Collet's), without a dependency: names to ids, and hashes of books.
// Seed 0 and the default secret, so that every implementation of them gives the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tapewire {

std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed = 0) noexcept;

// As text: high, then low, 16 hexadecimal digits each.
struct Hash128 {
    std::uint64_t low;
    std::uint64_t high;
    bool operator==(const Hash128&) const = default;
};

// XXH3-128 of all that is given to update(), in however many pieces.
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
    // The newest bytes, from the front; behind them what stood there before, of which a digest may
    // need the last stripe.
    std::array<std::byte, kBufferBytes> buffer_;
};

}  // namespace tapewire
