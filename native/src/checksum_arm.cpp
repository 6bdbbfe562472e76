// Checksums with the CRC32 instructions of ARMv8, which support both polynomials.
#include "tapewire/checksum.hpp"

#if defined(__aarch64__)

#if defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace tapewire::detail {
namespace {

// Inline assembly rather than <arm_acle.h>: compilers disagree on whether (and with which target
// attribute) the intrinsics exist when the file is built for the ARMv8.0 baseline.
#define TAPEWIRE_CRC_STEP(mnemonic, type, operand)                            \
    static std::uint32_t step(std::uint32_t crc, type word) noexcept {        \
        std::uint32_t result;                                                 \
        __asm__(".arch_extension crc\n\t" mnemonic " %w0, %w1, %" operand "2" \
                : "=r"(result)                                                \
                : "r"(crc), "r"(word));                                       \
        return result;                                                        \
    }

struct Ieee {
    TAPEWIRE_CRC_STEP("crc32b", std::uint8_t, "w")
    TAPEWIRE_CRC_STEP("crc32h", std::uint16_t, "w")
    TAPEWIRE_CRC_STEP("crc32w", std::uint32_t, "w")
    TAPEWIRE_CRC_STEP("crc32x", std::uint64_t, "x")
};

struct Castagnoli {
    TAPEWIRE_CRC_STEP("crc32cb", std::uint8_t, "w")
    TAPEWIRE_CRC_STEP("crc32ch", std::uint16_t, "w")
    TAPEWIRE_CRC_STEP("crc32cw", std::uint32_t, "w")
    TAPEWIRE_CRC_STEP("crc32cx", std::uint64_t, "x")
};

#undef TAPEWIRE_CRC_STEP

template <typename Poly, typename Word>
inline std::uint32_t take(std::uint32_t crc, const unsigned char*& p) noexcept {
    crc = Poly::step(crc, load_as<Word>(p));
    p += sizeof(Word);
    return crc;
}

template <typename Poly>
inline std::uint32_t take32(std::uint32_t crc, const unsigned char*& p) noexcept {
    crc = take<Poly, std::uint64_t>(crc, p);
    crc = take<Poly, std::uint64_t>(crc, p);
    crc = take<Poly, std::uint64_t>(crc, p);
    return take<Poly, std::uint64_t>(crc, p);
}

template <typename Poly>
inline std::uint32_t run(std::uint32_t crc, const void* data, std::size_t n) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    for (; n >= 32; n -= 32) {
        crc = take32<Poly>(crc, p);
    }
    // Fewer than 32 bytes are left: the bits of n give the words that they consist of.
    if ((n & 16) != 0) {
        crc = take<Poly, std::uint64_t>(crc, p);
        crc = take<Poly, std::uint64_t>(crc, p);
    }
    if ((n & 8) != 0) {
        crc = take<Poly, std::uint64_t>(crc, p);
    }
    if ((n & 4) != 0) {
        crc = take<Poly, std::uint32_t>(crc, p);
    }
    if ((n & 2) != 0) {
        crc = take<Poly, std::uint16_t>(crc, p);
    }
    if ((n & 1) != 0) {
        crc = take<Poly, std::uint8_t>(crc, p);
    }
    return crc;
}

std::uint32_t crc32_arm(const void* data, std::size_t n) noexcept {
    return ~run<Ieee>(~std::uint32_t{0}, data, n);
}

std::uint32_t crc32c_arm(const void* data, std::size_t n, std::uint32_t seed) noexcept {
    return ~run<Castagnoli>(~seed, data, n);
}

std::uint32_t crc32c_32bytes_arm(const void* data, std::uint32_t state) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    return ~take32<Castagnoli>(state, p);
}

constexpr ChecksumOps kArm[] = {
    {crc32_arm, crc32c_arm, crc32c_32bytes_arm, "aarch64 crc32"},
};

bool cpu_has_crc32() noexcept {
#if defined(__linux__)
    return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0;
#elif defined(__ARM_FEATURE_CRC32) || defined(__APPLE__)
    return true;  // guaranteed by the compiler's target; every 64 bit Apple Mac has it
#else
    return false;
#endif
}

}  // namespace

std::span<const ChecksumOps> accelerated_checksums() noexcept {
    return cpu_has_crc32() ? std::span<const ChecksumOps>{kArm} : std::span<const ChecksumOps>{};
}

}  // namespace tapewire::detail

#endif  // __aarch64__
