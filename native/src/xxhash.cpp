#include "tapewire/xxhash.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

#include "tapewire/checksum.hpp"

namespace tapewire {

namespace {

using detail::load_as;
__extension__ using u128 = unsigned __int128;

constexpr std::uint32_t kPrime32_1 = 0x9E3779B1;
constexpr std::uint32_t kPrime32_2 = 0x85EBCA77;
constexpr std::uint32_t kPrime32_3 = 0xC2B2AE3D;
constexpr std::uint64_t kPrime64_1 = 0x9E3779B185EBCA87;
constexpr std::uint64_t kPrime64_2 = 0xC2B2AE3D27D4EB4F;
constexpr std::uint64_t kPrime64_3 = 0x165667B19E3779F9;
constexpr std::uint64_t kPrime64_4 = 0x85EBCA77C2B2AE63;
constexpr std::uint64_t kPrime64_5 = 0x27D4EB2F165667C5;

std::uint64_t load64(const std::byte* p) noexcept { return load_as<std::uint64_t>(p); }
std::uint32_t load32(const std::byte* p) noexcept { return load_as<std::uint32_t>(p); }

constexpr std::uint64_t xor_shift(std::uint64_t h, int bits) noexcept { return h ^ (h >> bits); }

constexpr std::uint64_t avalanche64(std::uint64_t h) noexcept {
    h = xor_shift(h, 33) * kPrime64_2;
    h = xor_shift(h, 29) * kPrime64_3;
    return xor_shift(h, 32);
}

// ---- XXH64 --------------------------------------------------------------------------------------

constexpr std::uint64_t round64(std::uint64_t lane, std::uint64_t input) noexcept {
    return std::rotl(lane + input * kPrime64_2, 31) * kPrime64_1;
}

// ---- XXH3 ---------------------------------------------------------------------------------------

constexpr std::size_t kSecretBytes = 192;
constexpr std::size_t kSecretLeast =
    136;  // of any secret: the offsets of mid-sized inputs are based on it
constexpr std::size_t kStripe = 64;
constexpr std::size_t kStripesPerBlock = (kSecretBytes - kStripe) / 8;

constexpr std::array<unsigned char, kSecretBytes> kSecretData = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};
static_assert(kSecretData.size() == kSecretBytes);
const std::byte* const kSecret = reinterpret_cast<const std::byte*>(kSecretData.data());

constexpr std::uint64_t avalanche3(std::uint64_t h) noexcept {
    return xor_shift(xor_shift(h, 37) * 0x165667919E3779F9, 32);
}

constexpr Hash128 multiply(std::uint64_t a, std::uint64_t b) noexcept {
    const u128 product = u128{a} * b;
    return {static_cast<std::uint64_t>(product), static_cast<std::uint64_t>(product >> 64)};
}

constexpr std::uint64_t fold(std::uint64_t a, std::uint64_t b) noexcept {
    const Hash128 product = multiply(a, b);
    return product.low ^ product.high;
}

std::uint64_t mix16(const std::byte* p, const std::byte* secret) noexcept {
    return fold(load64(p) ^ load64(secret), load64(p + 8) ^ load64(secret + 8));
}

void mix32(Hash128& acc, const std::byte* a, const std::byte* b, const std::byte* secret) noexcept {
    acc.low += mix16(a, secret);
    acc.low ^= load64(b) + load64(b + 8);
    acc.high += mix16(b, secret + 16);
    acc.high ^= load64(a) + load64(a + 8);
}

Hash128 finish_mixed(const Hash128& acc, std::uint64_t n) noexcept {
    const std::uint64_t high = acc.low * kPrime64_1 + acc.high * kPrime64_4 + n * kPrime64_2;
    return {avalanche3(acc.low + acc.high), 0 - avalanche3(high)};
}

Hash128 hash_to_16(const std::byte* p, std::size_t n) noexcept {
    if (n > 8) {
        const std::uint64_t flip_low = load64(kSecret + 32) ^ load64(kSecret + 40);
        const std::uint64_t flip_high = load64(kSecret + 48) ^ load64(kSecret + 56);
        const std::uint64_t low = load64(p);
        std::uint64_t high = load64(p + n - 8);
        Hash128 m = multiply(low ^ high ^ flip_low, kPrime64_1);
        m.low += std::uint64_t{n - 1} << 54;
        high ^= flip_high;
        m.high += high + (high & 0xFFFFFFFF) * (kPrime32_2 - 1);
        m.low ^= __builtin_bswap64(m.high);
        Hash128 h = multiply(m.low, kPrime64_2);
        h.high += m.high * kPrime64_2;
        return {avalanche3(h.low), avalanche3(h.high)};
    }
    if (n >= 4) {
        const std::uint64_t both = load32(p) + (std::uint64_t{load32(p + n - 4)} << 32);
        const std::uint64_t keyed = both ^ load64(kSecret + 16) ^ load64(kSecret + 24);
        Hash128 m = multiply(keyed, kPrime64_1 + (std::uint64_t{n} << 2));
        m.high += m.low << 1;
        m.low ^= m.high >> 3;
        m.low = xor_shift(m.low, 35) * 0x9FB21C651E98DF25;
        return {xor_shift(m.low, 28), avalanche3(m.high)};
    }
    if (n > 0) {
        const auto byte_at = [p](std::size_t i) { return std::to_integer<std::uint32_t>(p[i]); };
        const std::uint32_t low = (byte_at(0) << 16) | (byte_at(n >> 1) << 24) | byte_at(n - 1) |
                                  (static_cast<std::uint32_t>(n) << 8);
        const std::uint32_t high = std::rotl(__builtin_bswap32(low), 13);
        return {avalanche64(low ^ std::uint64_t{load32(kSecret) ^ load32(kSecret + 4)}),
                avalanche64(high ^ std::uint64_t{load32(kSecret + 8) ^ load32(kSecret + 12)})};
    }
    return {avalanche64(load64(kSecret + 64) ^ load64(kSecret + 72)),
            avalanche64(load64(kSecret + 80) ^ load64(kSecret + 88))};
}

Hash128 hash_to_240(const std::byte* p, std::size_t n) noexcept {
    Hash128 acc{n * kPrime64_1, 0};
    if (n <= 128) {
        // From the innermost 32 bytes outwards.
        for (std::size_t i = (n - 1) / 32 + 1; i-- > 0;)
            mix32(acc, p + 16 * i, p + n - 16 * (i + 1), kSecret + 32 * i);
        return finish_mixed(acc, n);
    }
    for (std::size_t i = 0; i < 128; i += 32) mix32(acc, p + i, p + i + 16, kSecret + i);
    acc = {avalanche3(acc.low), avalanche3(acc.high)};
    for (std::size_t i = 128; i + 32 <= n; i += 32)
        mix32(acc, p + i, p + i + 16, kSecret + 3 + i - 128);
    mix32(acc, p + n - 16, p + n - 32, kSecret + kSecretLeast - 17 - 16);
    return finish_mixed(acc, n);
}

using Lanes = std::array<std::uint64_t, 8>;

void accumulate(Lanes& lanes, const std::byte* stripe, const std::byte* secret) noexcept {
    for (std::size_t i = 0; i < 8; ++i) {
        const std::uint64_t value = load64(stripe + 8 * i);
        const std::uint64_t key = value ^ load64(secret + 8 * i);
        lanes[i ^ 1] += value;
        lanes[i] += (key & 0xFFFFFFFF) * (key >> 32);
    }
}

// One stripe after another, with the scramble that ends each block of them.
void accumulate_next(Lanes& lanes, std::size_t& at, const std::byte* stripe) noexcept {
    accumulate(lanes, stripe, kSecret + 8 * at);
    if (++at < kStripesPerBlock) return;
    at = 0;
    for (std::size_t i = 0; i < 8; ++i) {
        const std::uint64_t key = load64(kSecret + kSecretBytes - kStripe + 8 * i);
        lanes[i] = (xor_shift(lanes[i], 47) ^ key) * kPrime32_1;
    }
}

std::uint64_t merge(const Lanes& lanes, const std::byte* secret, std::uint64_t start) noexcept {
    for (std::size_t i = 0; i < 8; i += 2)
        start += fold(lanes[i] ^ load64(secret + 8 * i), lanes[i + 1] ^ load64(secret + 8 * i + 8));
    return avalanche3(start);
}

}  // namespace

std::uint64_t xxh64(std::span<const std::byte> data, std::uint64_t seed) noexcept {
    const std::byte* p = data.data();
    std::size_t left = data.size();
    std::uint64_t h = seed + kPrime64_5;
    if (left >= 32) {
        std::uint64_t lanes[4] = {seed + kPrime64_1 + kPrime64_2, seed + kPrime64_2, seed,
                                  seed - kPrime64_1};
        for (; left >= 32; left -= 32, p += 32)
            for (std::size_t i = 0; i < 4; ++i) lanes[i] = round64(lanes[i], load64(p + 8 * i));
        h = std::rotl(lanes[0], 1) + std::rotl(lanes[1], 7) + std::rotl(lanes[2], 12) +
            std::rotl(lanes[3], 18);
        for (const std::uint64_t lane : lanes) h = (h ^ round64(0, lane)) * kPrime64_1 + kPrime64_4;
    }
    h += data.size();
    for (; left >= 8; left -= 8, p += 8)
        h = std::rotl(h ^ round64(0, load64(p)), 27) * kPrime64_1 + kPrime64_4;
    if (left >= 4) {
        h = std::rotl(h ^ (load32(p) * kPrime64_1), 23) * kPrime64_2 + kPrime64_3;
        left -= 4;
        p += 4;
    }
    for (; left > 0; --left, ++p)
        h = std::rotl(h ^ (std::to_integer<std::uint64_t>(*p) * kPrime64_5), 11) * kPrime64_1;
    return avalanche64(h);
}

Xxh3::Xxh3() noexcept
    : lanes_{kPrime32_3, kPrime64_1, kPrime64_2, kPrime64_3,
             kPrime64_4, kPrime32_2, kPrime64_5, kPrime32_1} {}

void Xxh3::consume_buffer() noexcept {
    for (std::size_t i = 0; i < kBufferBytes; i += kStripe)
        accumulate_next(lanes_, stripe_, buffer_.data() + i);
    buffered_ = 0;
}

void Xxh3::update(const void* data, std::size_t n) noexcept {
    const auto* p = static_cast<const std::byte*>(data);
    total_ += n;
    while (n > 0) {
        // A full buffer waits for one more byte: the end of the input is hashed differently.
        if (buffered_ == kBufferBytes) consume_buffer();
        const std::size_t part = std::min(n, kBufferBytes - buffered_);
        std::memcpy(buffer_.data() + buffered_, p, part);
        buffered_ += part;
        p += part;
        n -= part;
    }
}

Hash128 Xxh3::digest() const noexcept {
    if (total_ <= 16) return hash_to_16(buffer_.data(), total_);
    if (total_ <= 240) return hash_to_240(buffer_.data(), total_);
    Lanes lanes = lanes_;
    std::size_t at = stripe_;
    for (std::size_t i = 0; i + kStripe < buffered_; i += kStripe)
        accumulate_next(lanes, at, buffer_.data() + i);
    // The last 64 bytes once more, which may begin at the end of the previous buffer.
    std::byte last[kStripe];
    const std::size_t newer = std::min(buffered_, kStripe);
    std::memcpy(last, buffer_.data() + kBufferBytes - (kStripe - newer), kStripe - newer);
    std::memcpy(last + (kStripe - newer), buffer_.data() + buffered_ - newer, newer);
    accumulate(lanes, last, kSecret + kSecretBytes - kStripe - 7);
    return {merge(lanes, kSecret + 11, total_ * kPrime64_1),
            merge(lanes, kSecret + kSecretBytes - kStripe - 11, ~(total_ * kPrime64_2))};
}

}  // namespace tapewire
