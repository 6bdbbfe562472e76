// CRC-32 (payloads) and CRC-32C (headers, index files), with the fastest instructions of the CPU.
//
// The implementation is chosen once, when the library is loaded. Before that (in a static
// initialiser that happens to run earlier) the calls use the portable code, which gives the same
// results, so they are always safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tapewire {

enum class ChecksumImpl {
    automatic,  // the fastest this CPU supports (the default)
    portable,   // table driven, no special instructions
};

/// Switches every later call to another implementation. For tests and diagnosis: it is not
/// synchronised, so call it while no other thread computes a checksum.
void select_checksum(ChecksumImpl impl) noexcept;

/// Name of the implementation in use, e.g. "x86-64 pclmulqdq" or "portable".
const char* checksum_impl_name() noexcept;

/// The table driven versions, whatever is selected.
std::uint32_t crc32_portable(const void* data, std::size_t n) noexcept;
std::uint32_t crc32c_portable(const void* data, std::size_t n, std::uint32_t seed = 0) noexcept;

namespace detail {

// The generator polynomials without their x^32 term, reflected: bit 31-j is the coefficient of x^j.
inline constexpr std::uint32_t kCrc32Poly = 0xEDB88320;   // IEEE 802.3, as in zlib
inline constexpr std::uint32_t kCrc32cPoly = 0x82F63B78;  // Castagnoli, RFC 3720

struct ChecksumOps {
    std::uint32_t (*crc32)(const void* data, std::size_t n) noexcept;
    std::uint32_t (*crc32c)(const void* data, std::size_t n, std::uint32_t seed) noexcept;
    std::uint32_t (*crc32c_32bytes)(const void* p, std::uint32_t state) noexcept;
    const char* name;
};

/// The implementation that the calls below use.
extern ChecksumOps checksum_ops;

/// The accelerated implementations that this CPU can run, best first; may be empty.
std::span<const ChecksumOps> accelerated_checksums() noexcept;

/// Unaligned load in native (little endian) order.
template <typename T>
inline T load_as(const void* p) noexcept {
    T value;
    std::memcpy(&value, p, sizeof value);
    return value;
}

}  // namespace detail

/// CRC-32 as in zlib; 0 for no bytes.
inline std::uint32_t crc32(const void* data, std::size_t n) noexcept {
    return detail::checksum_ops.crc32(data, n);
}

/// CRC-32C; `seed` is the result over the preceding bytes: crc32c(b, nb, crc32c(a, na)) is the
/// checksum of a followed by b.
inline std::uint32_t crc32c(const void* data, std::size_t n, std::uint32_t seed = 0) noexcept {
    return detail::checksum_ops.crc32c(data, n, seed);
}

/// The initial state of an ordinary CRC-32C.
inline constexpr std::uint32_t kCrc32cState = ~std::uint32_t{0};

/// CRC-32C of 32 bytes, without the length tests and from any initial `state` of the register: the
/// header check of every record. From kCrc32cState it equals crc32c(p, 32).
inline std::uint32_t crc32c_32bytes(const void* p, std::uint32_t state = kCrc32cState) noexcept {
    return detail::checksum_ops.crc32c_32bytes(p, state);
}

}  // namespace tapewire
