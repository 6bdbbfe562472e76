// Books without memory: each allocation of a day fails once. Whatever the operation was, the book
// is unchanged or reports that it is untrusted, and what ends distrust makes it correct again.
#include <cstdlib>
#include <limits>
#include <new>
#include <random>

#include "book_kit.hpp"
#include "check.hpp"
#include "tapewire/book/book.hpp"
#include "tapewire/error.hpp"

namespace {

constexpr std::size_t kNever = std::numeric_limits<std::size_t>::max();
std::size_t allocations_left = kNever;  // the allocation after that many fails, and all later ones

}  // namespace

// Not inlined: the compiler would see memory of malloc given to free without the pair of operators
// that they are in.
[[gnu::noinline]] void* operator new(std::size_t size) {
    if (allocations_left == 0) throw std::bad_alloc();
    if (allocations_left != kNever) --allocations_left;
    if (void* const p = std::malloc(size == 0 ? 1 : size)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new[](std::size_t size) { return operator new(size); }
// Of the order index, whose buckets are cache lines.
[[gnu::noinline]] void* operator new(std::size_t size, std::align_val_t align) {
    if (allocations_left == 0) throw std::bad_alloc();
    if (allocations_left != kNever) --allocations_left;
    if (void* const p = std::aligned_alloc(static_cast<std::size_t>(align), size)) return p;
    throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
    std::free(p);
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete[](void* p, std::size_t) noexcept { std::free(p); }

using namespace tapewire;
using namespace tapewire::book;
using kit::BookEvent;
using kit::L3Type;
using kit::order;
using kit::Side;

namespace {

// A day of levels over a wide range, on even and odd ticks: both parts of a ladder, and windows
// that are laid out again.
std::vector<BookEvent> day_of_levels() {
    std::mt19937_64 random(1);
    const auto levels = [&](std::int64_t sign) {
        kit::Levels made;
        for (int i = 0; i < 40; ++i)
            made.push_back(
                {sign * static_cast<std::int64_t>(random() % (i % 4 == 0 ? 1 << 20 : 2000)),
                 static_cast<std::int64_t>(random() % 3)});
        return made;
    };
    std::vector<BookEvent> day{kit::snapshot(levels(-1), levels(1), 1)};
    for (std::uint64_t i = 1; i < 150; ++i)
        day.push_back(kit::diff(levels(-1), levels(1), i, i + 1));
    return day;
}

std::vector<BookEvent> day_of_orders() {
    std::mt19937_64 random(2);
    std::vector<BookEvent> day;
    for (std::uint64_t id = 1; id <= 3000; ++id) {
        const auto price = static_cast<std::int64_t>(random() % (id % 4 == 0 ? 1 << 20 : 2000)) + 1;
        day.push_back(order(L3Type::add, id, Side::buy, price, 5));
        const std::uint64_t other = random() % id + 1;
        if (id % 3 == 0) day.push_back(order(L3Type::modify, other, Side::buy, price + 7, 9));
        if (id % 3 == 1) day.push_back(order(L3Type::cancel, other));
    }
    return day;
}

Hash128 hash_of(const std::vector<BookEvent>& day, const Options& options) {
    Book book(options);
    std::uint64_t seq = 0;
    for (const BookEvent& event : day) book.apply(event, ++seq);
    CHECK(book.trusted());
    return book.hash();
}

// Runs the day with its allocation number `at` refused; returns false if it has no such allocation.
bool survives(const std::vector<BookEvent>& day, const Options& options, std::size_t at,
              const Hash128& right) {
    Book book(options);
    std::uint64_t seq = 0;
    bool failed = false;
    allocations_left = at;
    for (const BookEvent& event : day) {
        try {
            book.apply(event, ++seq);
        } catch (const std::bad_alloc&) {
            failed = true;
            break;
        }
    }
    const bool reached = allocations_left == 0;
    allocations_left = kNever;
    if (!failed) {
        CHECK(book.trusted() && book.hash() == right);  // it did without the allocation
        return reached;
    }
    CHECK(book.distrust() == Distrust::interrupted || !book.trusted());
    CHECK(!book.distrust_reason().empty());
    book.hash();
    if (options.mode == format::BookMode::l3) book.apply(order(L3Type::reset, 0), ++seq);
    for (const BookEvent& event : day) book.apply(event, ++seq);
    CHECK(book.trusted() && book.consistent());
    CHECK(book.hash() == right);
    return true;
}

void check_each_allocation(const std::vector<BookEvent>& day, const Options& options) {
    const Hash128 right = hash_of(day, options);
    std::size_t at = 0;
    while (survives(day, options, at, right)) ++at;
    CHECK(at > 20);
}

}  // namespace

TEST(a_book_of_levels_survives_a_lack_of_memory) {
    check_each_allocation(day_of_levels(), Options{.on_gap = GapPolicy::resync});
}

TEST(a_book_of_orders_survives_a_lack_of_memory) {
    // Its day cancels and modifies orders that are gone.
    check_each_allocation(day_of_orders(), Options{.mode = format::BookMode::l3,
                                                   .on_gap = GapPolicy::resync,
                                                   .unknown = Unknown::ignore});
}

TEST(a_diff_without_memory_for_it_is_not_kept_in_part) {
    Book book(Options{.on_gap = GapPolicy::resync});
    const kit::Levels levels(100, {1, 1});
    for (std::uint64_t i = 1; i <= 200; ++i) {
        const BookEvent diff = kit::diff(levels, {}, i, i + 1);
        const std::size_t before = book.waiting();
        for (std::size_t at = 0; book.waiting() == before; ++at) {
            allocations_left = at;
            try {
                book.apply(diff, i);
            } catch (const std::bad_alloc&) {
                CHECK_EQ(book.waiting(), before);
            }
            allocations_left = kNever;
        }
    }
    book.apply(kit::snapshot({{5, 5}}, {}, 1), 201);
    CHECK(book.trusted() && book.last_update() == 201);
}

TEST_MAIN()
