// The rules of books, and saved books with hostile bytes.
#include <cstring>
#include <limits>
#include <random>
#include <string>

#include "book_kit.hpp"
#include "check.hpp"
#include "tapewire/book/batch.hpp"
#include "tapewire/book/book.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"

using namespace tapewire;
using namespace tapewire::book;
using kit::diff;
using kit::L3Type;
using kit::order;
using kit::Side;
using kit::snapshot;
using kit::trade;

namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Book l2(GapPolicy on_gap = GapPolicy::raise) { return Book(Options{.on_gap = on_gap}); }

Book l3(Rules rules = Rules::none, Unknown unknown = Unknown::ignore) {
    return Book(Options{.mode = format::BookMode::l3, .rules = rules, .unknown = unknown});
}

format::Level best(const Book& book, Side side) {
    format::Level level{0, 0};
    book.best(side, level);
    return level;
}

std::vector<std::byte> saved(const Book& book) {
    std::vector<std::byte> bytes;
    book.save(bytes);
    return bytes;
}

void repair_checksum(std::vector<std::byte>& bytes) {
    const std::uint32_t crc = crc32c(bytes.data() + 4, bytes.size() - 4);
    std::memcpy(bytes.data(), &crc, 4);
}

// Ends the test on anything but an Error or a consistent book.
bool loads(const std::vector<std::byte>& bytes, const Options& options) {
    try {
        const Book book = Book::load(bytes, options);
        CHECK(book.consistent());
        CHECK(book.trusted());
        return true;
    } catch (const Error&) {
        return false;
    }
}

// Orders on both sides in few levels, so that queues have heads, middles and tails to leave; the
// venue's rules decide what else an event means.
std::vector<format::L3Event> day_of_orders(std::uint64_t seed) {
    std::mt19937_64 random(seed);
    std::vector<format::L3Event> day;
    for (std::uint64_t id = 1; id <= 20'000; ++id) {
        const Side side = random() % 2 == 0 ? Side::buy : Side::sell;
        const auto away = static_cast<std::int64_t>(1 + random() % 40);
        const std::int64_t price = side == Side::buy ? 1000 - away : 1000 + away;
        day.push_back(order(L3Type::add, id, side, price, 1'000).order);
        const std::uint64_t other = 1 + random() % id;
        const auto some = static_cast<std::int64_t>(random() % 4);
        const std::uint64_t kind = random() % 4;
        if (kind == 0) day.push_back(order(L3Type::cancel, other, Side::unknown, 0, some).order);
        if (kind == 1) day.push_back(order(L3Type::modify, other, side, price, 998 + some).order);
        if (kind == 2) day.push_back(trade(other, 0, price, some, Side::sell).order);
        if (kind == 3) day.push_back(trade(other, 1 + random() % id, price, some).order);
    }
    for (format::L3Event& e : day) {
        e.price_scale = e.size_scale = 8;
        e.flags |= format::kL3OpeningAuction;  // may cross
    }
    return day;
}

}  // namespace

TEST(diffs_before_the_snapshot_wait_for_it) {
    Book book = l2();
    CHECK(book.apply(diff({{10, 1}}, {}, 4, 5), 1) == Applied::buffered);
    CHECK(book.apply(diff({{10, 2}}, {}, 5, 8), 2) == Applied::buffered);
    CHECK(book.apply(diff({{11, 3}}, {}, 8, 9), 3) == Applied::buffered);
    CHECK(!book.trusted());
    CHECK(book.apply(snapshot({{10, 7}}, {{12, 7}}, 6), 4) == Applied::changed);
    CHECK(book.trusted());
    CHECK_EQ(book.last_update(), 9);
    CHECK_EQ(best(book, Side::buy).price, 11);
    CHECK_EQ(book.depth(Side::buy, 9), 5);
}

TEST(the_number_of_waiting_diffs_is_bounded) {
    Book book = l2(GapPolicy::resync);
    const kit::Levels many(60'000, {1, 1});
    for (std::uint64_t i = 1; i <= 100; ++i) book.apply(diff(many, {}, i, i + 1), i);
    CHECK(book.waiting() < 100);
    CHECK(book.memory_bytes() < (std::size_t{66} << 20));
}

TEST(a_gap_is_named_and_a_snapshot_ends_it) {
    Book book = l2();
    book.apply(snapshot({{10, 1}}, {{12, 1}}, 5), 1);
    try {
        book.apply(diff({{10, 9}}, {}, 8, 9), 2);
        CHECK(false);
    } catch (const Error& e) {
        CHECK(e.code == Errc::gap_detected);
        CHECK_EQ(e.numbers[0], 6);
        CHECK_EQ(e.numbers[1], 8);
    }
    CHECK(book.distrust() == Distrust::venue_gap);
    CHECK_EQ(best(book, Side::buy).size, 1);
    CHECK(book.apply(snapshot({{10, 2}}, {{12, 2}}, 8), 3) == Applied::changed);
    CHECK(book.trusted());
    CHECK_EQ(best(book, Side::buy).size, 9);  // the diff that showed the gap was kept
    CHECK(book.gaps().size() == 1 && book.gaps()[0].resynced);
}

TEST(an_invalid_snapshot_repairs_nothing) {
    for (const bool scales : {false, true}) {
        Book book = l2(GapPolicy::resync);
        book.apply(snapshot({{10, 1}}, {{12, 1}}, 5), 1);
        book.apply(diff({{10, 9}}, {}, 8, 9), 2);
        const Hash128 before = book.hash();
        kit::BookEvent bad = snapshot({{10, 2}}, {{12, scales ? 2 : -2}}, 8);
        if (scales) bad.price_scale = 9;
        CHECK(book.apply(bad, 3) == Applied::ignored);
        CHECK(book.distrust() == Distrust::venue_gap);
        CHECK(book.hash() == before);
        for (const Gap& gap : book.gaps()) CHECK(!gap.resynced);
        book.apply(snapshot({{10, 2}}, {{12, 2}}, 8), 4);
        CHECK(book.trusted());
        CHECK_EQ(best(book, Side::buy).size, 9);  // the waiting diffs were not lost
        for (const Gap& gap : book.gaps()) CHECK(gap.resynced);
    }
}

TEST(a_snapshot_without_an_id_is_newer_than_what_waits) {
    Book book = l2();
    book.apply(diff({{10, 1}}, {}, 4, 5), 1);
    book.apply(snapshot({{10, 7}}, {}, 0), 2);
    CHECK(book.trusted());
    CHECK_EQ(best(book, Side::buy).size, 7);
    CHECK_EQ(book.waiting(), 0);
    book.apply(diff({{10, 8}}, {}, 20, 21), 3);  // sets the current ids
    CHECK_EQ(book.last_update(), 21);
}

TEST(an_invalid_diff_changes_nothing) {
    for (const bool delta : {false, true}) {
        Book book = l2(GapPolicy::resync);
        book.apply(snapshot({{10, 1}, {9, kMost}}, {{12, 1}}, 5), 1);
        const Hash128 before = book.hash();
        // The last price is below 0; as deltas, the same price is changed twice, and one level is
        // removed.
        kit::BookEvent bad =
            diff({{10, 4}, {10, 1}, {8, 2}},
                 delta ? kit::Levels{{12, -1}, {13, -1}} : kit::Levels{{12, 3}, {13, -1}}, 5, 6);
        bad.delta = delta;
        std::vector<TopRow> rows;
        CHECK(book.apply(bad, 2, rows) == Applied::buffered);
        CHECK(book.distrust() == Distrust::negative_size);
        CHECK(book.hash() == before);
        CHECK(book.consistent());
        CHECK_EQ(book.last_update(), 5);
        CHECK(rows.size() == 1 && rows[0].bid_size == 0 && rows[0].ask_size == 0);
    }
}

TEST(depth_does_not_overflow) {
    Book book = l2();
    book.apply(snapshot({{3, kMost}, {2, kMost}, {1, 1}}, {}, 1), 1);
    CHECK_EQ(book.depth(Side::buy, 3), kMost);
    kit::BookEvent more = diff({{3, 1}}, {}, 1, 2);
    more.delta = true;
    CHECK_THROWS(book.apply(more, 2), Error);
    CHECK(book.distrust() == Distrust::does_not_fit);
}

TEST(other_scales_are_converted_exactly_or_distrusted) {
    Book book = l2(GapPolicy::resync);
    kit::BookEvent coarse = snapshot({{5, 7}}, {}, 1);
    coarse.price_scale = coarse.size_scale = 6;
    book.apply(coarse, 1);
    CHECK_EQ(best(book, Side::buy).price, 500);
    CHECK_EQ(best(book, Side::buy).size, 700);
    kit::BookEvent fine = diff({{60'000, 10}}, {}, 1, 2);
    fine.price_scale = 10;
    book.apply(fine, 2);
    CHECK_EQ(best(book, Side::buy).price, 600);
    fine = diff({{60'001, 10}}, {}, 2, 3);
    fine.price_scale = 10;
    book.apply(fine, 3);
    CHECK(book.distrust() == Distrust::does_not_fit);
}

TEST(an_event_of_another_instrument_is_refused) {
    Book book = l2();
    book.apply(snapshot({{10, 1}}, {}, 1), 1);
    kit::BookEvent other = diff({{10, 0}}, {}, 1, 2);
    other.head.market_id = 7;
    CHECK_THROWS(book.apply(other, 2), Error);
    CHECK_THROWS(book.apply(order(L3Type::add, 1, Side::buy, 1, 1), 3), Error);
    CHECK_EQ(best(book, Side::buy).size, 1);
}

TEST(a_queue_is_first_come_first_served) {
    Book book = l3();
    for (std::uint64_t id = 1; id <= 4; ++id)
        book.apply(order(L3Type::add, id, Side::buy, 100, 10), id);
    book.apply(order(L3Type::modify, 1, Side::buy, 100, 5), 5);   // less: keeps its place
    book.apply(order(L3Type::modify, 2, Side::buy, 100, 20), 6);  // more: to the end
    std::uint64_t ahead = 0;
    std::int64_t size = 0;
    CHECK(book.queue_position(2, ahead, size));
    CHECK_EQ(ahead, 3);
    CHECK_EQ(size, 25);
    book.apply(trade(1, 0, 100, 5), 7);
    CHECK(book.queue_position(3, ahead, size) && ahead == 0);
    CHECK(book.consistent());
    CHECK_EQ(book.order_count(Side::buy, 100), 3);
}

TEST(shanghai_reduces_only_the_passive_side) {
    Book book = l3(Rules::sse);
    book.apply(order(L3Type::add, 1, Side::buy, 100, 10), 1);
    book.apply(order(L3Type::add, 2, Side::sell, 101, 10), 2);
    book.apply(trade(9, 2, 101, 4, Side::buy), 3);  // 9 is added later, with what is left of it
    CHECK_EQ(best(book, Side::sell).size, 6);
    CHECK_EQ(book.unknown_count(), 0);
    book.apply(trade(1, 2, 100, 1), 4);  // of an auction
    CHECK_EQ(best(book, Side::buy).size, 9);
    CHECK_EQ(best(book, Side::sell).size, 5);
}

TEST(shenzhen_market_orders_rest_where_they_traded) {
    Book book = l3(Rules::szse);
    book.apply(order(L3Type::add, 1, Side::sell, 2075, 10), 1);
    kit::BookEvent market = order(L3Type::add, 2, Side::buy, -1, 30);
    market.order.ord_type = '1';
    book.apply(market, 2);
    CHECK_EQ(book.level_count(Side::buy), 0);
    book.apply(trade(2, 1, 2075, 10), 3);
    CHECK_EQ(book.level_count(Side::buy), 0);  // more of it may still trade
    kit::BookEvent own = order(L3Type::add, 3, Side::buy, 0, 5);
    own.order.ord_type = 'U';
    const std::vector<std::byte> before = saved(book);
    book.apply(own, 4);
    CHECK_EQ(best(book, Side::buy).price, 2075);
    CHECK_EQ(best(book, Side::buy).size, 25);  // 20 left over, and 5 that joined the best
    Book again = Book::load(before, book.options());
    again.apply(own, 4);
    CHECK(again.hash() == book.hash());
}

TEST(an_id_used_again_does_not_take_the_price_of_the_order_before) {
    Book book = l3(Rules::szse);
    book.apply(order(L3Type::add, 1, Side::sell, 2075, 10), 1);
    book.apply(order(L3Type::add, 2, Side::buy, -1, 30), 2);
    book.apply(trade(2, 1, 2075, 10), 3);
    book.apply(order(L3Type::cancel, 2), 4);
    book.apply(order(L3Type::add, 2, Side::buy, -1, 5), 5);
    book.apply(order(L3Type::add, 3, Side::sell, 2080, 5), 6);
    CHECK_EQ(book.level_count(Side::buy), 0);
    CHECK(book.consistent());
}

TEST(a_level_whose_sum_would_overflow_distrusts_the_book) {
    Book book = l3();
    book.apply(order(L3Type::add, 1, Side::buy, 100, kMost), 1);
    CHECK_THROWS(book.apply(order(L3Type::add, 2, Side::buy, 100, 1), 2), Error);
    CHECK(book.distrust() == Distrust::does_not_fit);
    CHECK(book.consistent());
    book.apply(order(L3Type::reset, 0), 3);
    CHECK(book.trusted());
}

TEST(a_trade_of_an_order_with_itself_reduces_it_once) {
    Book book = l3();
    book.apply(order(L3Type::add, 1, Side::buy, 100, 5), 1);
    book.apply(trade(1, 1, 100, 5), 2);
    CHECK_EQ(book.order_count(), 0);
    CHECK(book.consistent());
}

TEST(orders_in_memory_give_the_book_that_their_records_give) {
    for (const Rules rules : {Rules::none, Rules::szse, Rules::sse}) {
        const auto day = day_of_orders(static_cast<std::uint64_t>(rules));
        Book one = l3(rules), all = l3(rules);
        std::uint64_t seq = 0;
        kit::BookEvent event = kit::event(kit::EventType::diff, kit::BookMode::l3);
        std::vector<TopRow> expected, tops;
        for (const format::L3Event& e : day) {
            event.order = e;
            one.apply(event, ++seq);
            expected.push_back(one.top_row(0));
        }
        apply_orders(all, {}, day, 1, [&] { tops.push_back(all.top_row(0)); });
        CHECK_EQ(tops.size(), day.size());
        CHECK(std::memcmp(tops.data(), expected.data(), tops.size() * sizeof(TopRow)) == 0);
        CHECK(all.consistent() && all.hash() == one.hash());
        CHECK_EQ(all.order_count(), one.order_count());
        CHECK(all.order_count() > 1'000);
        CHECK_EQ(all.last_seq(), day.size());
    }
}

TEST(an_untrusted_book_is_not_saved) {
    Book book = l2();
    std::vector<std::byte> bytes;
    CHECK_THROWS(book.save(bytes), Error);
}

TEST(an_untrusted_book_continues_from_its_state) {
    Book book = l2(GapPolicy::resync);
    book.apply(kit::snapshot({{100, 5}}, {{101, 5}}, 10), 1);
    book.apply(kit::diff({{99, 1}}, {}, 12, 13), 2);  // 11 and 12 are missing
    book.apply(kit::diff({{98, 2}}, {}, 13, 14), 3);
    std::vector<std::byte> state;
    book.save_state(state);
    Book other = Book::load_state(state, book.options());
    CHECK(!other.trusted());
    CHECK_EQ(other.waiting(), 2);
    for (Book* each : {&book, &other}) {
        each->apply(kit::snapshot({{100, 4}}, {{101, 4}}, 12), 4);
        CHECK(each->trusted());
        CHECK_EQ(each->level_count(Side::buy), 3);
    }
    CHECK(book.hash() == other.hash());
    // Whatever a byte is changed to, the result is a book or an error.
    for (std::size_t i = 0; i < state.size(); ++i) {
        for (const int change : {1, 0x80, 0xff}) {
            std::vector<std::byte> damaged = state;
            damaged[i] ^= static_cast<std::byte>(change);
            try {
                CHECK(Book::load_state(damaged, book.options()).consistent());
            } catch (const Error&) {
            }
        }
        CHECK_THROWS(Book::load_state(std::span(state).first(i), book.options()), Error);
    }
}

TEST(damaged_bytes_are_refused_or_give_a_book) {
    Book orders = l3(Rules::szse);
    for (std::uint64_t id = 1; id <= 20; ++id)
        orders.apply(order(L3Type::add, id, id % 2 == 0 ? Side::buy : Side::sell,
                           static_cast<std::int64_t>(100 + id % 2 * 10 + id % 3), 5),
                     id);
    kit::BookEvent market = order(L3Type::add, 99, Side::buy, -1, 30);
    orders.apply(market, 21);
    Book levels = l2();
    levels.apply(snapshot({{5, 1}, {4, 2}, {3, 3}}, {{6, 1}, {7, 2}}, 1), 1);
    for (const Book* book : {&orders, &levels}) {
        const std::vector<std::byte> right = saved(*book);
        CHECK(loads(right, book->options()));
        for (std::size_t i = 0; i < right.size(); ++i) {
            std::vector<std::byte> cut(right.begin(),
                                       right.begin() + static_cast<std::ptrdiff_t>(i));
            CHECK(!loads(cut, book->options()));
            if (cut.size() > 4) {
                repair_checksum(cut);
                CHECK(!loads(cut, book->options()));
            }
            for (const int value : {0x00, 0x01, 0x7F, 0x80, 0xFF}) {
                std::vector<std::byte> other = right;
                if (other[i] == std::byte(value)) continue;
                other[i] = std::byte(value);
                CHECK(!loads(other, book->options()));
                repair_checksum(other);
                loads(other, book->options());
            }
        }
        std::vector<std::byte> longer = right;
        longer.push_back(std::byte{0});
        repair_checksum(longer);
        CHECK(!loads(longer, book->options()));
    }
}

TEST_MAIN()
