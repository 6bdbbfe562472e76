// CRC by carry-less multiplication (PCLMULQDQ): the constants and building blocks of
// checksum_x86.cpp.
// How folding works. A message is a polynomial M over GF(2) whose first bit is the highest
// coefficient; its CRC register is M * x^32 mod P. Cut M into 16 byte blocks B, each followed by d
// blocks: M = sum of B * x^(128 d). Each half of a block (64 coefficients) times the constant x^e
// mod P has the same remainder as that half times x^e, but fewer than 96 coefficients. So the sum
// over all halves is one 96 bit number T congruent to M * x^32, and the products are independent of
// each other: there is no serial chain. One Barrett reduction of T gives the CRC.
//
// Leading zeros do not change M, so a length that is not a multiple of 16 is padded at the front:
// the odd bytes are shifted within a register, nothing outside the buffer is read, and there is no
// byte-wise tail.
//
// Bit order. CRC-32 is "reflected": loaded little endian, bit 0 is the highest coefficient. With
//   a half block in 64 bits: bit i is the coefficient of x^(63-i),
//   a constant in 33 bits:   bit i is the coefficient of x^(32-i),
// their carry-less product has bit i for x^(95-i): exactly T's layout, without any shift.
#pragma once

#include <immintrin.h>

#include "tapewire/checksum.hpp"

namespace tapewire::detail::clmul {

#define TAPEWIRE_CLMUL        __attribute__((target("pclmul,sse4.2")))
#define TAPEWIRE_CLMUL_INLINE __attribute__((target("pclmul,sse4.2"), always_inline)) inline

// ---- constants ---------------------------------------------------------------------------------

// a * x mod P, for `a` in the layout of `poly` (bit 31-j for x^j): a shift towards the higher
// degrees, which are the lower bits; an x^32 that comes out is replaced by P's other terms.
constexpr std::uint32_t times_x(std::uint32_t a, std::uint32_t poly) {
    return (a >> 1) ^ ((a & 1) != 0 ? poly : 0);
}

// a * x^e mod P.
constexpr std::uint32_t times_x_pow(std::uint32_t a, unsigned e, std::uint32_t poly) {
    for (; e > 0; --e) {
        a = times_x(a, poly);
    }
    return a;
}

inline constexpr std::uint32_t kOne = 0x80000000;  // the polynomial 1

// From the 32 bit layout (bit 31-j for x^j) to the 33 bit one (bit 32-j).
constexpr std::uint64_t widen(std::uint32_t a) { return std::uint64_t{a} << 1; }

// floor(x^96 / P) by long division. It has 65 coefficients, bit i for x^(64-i); the last one does
// not influence the quotient bits that reduce() uses, so 64 bits are enough.
constexpr std::uint64_t barrett_quotient(std::uint32_t poly) {
    std::uint64_t quotient = 1;      // x^96 = x^64 * P + ...
    std::uint32_t remainder = poly;  // ... x^64 * (P - x^32)
    for (int i = 1; i < 64; ++i) {
        quotient |= std::uint64_t{remainder & 1} << i;
        remainder = times_x(remainder, poly);
    }
    return quotient;
}

inline constexpr std::size_t kDistances = 32;

// Pairs are for the low and the high half of a register: the first and last 8 bytes of a block.
struct alignas(64) FoldConstants {
    // The furthest distance first, as the blocks of a message, so that one wide load gets the pairs
    // for consecutive blocks; the zeros at the end pad such a load.
    std::uint64_t descending[kDistances + 3][2];
    // by_1/4/16: for moving a block 1, 4 or 16 blocks further, where it is added to 128 message
    // bits. Those are x^32 lower in a register than T is, so the exponents are 32 lower.
    std::uint64_t by_1[2];
    std::uint64_t by_4[2];
    std::uint64_t by_16[2];
    std::uint64_t barrett[2];  // floor(x^96 / P), and P itself in 33 bits

    // For a block followed by d blocks. Its halves are at x^(128 d + 64) and x^(128 d), multiplied
    // by the x^32 of the definition of the CRC.
    constexpr auto to_end(std::size_t d) const noexcept -> const std::uint64_t (&)[2] {
        return descending[kDistances - 1 - d];
    }
};

constexpr FoldConstants make_constants(std::uint32_t poly) {
    FoldConstants k{};
    std::uint32_t power = times_x_pow(kOne, 32, poly);
    for (std::size_t d = 0; d < kDistances; ++d) {
        auto& pair = k.descending[kDistances - 1 - d];
        pair[1] = widen(power);  // x^(128 d + 32)
        power = times_x_pow(power, 64, poly);
        pair[0] = widen(power);  // x^(128 d + 96)
        power = times_x_pow(power, 64, poly);
    }
    const auto move_by = [poly](unsigned blocks, std::uint64_t (&pair)[2]) {
        pair[0] = widen(times_x_pow(kOne, 128 * blocks + 64 - 32, poly));
        pair[1] = widen(times_x_pow(kOne, 128 * blocks - 32, poly));
    };
    move_by(1, k.by_1);
    move_by(4, k.by_4);
    move_by(16, k.by_16);
    k.barrett[0] = barrett_quotient(poly);
    k.barrett[1] = widen(poly) | 1;  // bit 0 is x^32
    return k;
}

template <std::uint32_t Poly>
inline constexpr FoldConstants kConstants = make_constants(Poly);

// The published values for CRC-32 (Intel's white paper and Linux).
static_assert(kConstants<kCrc32Poly>.by_4[0] == 0x154442BD4);
static_assert(kConstants<kCrc32Poly>.by_4[1] == 0x1C6E41596);
static_assert(kConstants<kCrc32Poly>.barrett[0] == 0xB4E5B025F7011641);
static_assert(kConstants<kCrc32Poly>.barrett[1] == 0x1DB710641);

// Control bytes for PSHUFB, 0x80 making a zero: 16 bytes from kShift + r move the first r bytes of
// a register to its end; 16 bytes from kShift + 16 + r drop its first r bytes.
inline constexpr std::uint8_t kShift[48] = {
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
    0,    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,   12,   13,   14,   15,
    0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80,
};

// ---- building blocks ---------------------------------------------------------------------------

TAPEWIRE_CLMUL_INLINE __m128i load(const void* p) noexcept {
    return _mm_loadu_si128(static_cast<const __m128i*>(p));
}

// Both halves of `block` times their constants.
TAPEWIRE_CLMUL_INLINE __m128i fold(__m128i block, const std::uint64_t (&pair)[2]) noexcept {
    const __m128i k = load(pair);
    return _mm_xor_si128(_mm_clmulepi64_si128(block, k, 0x00),
                         _mm_clmulepi64_si128(block, k, 0x11));
}

// fold(block, to_end(0)), given that the last half, times x^32, is in place already.
TAPEWIRE_CLMUL_INLINE __m128i fold_last(__m128i block, const FoldConstants& k) noexcept {
    return _mm_xor_si128(_mm_srli_si128(block, 8),
                         _mm_clmulepi64_si128(block, load(k.to_end(0)), 0x00));
}

// T mod P: the quotient q = floor(T / P) is the top of T's first 64 coefficients times
// floor(x^96 / P); the 32 coefficients of T - q * P that are not zero are bits 64 to 95.
TAPEWIRE_CLMUL_INLINE std::uint32_t reduce(__m128i t, const FoldConstants& k) noexcept {
    const __m128i barrett = load(k.barrett);
    const __m128i q = _mm_clmulepi64_si128(t, barrett, 0x00);
    const __m128i q_times_p = _mm_clmulepi64_si128(q, barrett, 0x10);
    return static_cast<std::uint32_t>(_mm_extract_epi32(_mm_xor_si128(t, q_times_p), 2));
}

TAPEWIRE_CLMUL_INLINE __m128i register_of(std::uint32_t crc) noexcept {
    return _mm_cvtsi32_si128(static_cast<int>(crc));
}

// The beginning of a message of 16 bytes or more, cut so that complete blocks remain.
struct Start {
    __m128i head;   // the n % 16 odd bytes after zeros; `blocks` blocks follow
    __m128i first;  // the first complete block
    const unsigned char* rest;
    std::size_t blocks;  // complete blocks, `first` included
};

// The register's old value is added to the first four bytes, which may reach into `first`.
TAPEWIRE_CLMUL_INLINE Start start(std::uint32_t crc, const unsigned char* p,
                                  std::size_t n) noexcept {
    const std::size_t odd = n % 16;
    const __m128i old = register_of(crc);
    const __m128i front = _mm_xor_si128(load(p), old);
    return {_mm_shuffle_epi8(front, load(kShift + odd)),
            _mm_xor_si128(load(p + odd), _mm_shuffle_epi8(old, load(kShift + 16 + odd))),
            p + odd + 16, n / 16};
}

}  // namespace tapewire::detail::clmul
