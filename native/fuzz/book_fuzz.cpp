// A saved book, followed by events: whatever the bytes are, a book that loads is consistent, is
// saved as it was loaded, and stays consistent whatever follows.
//
// An input is a byte of options, the length of the saved book (2 bytes), the book, and payloads of
// events, each after its length (2 bytes). The checksum of the book is made valid first, so that
// mutants pass the check.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <span>
#include <vector>

#include "mutate.hpp"
#include "tapewire/book/book.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/market/event.hpp"

using namespace tapewire;
using namespace tapewire::book;

namespace {

void require(bool right) {
    if (!right) std::abort();
}

std::span<const std::byte> take(std::span<const std::byte>& rest) {
    std::uint16_t size = 0;
    if (rest.size() < sizeof size) {
        rest = {};
        return {};
    }
    std::memcpy(&size, rest.data(), sizeof size);
    rest = rest.subspan(sizeof size);
    const auto piece = rest.first(std::min<std::size_t>(size, rest.size()));
    rest = rest.subspan(piece.size());
    return piece;
}

Book loaded(std::span<const std::byte> piece, Options options) {
    std::vector<std::byte> payload(piece.begin(), piece.end());
    if (payload.size() > 4) {
        const std::uint32_t crc = crc32c(payload.data() + 4, payload.size() - 4);
        std::memcpy(payload.data(), &crc, sizeof crc);
    }
    try {
        const Options saved = Book::saved_options(payload);
        options.mode = saved.mode;
        options.rules = saved.rules;
        options.price_scale = saved.price_scale;
        options.size_scale = saved.size_scale;
        Book book = Book::load(payload, options);
        require(book.consistent() && book.trusted());
        // Orders that rest at no price are written by id, in whatever order they were read.
        std::vector<std::byte> once, twice;
        book.save(once);
        Book::load(once, options).save(twice);
        require(once == twice && once.size() == payload.size());
        return book;
    } catch (const Error&) {
        return Book(options);
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::span<const std::byte> rest(reinterpret_cast<const std::byte*>(data), size);
    if (rest.empty()) return 0;
    const auto choice = static_cast<std::uint8_t>(rest[0]);
    rest = rest.subspan(1);
    Options options;
    options.on_gap = static_cast<GapPolicy>(choice % 3);
    options.unknown = static_cast<Unknown>(choice / 3 % 3);
    options.mode = static_cast<format::BookMode>(choice / 9 % 2);
    options.rules = static_cast<Rules>(choice / 18 % 3);
    Book book = loaded(take(rest), options);
    std::vector<TopRow> tops;
    for (std::uint64_t seq = 1; !rest.empty(); ++seq) {
        try {
            book.apply(market::decode_book_payload(take(rest)), seq, tops);
        } catch (const Error&) {
        }
        if (seq % 7 == 0) book.release();
    }
    require(book.consistent());
    if (book.trusted()) {
        std::vector<std::byte> payload;
        book.save(payload);
        require(Book::load(payload, book.options()).hash() == book.hash());
    }
    return 0;
}

// The checksum is repaired above, so libFuzzer's own mutations are sufficient.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int) {
    return LLVMFuzzerMutate(data, size, max_size);
}
