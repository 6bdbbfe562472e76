// What the Python tests of features do not cover well: rounding in every branch, and forged states.
#include "tapewire/replay/feature_loop.hpp"

#include <algorithm>
#include <cstring>
#include <random>

#include "check.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/market/encode.hpp"
#include "tapewire/replay/exact.hpp"

using namespace tapewire;
using namespace tapewire::replay;

namespace {

// A log in memory: what a loop needs of a cursor, and no more.
class Tape : public Cursor {
  public:
    void add(std::int64_t time, std::uint16_t type, std::vector<std::byte> payload) {
        records_.push_back({time, type, std::move(payload)});
    }
    bool next(RecordView& out) override {
        if (!peek(out)) return false;
        pass(out);
        return true;
    }
    bool peek(RecordView& out) override {
        if (at_ == records_.size()) return false;
        const auto& [time, type, payload] = records_[at_];
        out = {payload.data(), static_cast<std::uint32_t>(payload.size()), type, 0, at_, time,
               &none_};
        return true;
    }
    void pass(const RecordView&) noexcept override { ++at_; }
    bool seek_seq(std::uint64_t seq) override {
        at_ = seq;
        return at_ < records_.size();
    }
    std::size_t size() const { return records_.size(); }

    std::size_t read_batch(BatchColumns&, std::size_t) override { return 0; }
    WaitOutcome wait(std::int64_t) override { return WaitOutcome::not_yet; }
    int ready_fd() override { return -1; }
    bool prepare_to_sleep(Bell&) override { return false; }
    bool has_writer() override { return false; }
    bool seek_time(std::int64_t) override { return false; }
    bool seek_start() override { return seek_seq(0); }
    void seek_end() override { at_ = records_.size(); }
    Skipped skip_damaged() override { return {}; }

  private:
    struct Entry {
        std::int64_t time;
        std::uint16_t type;
        std::vector<std::byte> payload;
    };
    std::vector<Entry> records_;
    std::size_t at_ = 0;
    MappingRef none_;
};

constexpr std::uint64_t kSymbol = 0x5eed;

market::EventHead head_at(std::int64_t time) {
    market::EventHead head;
    head.timestamp_ns = static_cast<std::uint64_t>(time);
    head.venue_id = 1;
    head.market_id = 7;
    head.price_scale = 2;
    head.size_scale = 3;
    return head;
}

void add_snapshot(Tape& tape, std::int64_t time, std::int64_t bid, std::int64_t ask) {
    const format::Level levels[2] = {{bid, 500}, {ask, 700}};
    std::vector<std::byte> bytes(market::kSnapshotHeadBytes + sizeof levels);
    std::memcpy(market::begin_snapshot(bytes.data(), head_at(time), 1, 1), levels, sizeof levels);
    tape.add(time, format::kBookEvent, std::move(bytes));
}

void add_trade(Tape& tape, std::int64_t time, std::int64_t price, std::int64_t size) {
    format::TradeTick tick{};
    tick.price = price;
    tick.size = size;
    tick.symbol_hash = kSymbol;
    tick.market_id = 7;
    tick.price_scale = 2;
    tick.size_scale = 3;
    std::vector<std::byte> bytes(sizeof tick);
    std::memcpy(bytes.data(), &tick, sizeof tick);
    tape.add(time, format::kTradeTick, std::move(bytes));
}

Tape some_tape() {
    Tape tape;
    std::mt19937_64 random(11);
    std::int64_t time = 1'000'000'000;
    for (int i = 0; i < 200; ++i) {
        time += static_cast<std::int64_t>(random() % 400'000'000);
        const auto bid = static_cast<std::int64_t>(10'000 + random() % 50);
        if (i % 3 == 0) {
            add_snapshot(tape, time, bid, bid + 1 + static_cast<std::int64_t>(random() % 5));
        } else {
            add_trade(tape, time, bid, 1 + static_cast<std::int64_t>(random() % 900));
        }
    }
    return tape;
}

std::shared_ptr<const FeaturePlan> some_plan(const std::string& sample) {
    return std::make_shared<FeaturePlan>(
        std::vector<std::string>{"mid", "imbalance2", "ofi", "vwap_2s", "volatility_3s",
                                 "time_since_trade", "trade_flow_500ms"},
        sample, std::vector<std::int64_t>{});
}

struct Run {
    explicit Run(Tape& tape, const std::string& sample) : Run(tape, some_plan(sample)) {}
    explicit Run(Tape& tape, std::shared_ptr<const FeaturePlan> plan)
        : engine(tape, {}), loop((engine.add(1, 7, kSymbol), engine), std::move(plan), {}) {}
    Engine engine;
    FeatureLoop loop;
};

FeatureRows all_rows(FeatureLoop& loop, FeatureRows rows) {
    while (loop.run(rows, rows.size() + 1000, 1000) != FeatureLoop::Stop::end) {
    }
    return rows;
}

bool same(const FeatureRows& a, const FeatureRows& b) {
    bool right = a.features() == b.features() && std::ranges::equal(a.time_ns(), b.time_ns()) &&
                 std::ranges::equal(a.market(), b.market());
    for (std::size_t i = 0; right && i < a.features(); ++i) {
        right = std::ranges::equal(a.valid(i), b.valid(i)) &&
                std::ranges::equal(a.values(i), b.values(i));
    }
    return right;
}

}  // namespace

TEST(a_ratio_is_rounded_the_same_whatever_both_are_multiplied_by) {
    std::mt19937_64 random(7);
    for (int i = 0; i < 200'000; ++i) {
        const auto n = static_cast<std::int64_t>(random() >> (11 + random() % 50));
        const auto d = static_cast<std::int64_t>(random() >> (11 + random() % 50)) | 1;
        const double plain = static_cast<double>(n) / static_cast<double>(d);  // both exact
        // The product stays below 2^126.
        const int bits = static_cast<int>(random() % 73);
        const Int128 k = (static_cast<Int128>(1) << bits) | static_cast<Int128>(random() % 2);
        if (nearest_ratio(n * k, static_cast<UInt128>(d * k)) != plain ||
            nearest_ratio(-n * k, static_cast<UInt128>(d * k)) != -plain) {
            CHECK_EQ(n, d);  // prints both
            return;
        }
    }
    CHECK(true);
}

TEST(a_tie_goes_to_the_even_neighbour) {
    const Int128 tie = (static_cast<Int128>(1) << 53) + 1;
    CHECK_EQ(nearest_ratio(tie, 1), 9007199254740992.0);
    CHECK_EQ(nearest_ratio(tie * 3 + 1, 3), 9007199254740994.0);
    CHECK_EQ(nearest_ratio(tie + 2, 1), 9007199254740996.0);
}

TEST(a_loop_resumes_from_its_state_at_any_record) {
    for (const std::string sample : {"event", "trade", "100ms"}) {
        Tape tape = some_tape();
        Run whole(tape, sample);
        const FeatureRows wanted = all_rows(whole.loop, FeatureRows(7));
        CHECK(wanted.size() > 60);
        for (std::uint64_t cut = 1; cut < tape.size(); cut += 13) {
            tape.seek_start();
            Run first(tape, sample);
            FeatureRows rows(7);
            while (first.engine.records() < cut) first.loop.run(rows, 100'000, 1);
            std::vector<std::byte> state;
            first.loop.save({{"tape", first.engine.last_seq()}}, state);
            Run second(tape, sample);
            second.loop.load(state);
            tape.seek_seq(*FeatureLoop::positions_in(state)[0].last_seq + 1);
            CHECK(same(all_rows(second.loop, std::move(rows)), wanted));
        }
    }
}

TEST(a_forged_state_is_refused_or_valid) {
    Tape tape = some_tape();
    Run run(tape, "100ms");
    all_rows(run.loop, FeatureRows(7));
    std::vector<std::byte> state;
    run.loop.save({{"tape", 199}}, state);
    std::mt19937_64 random(3);
    std::size_t refused = 0;
    for (std::size_t i = 0; i < state.size(); ++i) {
        std::vector<std::byte> lie = state;
        lie[i] ^= static_cast<std::byte>(1 + random() % 255);
        CHECK_THROWS(FeatureLoop::positions_in(lie), Error);
        const std::uint32_t crc = crc32c(lie.data() + 4, lie.size() - 4);
        std::memcpy(lie.data(), &crc, sizeof crc);
        tape.seek_start();
        Run other(tape, "100ms");
        try {
            other.loop.load(lie);
            FeatureRows rows(7);
            other.loop.run(rows, 100, 300);
        } catch (const Error&) {
            ++refused;
        }
    }
    CHECK(refused > 50);
    for (std::size_t n = 0; n < state.size(); n += 7) {
        std::vector<std::byte> cut(state.begin(), state.begin() + static_cast<std::ptrdiff_t>(n));
        Run other(tape, "100ms");
        CHECK_THROWS(other.loop.load(cut), Error);
    }
}

TEST(a_state_finds_its_sources_by_their_names) {
    Tape tape = some_tape();
    Run run(tape, "event");
    all_rows(run.loop, FeatureRows(7));
    run.engine.lost_before(0, 5, 9);  // of the source whose position changes
    add_snapshot(tape, 10'000'000'000'000, 10'000, 10'001);
    all_rows(run.loop, FeatureRows(7));
    std::vector<std::byte> state;
    run.loop.save({{"old", 200}}, state);
    Run moved(tape, "event");
    moved.loop.load(state, {"new", "old"});
    CHECK_EQ(moved.engine.tape_gaps().at(0).source, 1);
    CHECK_EQ(moved.engine.markets().at(0)->sources.at(0), 1);
    Run gone(tape, "event");
    CHECK_THROWS(gone.loop.load(state, {"new"}), Error);
}

TEST(levels_equal_those_of_the_book_and_outlive_their_rows) {
    Tape tape = some_tape();
    const auto plan =
        std::make_shared<FeaturePlan>(std::vector<std::string>{"bid"}, "event",
                                      std::vector<std::int64_t>{}, LevelsWanted{3, true});
    ArrowArray array;
    std::vector<double> bids;
    {
        Run run(tape, plan);
        auto rows = std::make_shared<FeatureRows>(all_rows(run.loop, FeatureRows(1, plan->levels)));
        bids.assign(rows->values(0).begin(), rows->values(0).end());
        CHECK_EQ(rows->levels->bids.ends.size(), rows->size() + 1);
        export_rows(rows, {{"SYM"}, true, {"venue"}}, &array);
    }
    CHECK_EQ(array.n_children, 4 + 4 + 6);
    // A consumer moves the prices of bids out and releases the rest.
    ArrowArray prices = *array.children[8];
    array.children[8]->release = nullptr;
    array.release(&array);
    const auto* ends = static_cast<const std::int32_t*>(prices.buffers[1]);
    const auto* items = static_cast<const std::int64_t*>(prices.children[0]->buffers[1]);
    CHECK_EQ(prices.length, static_cast<std::int64_t>(bids.size()));
    for (std::size_t i = 0; i < bids.size(); ++i) {
        if (ends[i + 1] == ends[i]) continue;  // a trade before the first snapshot
        CHECK_EQ(static_cast<double>(items[ends[i]]) / 100, bids[i]);
    }
    prices.release(&prices);
    ArrowSchema schema;
    export_rows_schema({"bid"}, plan->levels, true, &schema);
    CHECK_EQ(schema.n_children, array.n_children);
    CHECK_EQ(std::string(schema.children[8]->name), "bid_prices");
    CHECK_EQ(std::string(schema.children[8]->children[0]->format), "l");
    schema.release(&schema);
}

TEST(a_state_fits_no_other_features) {
    Tape tape = some_tape();
    Run run(tape, "100ms");
    std::vector<std::byte> state;
    run.loop.save({}, state);
    Run other(tape, "200ms");
    CHECK_THROWS(other.loop.load(state), Error);
}

TEST_MAIN()
