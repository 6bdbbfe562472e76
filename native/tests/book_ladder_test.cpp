// One side of a book compared with std::map, while windows are added, moved and removed.
#include <limits>
#include <map>
#include <random>
#include <vector>

#include "check.hpp"
#include "tapewire/book/ladder.hpp"
#include "tapewire/book/levels.hpp"
#include "tapewire/book/order_index.hpp"

using namespace tapewire;
using book::Ladder;
using book::Levels;
using book::OrderIndex;
using format::Side;

namespace {

using Map = std::map<std::int64_t, std::int64_t>;

template <typename Iterator>
bool same(const Ladder<std::int64_t>& ladder, Iterator at, Iterator end, std::size_t n) {
    bool right = true;
    std::size_t visited = 0;
    ladder.each(n, [&](std::int64_t price, std::int64_t size) {
        right = right && at != end && at->first == price && at->second == size;
        if (at != end) ++at;
        ++visited;
    });
    return right && (at == end || visited == n);
}

bool same(const Ladder<std::int64_t>& ladder, const Map& map, Side side,
          std::size_t n = std::numeric_limits<std::size_t>::max()) {
    if (ladder.size() != map.size()) return false;
    if (map.empty()) return true;
    const auto& best = side == Side::buy ? *map.rbegin() : *map.begin();
    if (ladder.best_price() != best.first || ladder.best_value() != best.second) return false;
    return side == Side::buy ? same(ladder, map.rbegin(), map.rend(), n)
                             : same(ladder, map.begin(), map.end(), n);
}

void set(Ladder<std::int64_t>& ladder, Map& map, std::int64_t price, std::int64_t size) {
    ladder.set(price, size);
    if (size == 0) {
        map.erase(price);
    } else {
        map[price] = size;
    }
}

void wander(Side side, std::int64_t tick, std::int64_t start) {
    std::mt19937_64 random(static_cast<std::uint64_t>(tick));
    Ladder<std::int64_t> ladder(side);
    Map map;
    std::int64_t middle = 0;
    const std::int64_t sign = side == Side::buy ? -1 : 1;
    for (int i = 0; i < 60'000; ++i) {
        if (i % 50 == 0) middle += static_cast<std::int64_t>(random() % 41) - 18;
        // Mostly near the best, at times far away, sometimes between two ticks.
        const auto away =
            static_cast<std::int64_t>(random() % (std::uint64_t{1} << (random() % 16)));
        const std::int64_t odd = tick > 1 && random() % 200 == 0 ? 1 : 0;
        const std::int64_t price = start + (middle + sign * away) * tick + odd;
        set(ladder, map, price, static_cast<std::int64_t>(random() % 3));
        if (ladder.get(price) != (map.count(price) != 0 ? map[price] : 0)) {
            CHECK(false);
            return;
        }
        if (i % 997 == 0 && !(CHECK(ladder.consistent()) && CHECK(same(ladder, map, side)))) return;
    }
    CHECK(ladder.window() > 0);
    CHECK(same(ladder, map, side, 10));
    while (!map.empty()) set(ladder, map, map.begin()->first, 0);
    CHECK(ladder.empty());
    CHECK(ladder.consistent());
}

}  // namespace

TEST(a_side_equals_a_map) {
    for (const Side side : {Side::buy, Side::sell})
        for (const std::int64_t tick : {1L, 2L, 25L, 10'000'000L, 1L << 40})
            wander(side, tick, tick * 12345);
}

TEST(a_run_of_levels_is_set_as_its_levels_one_by_one) {
    std::mt19937_64 random(5);
    for (const Side side : {Side::buy, Side::sell}) {
        Ladder<std::int64_t> ladder(side);
        Map map;
        std::int64_t middle = 0;
        for (int i = 0; i < 4'000; ++i) {
            middle += static_cast<std::int64_t>(random() % 41) - 20;
            std::vector<format::Level> levels(random() % 40);
            for (format::Level& level : levels) {
                const std::uint64_t most = std::uint64_t{1} << (random() % 16);
                level.price = 5 * (middle + static_cast<std::int64_t>(random() % most));
                level.price += random() % 300 == 0 ? 1 : 0;  // between two ticks
                level.size = static_cast<std::int64_t>(random() % 3);
                if (level.size == 0) {
                    map.erase(level.price);
                } else {
                    map[level.price] = level.size;
                }
            }
            ladder.set_all(static_cast<std::uint32_t>(levels.size()),
                           [&](std::uint32_t at) { return levels[at]; });
            if (i % 97 == 0 && !(CHECK(ladder.consistent()) && CHECK(same(ladder, map, side))))
                return;
        }
        CHECK(ladder.window() > 0);
        CHECK(same(ladder, map, side));
        CHECK(same(ladder, map, side, 10));
    }
}

TEST(the_lowest_and_highest_numbers_are_valid_prices) {
    constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
    constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
    for (const Side side : {Side::buy, Side::sell}) {
        Ladder<std::int64_t> ladder(side);
        Map map;
        for (int round = 0; round < 3; ++round) {
            for (std::int64_t i = 0; i < 3000; ++i) {  // enough to require a window
                set(ladder, map, kLeast + i, i % 7);
                set(ladder, map, kMost - i, i % 5);
                set(ladder, map, -i, i % 3);
            }
            CHECK(ladder.consistent());
            CHECK(same(ladder, map, side));
        }
    }
}

TEST(a_cleared_side_is_empty_and_usable) {
    Ladder<std::int64_t> ladder(Side::sell);
    Map map;
    for (std::int64_t i = 0; i < 5000; ++i) set(ladder, map, i * 10, 1);
    CHECK(ladder.window() > 0);
    ladder.clear();
    map.clear();
    CHECK(ladder.empty());
    CHECK(ladder.consistent());
    CHECK_EQ(ladder.get(100), 0);
    for (std::int64_t i = 0; i < 50; ++i) set(ladder, map, i * 10 + 3, i);
    CHECK(same(ladder, map, Side::sell));
    CHECK(ladder.consistent());
}

TEST(chunks_stay_in_order_whatever_is_inserted_and_erased) {
    std::mt19937_64 random(7);
    Levels<std::int64_t> levels;
    Map map;
    for (int i = 0; i < 100'000; ++i) {
        // Grows to some thousands, then shrinks again.
        const auto key = static_cast<std::int64_t>(random() % 6000) - 3000;
        const auto place = levels.find(key);
        CHECK_EQ(place.found, map.count(key) == 1);
        const bool drop = random() % 100 < (i < 50'000 ? 30 : 80);
        if (place.found && drop) {
            levels.erase(place);
            map.erase(key);
        } else if (place.found) {
            levels.value(place) = map[key] = i;
        } else if (!drop) {
            levels.insert(place, key, i);
            map[key] = i;
        }
        if (i % 5003 == 0) CHECK(levels.consistent());
    }
    CHECK(levels.consistent());
    CHECK_EQ(levels.size(), map.size());
    auto walk = levels.best();
    for (auto it = map.rbegin(); it != map.rend(); ++it, walk.next()) {
        CHECK_EQ(walk.key(), it->first);
        CHECK_EQ(walk.value(), it->second);
    }
    CHECK(walk.done());
}

TEST(ids_are_found_while_others_come_and_go) {
    std::mt19937_64 random(3);
    OrderIndex index;
    std::vector<std::uint64_t> ids;  // by slot; 0: free
    std::map<std::uint64_t, std::uint32_t> map;
    const auto id_of = [&](std::uint32_t slot) { return ids[slot]; };
    for (int i = 0; i < 50'000; ++i) {
        // Consecutive ids, and ids that differ only in their upper bits.
        const std::uint64_t id =
            random() % 2 == 0 ? 1 + random() % 3000 : (1 + random() % 3000) << 40;
        const auto known = map.find(id);
        CHECK_EQ(index.find(id, id_of), known == map.end() ? OrderIndex::kNone : known->second);
        if (known != map.end()) {
            index.erase(id, known->second);
            map.erase(known);
        } else {
            ids.push_back(id);
            const auto slot = static_cast<std::uint32_t>(ids.size() - 1);
            index.insert(id, slot);
            map[id] = slot;
        }
    }
    CHECK_EQ(index.size(), map.size());
    for (const auto& [id, slot] : map) CHECK_EQ(index.find(id, id_of), slot);
}

TEST_MAIN()
