// The portable checksums and the choice of the implementation. The accelerated ones are in
// checksum_x86.cpp and checksum_arm.cpp.
#include "tapewire/checksum.hpp"

#include <bit>

namespace tapewire {

// The table code and the per-ISA code read words of the message with plain loads.
static_assert(std::endian::native == std::endian::little, "Tapewire runs on little endian only");

namespace {

using detail::load_as;

// Slicing-by-8: at[0] advances a CRC by one byte; at[s] by one byte followed by s zero bytes, so
// that eight independent lookups, one per byte, replace eight dependent steps.
struct SlicingTables {
    std::uint32_t at[8][256];
};

constexpr SlicingTables make_tables(std::uint32_t poly) {
    SlicingTables t{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? poly : 0);
        }
        t.at[0][byte] = crc;
    }
    for (int slice = 1; slice < 8; ++slice) {
        for (int byte = 0; byte < 256; ++byte) {
            const std::uint32_t before = t.at[slice - 1][byte];
            t.at[slice][byte] = (before >> 8) ^ t.at[0][before & 0xFF];
        }
    }
    return t;
}

constexpr SlicingTables kCrc32Tables = make_tables(detail::kCrc32Poly);
constexpr SlicingTables kCrc32cTables = make_tables(detail::kCrc32cPoly);

// `crc` is the raw register, before the final inversion.
inline std::uint32_t step8(const SlicingTables& t, std::uint32_t crc, std::uint64_t word) noexcept {
    word ^= crc;  // the register lines up with the first four bytes
    return t.at[7][word & 0xFF] ^ t.at[6][(word >> 8) & 0xFF] ^ t.at[5][(word >> 16) & 0xFF] ^
           t.at[4][(word >> 24) & 0xFF] ^ t.at[3][(word >> 32) & 0xFF] ^
           t.at[2][(word >> 40) & 0xFF] ^ t.at[1][(word >> 48) & 0xFF] ^ t.at[0][word >> 56];
}

inline std::uint32_t sliced(const SlicingTables& t, std::uint32_t crc, const void* data,
                            std::size_t n) noexcept {
    const auto* p = static_cast<const unsigned char*>(data);
    for (; n >= 8; p += 8, n -= 8) {
        crc = step8(t, crc, load_as<std::uint64_t>(p));
    }
    for (; n > 0; ++p, --n) {
        crc = (crc >> 8) ^ t.at[0][(crc ^ *p) & 0xFF];
    }
    return crc;
}

std::uint32_t crc32c_32bytes_portable(const void* p, std::uint32_t state) noexcept {
    return ~sliced(kCrc32cTables, state, p, 32);
}

constexpr detail::ChecksumOps kPortable{crc32_portable, crc32c_portable, crc32c_32bytes_portable,
                                        "portable"};

// Priority 101, the first that is not reserved, runs before the ordinary static initialisers of the
// same library or executable: these already use the fast code.
__attribute__((constructor(101))) void choose_at_load() {
    select_checksum(ChecksumImpl::automatic);
}

}  // namespace

// constinit: initialised by the loader, hence valid before any code of ours runs.
constinit detail::ChecksumOps detail::checksum_ops = kPortable;

#if !defined(__x86_64__) && !defined(__aarch64__)
std::span<const detail::ChecksumOps> detail::accelerated_checksums() noexcept { return {}; }
#endif

std::uint32_t crc32_portable(const void* data, std::size_t n) noexcept {
    return ~sliced(kCrc32Tables, ~std::uint32_t{0}, data, n);
}

std::uint32_t crc32c_portable(const void* data, std::size_t n, std::uint32_t seed) noexcept {
    return ~sliced(kCrc32cTables, ~seed, data, n);
}

void select_checksum(ChecksumImpl impl) noexcept {
    const auto accelerated = detail::accelerated_checksums();
    const bool use_portable = impl == ChecksumImpl::portable || accelerated.empty();
    detail::checksum_ops = use_portable ? kPortable : accelerated.front();
}

const char* checksum_impl_name() noexcept { return detail::checksum_ops.name; }

}  // namespace tapewire
