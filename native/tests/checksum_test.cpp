#include "tapewire/checksum.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <string_view>
#include <vector>

#include "check.hpp"

namespace {

using tapewire::detail::ChecksumOps;
using tapewire::detail::kCrc32cPoly;
using tapewire::detail::kCrc32Poly;

// Called by a static initialiser: must work in any order of the files' initialisers.
const std::uint32_t at_static_initialisation = tapewire::crc32("123456789", 9);

// The definition, one bit at a time.
std::uint32_t bitwise(std::uint32_t poly, const unsigned char* p, std::size_t n,
                      std::uint32_t seed = 0) {
    std::uint32_t crc = ~seed;
    for (std::size_t i = 0; i < n; ++i) {
        crc ^= p[i];
        for (int bit = 0; bit < 8; ++bit) {
            crc = (crc >> 1) ^ ((crc & 1) != 0 ? poly : 0);
        }
    }
    return ~crc;
}

// Every implementation that this machine can run, including the portable one.
std::vector<ChecksumOps> implementations() {
    tapewire::select_checksum(tapewire::ChecksumImpl::portable);
    std::vector<ChecksumOps> all{tapewire::detail::checksum_ops};
    tapewire::select_checksum(tapewire::ChecksumImpl::automatic);
    for (const ChecksumOps& ops : tapewire::detail::accelerated_checksums()) {
        all.push_back(ops);
    }
    return all;
}

std::vector<unsigned char> random_bytes(std::size_t n, unsigned seed) {
    std::mt19937 generator(seed);
    std::vector<unsigned char> bytes(n);
    for (auto& byte : bytes) {
        byte = static_cast<unsigned char>(generator());
    }
    return bytes;
}

// Compares all implementations with the definition over n bytes at an alignment of `offset`. The
// buffer ends with the message, so that the address sanitiser detects any read past it.
void compare(const std::vector<ChecksumOps>& all, const std::vector<unsigned char>& source,
             std::size_t n, std::size_t offset) {
    const auto exact = std::make_unique<unsigned char[]>(offset + n);
    unsigned char* p = exact.get() + offset;
    if (n > 0) {
        std::memcpy(p, source.data() + offset, n);
    }
    const auto seed = static_cast<std::uint32_t>(n * 2654435761U + offset);
    const std::uint32_t ieee = bitwise(kCrc32Poly, p, n);
    const std::uint32_t castagnoli = bitwise(kCrc32cPoly, p, n);
    const std::uint32_t seeded = bitwise(kCrc32cPoly, p, n, seed);
    for (const ChecksumOps& ops : all) {
        const bool ok = CHECK_EQ(ops.crc32(p, n), ieee) &&
                        CHECK_EQ(ops.crc32c(p, n, 0), castagnoli) &&
                        CHECK_EQ(ops.crc32c(p, n, seed), seeded);
        if (!ok) {
            std::cerr << "    " << ops.name << ", length " << n << ", offset " << offset << '\n';
        }
        if (n == 32) {
            CHECK_EQ(ops.crc32c_32bytes(p, tapewire::kCrc32cState), castagnoli);
            // From another state: as if bytes with that checksum had come before.
            CHECK_EQ(ops.crc32c_32bytes(p, ~castagnoli),
                     tapewire::crc32c_portable(p, 32, castagnoli));
        }
    }
}

}  // namespace

TEST(known_vectors) {
    constexpr std::string_view digits = "123456789";
    std::array<unsigned char, 32> zeros{};
    std::array<unsigned char, 32> ones;
    ones.fill(0xFF);
    std::array<unsigned char, 32> ascending;
    std::iota(ascending.begin(), ascending.end(), static_cast<unsigned char>(0));
    for (const ChecksumOps& ops : implementations()) {
        CHECK_EQ(ops.crc32(digits.data(), digits.size()), 0xCBF43926U);
        CHECK_EQ(ops.crc32c(digits.data(), digits.size(), 0), 0xE3069283U);
        CHECK_EQ(ops.crc32(nullptr, 0), 0U);
        CHECK_EQ(ops.crc32c(nullptr, 0, 0), 0U);
        CHECK_EQ(ops.crc32c(nullptr, 0, 0x12345678U), 0x12345678U);
        CHECK_EQ(ops.crc32(zeros.data(), zeros.size()), 0x190A55ADU);
        CHECK_EQ(ops.crc32c(zeros.data(), zeros.size(), 0), 0x8A9136AAU);
        CHECK_EQ(ops.crc32c_32bytes(zeros.data(), tapewire::kCrc32cState), 0x8A9136AAU);
        CHECK_EQ(ops.crc32c_32bytes(ones.data(), tapewire::kCrc32cState), 0x62A8AB43U);
        CHECK_EQ(ops.crc32c_32bytes(ascending.data(), tapewire::kCrc32cState), 0x46DD794EU);
    }
}

TEST(every_length_at_every_alignment) {
    const auto all = implementations();
    const auto source = random_bytes(1024 + 16, 1);
    for (std::size_t offset = 0; offset < 16; ++offset) {
        for (std::size_t n = 0; n <= 1024; ++n) {
            compare(all, source, n, offset);
        }
    }
}

TEST(long_buffers) {
    const auto all = implementations();
    const auto source = random_bytes(100'000, 2);
    std::mt19937 generator(3);
    for (const std::size_t n : {4096UL, 12'288UL, 65'536UL, 99'984UL}) {
        compare(all, source, n, 0);
    }
    for (int i = 0; i < 200; ++i) {
        compare(all, source, 1024 + generator() % 8192, generator() % 64);
    }
}

// A page between two that fault: messages at its very beginning and end. This finds what the
// address sanitiser does not detect, such as masked loads.
TEST(nothing_outside_the_buffer_is_read) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    void* mapped = mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!CHECK(mapped != MAP_FAILED)) {
        return;
    }
    unsigned char* begin = static_cast<unsigned char*>(mapped) + page;
    CHECK_EQ(mprotect(begin, page, PROT_READ | PROT_WRITE), 0);
    const auto source = random_bytes(page, 7);
    std::memcpy(begin, source.data(), page);
    for (const ChecksumOps& ops : implementations()) {
        for (std::size_t n = 0; n <= 1100; ++n) {
            for (const unsigned char* p : {begin, begin + page - n}) {
                CHECK_EQ(ops.crc32(p, n), bitwise(kCrc32Poly, p, n));
                CHECK_EQ(ops.crc32c(p, n, 0), bitwise(kCrc32cPoly, p, n));
            }
        }
        CHECK_EQ(ops.crc32c_32bytes(begin, tapewire::kCrc32cState),
                 bitwise(kCrc32cPoly, begin, 32));
        const unsigned char* last = begin + page - 32;
        CHECK_EQ(ops.crc32c_32bytes(last, tapewire::kCrc32cState), bitwise(kCrc32cPoly, last, 32));
    }
    munmap(mapped, 3 * page);
}

// A CRC must detect a change of any bit; a block left out of the sum would go undetected.
TEST(every_bit_counts) {
    auto bytes = random_bytes(80, 4);
    for (const ChecksumOps& ops : implementations()) {
        for (const std::size_t n : {7UL, 32UL, 64UL, 75UL}) {
            const std::uint32_t before = ops.crc32(bytes.data(), n);
            for (std::size_t bit = 0; bit < 8 * n; ++bit) {
                const auto mask = static_cast<unsigned char>(1U << (bit % 8));
                bytes[bit / 8] ^= mask;
                CHECK(ops.crc32(bytes.data(), n) != before);
                bytes[bit / 8] ^= mask;
            }
        }
    }
}

TEST(crc32c_is_chainable) {
    const auto bytes = random_bytes(2000, 5);
    for (const ChecksumOps& ops : implementations()) {
        const std::uint32_t whole = ops.crc32c(bytes.data(), bytes.size(), 0);
        for (std::size_t cut = 0; cut <= bytes.size(); cut += cut < 64 ? 1 : 37) {
            const std::uint32_t first = ops.crc32c(bytes.data(), cut, 0);
            CHECK_EQ(ops.crc32c(bytes.data() + cut, bytes.size() - cut, first), whole);
        }
    }
}

TEST(selection) {
    CHECK_EQ(at_static_initialisation, 0xCBF43926U);
    const auto accelerated = tapewire::detail::accelerated_checksums();
    const auto bytes = random_bytes(512, 6);

    tapewire::select_checksum(tapewire::ChecksumImpl::portable);
    CHECK_EQ(std::string_view(tapewire::checksum_impl_name()), "portable");
    const std::uint32_t crc32 = tapewire::crc32(bytes.data(), bytes.size());
    const std::uint32_t crc32c = tapewire::crc32c(bytes.data(), bytes.size());
    const std::uint32_t crc32c_32 = tapewire::crc32c_32bytes(bytes.data());
    CHECK_EQ(tapewire::crc32_portable(bytes.data(), bytes.size()), crc32);
    CHECK_EQ(tapewire::crc32c_portable(bytes.data(), bytes.size()), crc32c);

    tapewire::select_checksum(tapewire::ChecksumImpl::automatic);
    const std::string_view expected = accelerated.empty() ? "portable" : accelerated.front().name;
    CHECK_EQ(std::string_view(tapewire::checksum_impl_name()), expected);
    CHECK_EQ(tapewire::crc32(bytes.data(), bytes.size()), crc32);
    CHECK_EQ(tapewire::crc32c(bytes.data(), bytes.size()), crc32c);
    CHECK_EQ(tapewire::crc32c_32bytes(bytes.data()), crc32c_32);
    std::cout << "implementation: " << tapewire::checksum_impl_name() << '\n';
}

TEST_MAIN()
