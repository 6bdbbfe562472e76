// Checksums on x86-64: carry-less multiplication for CRC-32 and for long CRC-32C, see
// checksum_clmul.hpp; the SSE4.2 crc32 instruction, which supports only Castagnoli's polynomial,
// for short CRC-32C. `crc` and the results of the crc_... functions are raw registers: the entry
// points at the end do the inversions.
#if defined(__x86_64__)

#include "checksum_clmul.hpp"

namespace tapewire::detail {
namespace {

using namespace clmul;

#define TAPEWIRE_WIDE __attribute__((target("pclmul,sse4.2,avx512f,avx512vl,vpclmulqdq")))
#define TAPEWIRE_WIDE_INLINE \
    __attribute__((target("pclmul,sse4.2,avx512f,avx512vl,vpclmulqdq"), always_inline)) inline

// 1 to 15 bytes, with two overlapping loads.
template <std::uint32_t Poly>
TAPEWIRE_CLMUL_INLINE std::uint32_t crc_below_16(std::uint32_t crc, const unsigned char* p,
                                                 std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<Poly>;
    if (n >= 8) {
        // The last 8 bytes fill the high half, including those that overlap the register's 4 bytes.
        const std::uint64_t high =
            load_as<std::uint64_t>(p + n - 8) ^ (std::uint64_t{crc} >> (8 * (n - 8)));
        // The first n - 8 go to the top of the low half (two shifts: n == 8 shifts out all 64).
        const std::uint64_t low = ((load_as<std::uint64_t>(p) ^ crc) << 8) << (8 * (15 - n));
        const __m128i block =
            _mm_set_epi64x(static_cast<long long>(high), static_cast<long long>(low));
        return reduce(fold_last(block, k), k);
    }
    std::uint64_t word;       // the bytes, at the top of 64 bits: this is T already
    std::uint32_t carry = 0;  // the part of the register that fewer than 4 bytes do not reach
    if (n >= 4) {
        const std::uint64_t first = load_as<std::uint32_t>(p);
        const std::uint64_t last = load_as<std::uint32_t>(p + n - 4);
        word = (first | (last << (8 * (n - 4)))) ^ crc;
    } else {
        // For 1, 2, 3 bytes these are the bytes 0 0 0, 0 1 1, 0 1 2.
        word = std::uint64_t{p[0]} | std::uint64_t{p[n / 2]} << (8 * (n / 2)) |
               std::uint64_t{p[n - 1]} << (8 * (n - 1));
        word ^= crc;  // the excess bytes are shifted out below
        carry = crc >> (8 * n);
    }
    word <<= 8 * (8 - n);
    return reduce(_mm_cvtsi64_si128(static_cast<long long>(word)), k) ^ carry;
}

// 16 bytes to kDistances - 1 blocks and 15 bytes.
template <std::uint32_t Poly>
TAPEWIRE_CLMUL_INLINE std::uint32_t crc_short(std::uint32_t crc, const unsigned char* p,
                                              std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<Poly>;
    const auto [head, first, rest, blocks] = start(crc, p, n);
    const unsigned char* next = rest;
    __m128i sum = fold(head, k.to_end(blocks));
    __m128i block = first;
    for (std::size_t d = blocks - 1; d > 0; --d, next += 16) {
        sum = _mm_xor_si128(sum, fold(block, k.to_end(d)));
        block = load(next);
    }
    return reduce(_mm_xor_si128(sum, fold_last(block, k)), k);
}

// 4 blocks or more: four lanes, enough to hide the latency of the multiplication.
template <std::uint32_t Poly>
TAPEWIRE_CLMUL std::uint32_t crc_long(std::uint32_t crc, const unsigned char* p,
                                      std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<Poly>;
    const Start s = start(crc, p, n);
    __m128i lanes[4] = {_mm_xor_si128(s.first, fold(s.head, k.by_1)), load(s.rest),
                        load(s.rest + 16), load(s.rest + 32)};
    const unsigned char* next = s.rest + 48;
    std::size_t left = s.blocks - 4;
    for (; left >= 4; left -= 4, next += 64) {
        for (std::size_t i = 0; i < 4; ++i) {
            lanes[i] = _mm_xor_si128(fold(lanes[i], k.by_4), load(next + 16 * i));
        }
    }
    std::size_t d = 4 + left;
    __m128i sum = _mm_setzero_si128();
    for (const __m128i& lane : lanes) {
        sum = _mm_xor_si128(sum, fold(lane, k.to_end(--d)));
    }
    for (; d > 0; next += 16) {
        sum = _mm_xor_si128(sum, fold(load(next), k.to_end(--d)));
    }
    return reduce(sum, k);
}

// ---- the same, four blocks per register (VPCLMULQDQ on AVX-512) --------------------------------

TAPEWIRE_WIDE_INLINE __m256i load_pair(const void* p) noexcept {
    return _mm256_loadu_si256(static_cast<const __m256i*>(p));
}

TAPEWIRE_WIDE_INLINE __m256i fold_pair(__m256i pair, __m256i constants) noexcept {
    return _mm256_xor_si256(_mm256_clmulepi64_epi128(pair, constants, 0x00),
                            _mm256_clmulepi64_epi128(pair, constants, 0x11));
}

// Four blocks, or the `blocks` remaining ones followed by zeros.
TAPEWIRE_WIDE_INLINE __m512i load_quad(const unsigned char* p, std::size_t blocks) noexcept {
    const unsigned words = blocks >= 4 ? 0xFF : (1U << (2 * blocks)) - 1;
    return _mm512_maskz_loadu_epi64(static_cast<__mmask8>(words), p);
}

// sum + quad * constants
TAPEWIRE_WIDE_INLINE __m512i add_fold(__m512i sum, __m512i quad, __m512i constants) noexcept {
    return _mm512_ternarylogic_epi64(sum, _mm512_clmulepi64_epi128(quad, constants, 0x00),
                                     _mm512_clmulepi64_epi128(quad, constants, 0x11),
                                     0x96);  // the exclusive or of all three
}

// To the end, for the first four of the last `blocks` blocks.
TAPEWIRE_WIDE_INLINE __m512i quad_to_end(const FoldConstants& k, std::size_t blocks) noexcept {
    return _mm512_loadu_si512(k.to_end(blocks - 1));
}

TAPEWIRE_WIDE_INLINE std::uint32_t reduce_pair(__m256i sum, const FoldConstants& k) noexcept {
    return reduce(_mm_xor_si128(_mm256_castsi256_si128(sum), _mm256_extracti128_si256(sum, 1)), k);
}

// The halves by maskz with a full mask, i.e. unmasked: the plain forms start from an "undefined"
// register, which GCC 12 reports as uninitialised.
TAPEWIRE_WIDE_INLINE std::uint32_t reduce_quad(__m512i sum, const FoldConstants& k) noexcept {
    return reduce_pair(_mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xFF, sum, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xFF, sum, 1)),
                       k);
}

// 64 bytes to kDistances - 1 blocks and 15 bytes.
template <std::uint32_t Poly>
TAPEWIRE_WIDE_INLINE std::uint32_t crc_short_wide(std::uint32_t crc, const unsigned char* p,
                                                  std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<Poly>;
    const Start s = start(crc, p, n);
    const unsigned char* next = s.rest - 16;
    std::size_t left = s.blocks;
    const __m512i quad = _mm512_inserti32x4(_mm512_loadu_si512(next), s.first, 0);
    __m512i sum = _mm512_zextsi128_si512(fold(s.head, k.to_end(left)));
    sum = add_fold(sum, quad, quad_to_end(k, left));
    while (left > 4) {
        left -= 4;
        next += 64;
        sum = add_fold(sum, load_quad(next, left), quad_to_end(k, left));
    }
    return reduce_quad(sum, k);
}

// 16 blocks or more: four registers of four lanes.
template <std::uint32_t Poly>
TAPEWIRE_WIDE std::uint32_t crc_long_wide(std::uint32_t crc, const unsigned char* p,
                                          std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<Poly>;
    const Start s = start(crc, p, n);
    const __m128i first = _mm_xor_si128(s.first, fold(s.head, k.by_1));
    const unsigned char* next = s.rest - 16;
    __m512i quads[4] = {_mm512_inserti32x4(_mm512_loadu_si512(next), first, 0),
                        _mm512_loadu_si512(next + 64), _mm512_loadu_si512(next + 128),
                        _mm512_loadu_si512(next + 192)};
    next += 256;
    std::size_t left = s.blocks - 16;
    constexpr auto low = static_cast<long long>(k.by_16[0]);
    constexpr auto high = static_cast<long long>(k.by_16[1]);
    const __m512i by_16 = _mm512_set4_epi64(high, low, high, low);
    for (; left >= 16; left -= 16, next += 256) {
        for (std::size_t i = 0; i < 4; ++i) {
            quads[i] = add_fold(_mm512_loadu_si512(next + 64 * i), quads[i], by_16);
        }
    }
    __m512i sum = _mm512_setzero_si512();
    for (std::size_t i = 0; i < 4; ++i) {
        sum = add_fold(sum, quads[i], quad_to_end(k, left + 16 - 4 * i));
    }
    for (; left > 0; left -= left < 4 ? left : 4, next += 64) {
        sum = add_fold(sum, load_quad(next, left), quad_to_end(k, left));
    }
    return reduce_quad(sum, k);
}

// ---- the entry points ---------------------------------------------------------------------------

constexpr std::uint32_t kAllOnes = 0xFFFFFFFF;

// 64 bytes are the usual payload: tested first, and without loop or shifts.
TAPEWIRE_CLMUL std::uint32_t crc32_x86(const void* data, std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<kCrc32Poly>;
    const auto* p = static_cast<const unsigned char*>(data);
    if (n == 64) [[likely]] {
        const __m128i first = _mm_xor_si128(load(p), register_of(kAllOnes));
        const __m128i a = _mm_xor_si128(fold(first, k.to_end(3)), fold(load(p + 16), k.to_end(2)));
        const __m128i b =
            _mm_xor_si128(fold(load(p + 32), k.to_end(1)), fold_last(load(p + 48), k));
        return ~reduce(_mm_xor_si128(a, b), k);
    }
    if (n >= 16 * kDistances) {
        return ~crc_long<kCrc32Poly>(kAllOnes, p, n);
    }
    if (n >= 16) {
        return ~crc_short<kCrc32Poly>(kAllOnes, p, n);
    }
    return n == 0 ? 0 : ~crc_below_16<kCrc32Poly>(kAllOnes, p, n);
}

TAPEWIRE_WIDE std::uint32_t crc32_wide(const void* data, std::size_t n) noexcept {
    constexpr const FoldConstants& k = kConstants<kCrc32Poly>;
    const auto* p = static_cast<const unsigned char*>(data);
    if (n == 64) [[likely]] {
        // Two pairs rather than one quad: one step less from the sum to the result, which matters
        // more here than the two multiplications saved.
        const __m256i old = _mm256_zextsi128_si256(register_of(kAllOnes));
        const __m256i far = _mm256_xor_si256(load_pair(p), old);
        return ~reduce_pair(_mm256_xor_si256(fold_pair(far, load_pair(k.to_end(3))),
                                             fold_pair(load_pair(p + 32), load_pair(k.to_end(1)))),
                            k);
    }
    if (n == 128) {  // the event of an order
        const __m512i old = _mm512_zextsi128_si512(register_of(kAllOnes));
        const __m512i far = _mm512_xor_si512(_mm512_loadu_si512(p), old);
        const __m512i sum = add_fold(_mm512_setzero_si512(), far, quad_to_end(k, 8));
        return ~reduce_quad(add_fold(sum, _mm512_loadu_si512(p + 64), quad_to_end(k, 4)), k);
    }
    if (n >= 16 * kDistances) {
        return ~crc_long_wide<kCrc32Poly>(kAllOnes, p, n);
    }
    if (n > 64) {
        return ~crc_short_wide<kCrc32Poly>(kAllOnes, p, n);
    }
    if (n >= 16) {
        return ~crc_short<kCrc32Poly>(kAllOnes, p, n);
    }
    return n == 0 ? 0 : ~crc_below_16<kCrc32Poly>(kAllOnes, p, n);
}

// From here on folding is faster than the chain of crc32 instructions. (crc_long_wide needs 16
// blocks.)
constexpr std::size_t kLongCrc32c = 256;

using LongCrc = std::uint32_t (*)(std::uint32_t, const unsigned char*, std::size_t) noexcept;

TAPEWIRE_CLMUL_INLINE std::uint64_t crc32c_step(std::uint64_t crc,
                                                const unsigned char* p) noexcept {
    return _mm_crc32_u64(crc, load_as<std::uint64_t>(p));
}

template <LongCrc Long>
TAPEWIRE_CLMUL std::uint32_t crc32c_x86(const void* data, std::size_t n,
                                        std::uint32_t seed) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    if (n >= kLongCrc32c) {
        return ~Long(~seed, p, n);
    }
    std::uint64_t wide = ~seed;
    for (std::size_t words = n / 8; words > 0; --words, p += 8) {
        wide = crc32c_step(wide, p);
    }
    auto crc = static_cast<std::uint32_t>(wide);
    if ((n & 4) != 0) {
        crc = _mm_crc32_u32(crc, load_as<std::uint32_t>(p));
        p += 4;
    }
    if ((n & 2) != 0) {
        crc = _mm_crc32_u16(crc, load_as<std::uint16_t>(p));
        p += 2;
    }
    if ((n & 1) != 0) {
        crc = _mm_crc32_u8(crc, *p);
    }
    return ~crc;
}

TAPEWIRE_CLMUL std::uint32_t crc32c_32bytes_x86(const void* data, std::uint32_t state) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    std::uint64_t crc = crc32c_step(state, p);
    crc = crc32c_step(crc, p + 8);
    crc = crc32c_step(crc, p + 16);
    crc = crc32c_step(crc, p + 24);
    return ~static_cast<std::uint32_t>(crc);
}

constexpr ChecksumOps kX86[] = {
    {crc32_wide, crc32c_x86<crc_long_wide<kCrc32cPoly>>, crc32c_32bytes_x86, "x86-64 vpclmulqdq"},
    {crc32_x86, crc32c_x86<crc_long<kCrc32cPoly>>, crc32c_32bytes_x86, "x86-64 pclmulqdq"},
};

}  // namespace

std::span<const ChecksumOps> accelerated_checksums() noexcept {
    __builtin_cpu_init();  // this may run before the constructor that normally does it
    if (!__builtin_cpu_supports("pclmul") || !__builtin_cpu_supports("sse4.2")) {
        return {};
    }
    const bool wide = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                      __builtin_cpu_supports("vpclmulqdq");
    return std::span<const ChecksumOps>{kX86}.subspan(wide ? 0 : 1);
}

}  // namespace tapewire::detail

#endif  // __x86_64__
