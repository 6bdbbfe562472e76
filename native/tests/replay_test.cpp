// The replay engine and the snapshot codec, under the sanitizers.
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/replay/engine.hpp"
#include "tapewire/replay/snapshot.hpp"

namespace {

using namespace kit;
using namespace tapewire;
using tapewire::replay::Engine;
using tapewire::replay::EngineOptions;
using tapewire::replay::Kind;
using tapewire::replay::Limits;
using tapewire::replay::Step;
using tapewire::replay::Stop;

constexpr std::uint16_t kVenue = 7;

template <class T>
void put(std::string& to, const T& value) {
    to.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// An L2 event of one bid level. `update` 0: a snapshot with id 100.
std::string event(std::uint32_t market, std::uint64_t time, std::uint64_t update,
                  std::int64_t size) {
    format::BookEventHeader head{};
    head.schema_version = format::kMarketVersion;
    head.venue_id = kVenue;
    head.market_id = market;
    head.ingest_ts_ns = time;
    head.event_type = static_cast<std::uint8_t>(update == 0 ? format::EventType::snapshot
                                                            : format::EventType::diff);
    head.native_seq = update == 0 ? 100 : update;
    head.flags = format::kEventAbsolute | format::kEventHasScale;
    std::string body;
    if (update == 0) {
        format::L2Snapshot snapshot{};
        snapshot.price_scale = 2;
        snapshot.bid_count = 1;
        put(body, snapshot);
    } else {
        format::L2Diff diff{};
        diff.update_id_first = diff.update_id_last = update;
        diff.update_id_prev = update - 1;
        diff.price_scale = 2;
        diff.bid_count = 1;
        put(body, diff);
    }
    put(body, format::Level{1000 + static_cast<std::int64_t>(update % 50), size});
    head.record_len = static_cast<std::uint32_t>(sizeof head + body.size());
    std::string all;
    put(all, head);
    return all + body;
}

void append_event(Writer& writer, const std::string& payload, std::uint64_t time) {
    while (!writer.try_append(format::kBookEvent, 0, writer.next_seq(), time, payload.data(),
                              payload.size())) {
        writer.make_room(payload.size());
        writer.resume();
    }
}

// `count` records alternating between two markets, one nanosecond apart.
void write_tape(const std::string& root, std::uint64_t count) {
    Writer writer(root, small());
    for (std::uint64_t n = 0; n < count; ++n) {
        const auto market = static_cast<std::uint32_t>(1 + n % 2);
        const std::uint64_t place = n / 2;
        append_event(writer, event(market, n, place == 0 ? 0 : 100 + place, 1 + n % 9), n);
    }
}

Hash128 hash_of(const std::string& root, const EngineOptions& options) {
    Reader reader(root, ReaderOptions{});
    Engine engine(reader, options);
    Step step;
    while (engine.next(step)) {
    }
    return engine.hash();
}

}  // namespace

TEST(every_record_is_a_step_and_two_runs_agree) {
    Scratch scratch;
    write_tape(scratch / "q", 500);
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, EngineOptions{});
    Step step;
    std::uint64_t steps = 0;
    while (engine.next(step)) {
        CHECK(step.kind == Kind::book);
        CHECK_EQ(step.record.seq, steps);
        CHECK(step.book != nullptr && step.book->trusted());
        ++steps;
    }
    CHECK_EQ(steps, 500u);
    CHECK_EQ(engine.markets().size(), 2u);
    CHECK(engine.rolls() > 2);
    CHECK(engine.hash() == hash_of(scratch / "q", EngineOptions{}));
}

TEST(only_added_markets_are_shown) {
    Scratch scratch;
    write_tape(scratch / "q", 100);
    EngineOptions options;
    options.only_added = true;
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, options);
    engine.add(kVenue, 2);
    Step step;
    std::uint64_t steps = 0;
    while (engine.next(step)) steps += step.market->market_id == 2;
    CHECK_EQ(steps, 50u);
    CHECK_EQ(engine.records(), 100u);
    CHECK_EQ(engine.markets().size(), 1u);
}

TEST(run_stops_at_each_limit) {
    Scratch scratch;
    write_tape(scratch / "q", 500);
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, EngineOptions{});
    Limits records;
    records.records = 10;
    CHECK(engine.run(records) == Stop::records);
    CHECK_EQ(*engine.last_seq(), 9u);
    Limits time;
    time.until_ns = 20;
    CHECK(engine.run(time) == Stop::time);
    CHECK_EQ(*engine.last_seq(), 20u);
    Limits bytes;
    bytes.bytes = 1;
    CHECK(engine.run(bytes) == Stop::bytes);
    CHECK_EQ(*engine.last_seq(), 21u);
    Limits roll;
    roll.at_roll = true;
    CHECK(engine.run(roll) == Stop::roll);
    CHECK_EQ(engine.rolls(), 1u);
    CHECK(engine.run(Limits{}) == Stop::end);
    CHECK_EQ(engine.records(), 500u);
}

TEST(a_snapshot_gives_the_same_book_and_the_rest_of_the_log_the_same_hash) {
    Scratch scratch;
    write_tape(scratch / "q", 300);
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, EngineOptions{});
    Limits half;
    half.records = 150;
    engine.run(half);
    std::vector<std::vector<std::byte>> files;
    for (const auto& market : engine.markets()) {
        files.push_back(replay::encode_snapshot(*market->book,
                                                {market->venue_id, market->market_id, 149, 149}));
    }
    Reader again(scratch / "q", ReaderOptions{});  // from the start: known records are skipped
    Engine warm(again, EngineOptions{});
    for (const auto& file : files) {
        auto loaded = replay::decode_snapshot(file, book::Options{}, false);
        auto& market = warm.add(kVenue, loaded.header.market_id);
        warm.warm(market, std::make_shared<book::Book>(std::move(loaded.book)), 0,
                  loaded.header.seq_num, 149);
    }
    warm.run(Limits{});
    CHECK_EQ(warm.events(), 150u);
    engine.run(Limits{});
    CHECK(warm.hash() == engine.hash());
}

TEST(a_cut_or_flipped_snapshot_is_refused) {
    Scratch scratch;
    write_tape(scratch / "q", 40);
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, EngineOptions{});
    engine.run(Limits{});
    const auto file = replay::encode_snapshot(*engine.markets()[0]->book, {kVenue, 1, 39, 39});
    const auto refused = [](const std::vector<std::byte>& bytes) {
        try {
            replay::decode_snapshot(bytes, book::Options{}, false);
        } catch (const Error& e) {
            return e.code == Errc::corrupt_metadata || e.code == Errc::unsupported_version ||
                   e.code == Errc::invalid_option;
        }
        return false;
    };
    for (std::size_t n = 0; n < file.size(); ++n) {
        CHECK(refused({file.begin(), file.begin() + static_cast<std::ptrdiff_t>(n)}));
        for (int bit = 0; bit < 8; ++bit) {
            auto flipped = file;
            flipped[n] ^= std::byte{1} << bit;
            // Without bit 0 of flags the header has no check: the rest must still be consistent.
            if (n == 88 && bit == 0) continue;
            CHECK(refused(flipped));
        }
    }
}

TEST(records_that_are_gone_make_their_books_untrusted) {
    Scratch scratch;
    write_tape(scratch / "q", 400);
    fs::remove(Layout{scratch / "q"}.segment(2));
    EngineOptions options;
    options.skip_damaged = true;
    Reader reader(scratch / "q", ReaderOptions{});
    Engine engine(reader, options);
    Step step;
    std::uint64_t gaps = 0;
    while (engine.next(step)) gaps += step.kind == Kind::gap;
    CHECK(gaps >= 1);
    CHECK_EQ(engine.tape_gaps().size(), gaps);
    for (const auto& market : engine.markets()) CHECK(!market->book->trusted());
}

TEST_MAIN()
