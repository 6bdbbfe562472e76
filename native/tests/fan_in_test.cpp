// The native fan-in: its order compared with a sort, its sleep on several queues at once, and what
// a failing source does to the others. Under the sanitizers this also tests ownership.
#include "tapewire/fan_in.hpp"

#include <algorithm>
#include <atomic>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <tuple>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/arrow.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/futex.hpp"

using namespace kit;
using tapewire::BatchColumns;
using tapewire::FanIn;
using tapewire::FanInOptions;
using tapewire::WaitKind;
using tapewire::WaitOutcome;

namespace {

constexpr std::int64_t kSliceNs = 100'000'000;

struct Source {
    std::string name;
    std::unique_ptr<Writer> writer;
    std::unique_ptr<Reader> reader;
};

std::vector<Source> make_sources(const Scratch& tmp, std::size_t count) {
    std::vector<Source> sources;
    for (std::size_t i = 0; i < count; ++i) {
        Source source;
        source.name = "s" + std::to_string(i);
        const std::string root = tmp / source.name.c_str();
        source.writer = std::make_unique<Writer>(root, small());
        source.reader = std::make_unique<Reader>(root, ReaderOptions{});
        sources.push_back(std::move(source));
    }
    return sources;
}

FanInOptions with_skew(std::int64_t max_skew_ns) {
    FanInOptions options;
    options.max_skew_ns = max_skew_ns;
    options.wait_ns = 0;
    return options;
}

using Key = std::tuple<std::int64_t, std::string, std::uint64_t>;

}  // namespace

TEST(records_come_in_the_order_of_time_name_and_number) {
    std::mt19937 random(11);
    for (int round = 0; round < 20; ++round) {
        const Scratch tmp;
        auto sources = make_sources(tmp, 1 + random() % 12);
        std::vector<Key> expected;
        std::uint64_t time = 1;
        for (int i = 0; i < 600; ++i) {
            time += random() % 3;
            Source& source = sources[random() % sources.size()];
            const std::uint64_t seq =
                append(*source.writer, std::string(random() % 300, 'x'), time);
            expected.emplace_back(time, source.name, seq);
        }
        std::sort(expected.begin(), expected.end());
        FanIn fan(with_skew(round % 2 == 0 ? -1 : 1000));
        std::vector<std::string> names(sources.size());
        for (Source& source : sources) names[fan.add(source.name, *source.reader)] = source.name;

        std::vector<Key> given;
        while (given.size() < expected.size()) {
            if (random() % 2 == 0) {
                RecordView record;
                if (!CHECK(fan.next(record))) return;
                given.emplace_back(record.timestamp_ns, names[fan.source()], record.seq);
            } else {
                BatchColumns columns;
                const std::size_t n = fan.read_batch(columns, 1 + random() % 40);
                if (!CHECK(n > 0)) return;
                for (std::size_t i = 0; i < n; ++i) {
                    given.emplace_back(columns.timestamp_ns[i], names[columns.source[i]],
                                       columns.seq[i]);
                }
            }
        }
        CHECK(given == expected);
        RecordView record;
        CHECK(!fan.next(record));
    }
}

TEST(a_source_ends_before_its_number_and_delays_no_other) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 3);
    for (std::uint64_t i = 0; i < 30; ++i) append(*sources[i % 3].writer, "x", i);
    FanIn fan(with_skew(-1));
    fan.add("a", *sources[0].reader, 4);
    fan.add("b", *sources[1].reader, 0);
    fan.add("c", *sources[2].reader, 12);  // which does not exist yet
    const auto read_all = [&fan] {
        std::vector<std::uint64_t> given;
        for (RecordView record; fan.next(record);)
            given.push_back(static_cast<std::uint64_t>(record.timestamp_ns));
        return given;
    };
    const std::vector<std::uint64_t> expected = {0, 2, 3, 5, 6, 8, 9, 11, 14, 17, 20, 23, 26, 29};
    CHECK(read_all() == expected);
    CHECK(!fan.is_over());
    fan.follow(true);  // finished sources are not waited for, though they have a writer
    for (std::uint64_t i = 30; i < 39; ++i) append(*sources[i % 3].writer, "x", i);
    CHECK(fan.wait(kSliceNs) == WaitOutcome::ready);
    CHECK((read_all() == std::vector<std::uint64_t>{32, 35}));
    CHECK(fan.is_over());
    CHECK(fan.wait(kSliceNs / 50) == WaitOutcome::not_yet);
    fan.follow(false);
    CHECK(fan.seek_start());
    CHECK_EQ(read_all().size(), expected.size() + 2);
    fan.remove(0);
    CHECK(fan.is_over());
}

TEST(a_batch_outlives_the_fan_in_and_its_sources) {
    BatchColumns columns;
    {
        const Scratch tmp;
        auto sources = make_sources(tmp, 3);
        for (std::size_t i = 0; i < 90; ++i) {
            append(*sources[i % 3].writer, std::string(1000, static_cast<char>('a' + i % 3)), i);
        }
        FanIn fan(with_skew(-1));
        for (Source& source : sources) fan.add(source.name, *source.reader);
        CHECK_EQ(fan.read_batch(columns, 1000), 90u);
    }
    for (std::size_t i = 0; i < columns.size(); ++i) {
        CHECK_EQ(static_cast<char>(columns.payload[i][999]), static_cast<char>('a' + i % 3));
    }
}

TEST(a_consumer_of_arrow_may_move_the_names_out) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 2);
    for (std::uint64_t i = 0; i < 4; ++i) append(*sources[i % 2].writer, "x", i);
    FanIn fan(with_skew(-1));
    for (Source& source : sources) fan.add(source.name, *source.reader);
    auto columns = std::make_shared<BatchColumns>();
    CHECK_EQ(fan.read_batch(*columns, 100), 4u);
    ArrowSchema schema;
    ArrowArray array;
    tapewire::export_schema(columns, &schema);
    tapewire::export_array(columns, 1, 4, &array);
    // To move is to copy and to mark the original as released.
    ArrowSchema text = *schema.children[5]->dictionary;
    schema.children[5]->dictionary->release = nullptr;
    ArrowArray names = *array.children[5]->dictionary;
    array.children[5]->dictionary->release = nullptr;
    ArrowArray from = *array.children[5];
    array.children[5]->release = nullptr;
    schema.release(&schema);
    array.release(&array);
    CHECK_EQ(std::string(text.format), std::string("u"));
    CHECK_EQ(names.length, 2);
    CHECK_EQ(static_cast<const std::uint16_t*>(from.buffers[1])[0], 1u);
    text.release(&text);
    from.release(&from);
    CHECK_EQ(std::string(static_cast<const char*>(names.buffers[2]), 4), std::string("s0s1"));
    names.release(&names);
}

// Records of an inner fan-in come by every path; those of two others change places all the time.
TEST(nested_fan_ins_return_what_one_would) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 6);
    FanIn inner(with_skew(-1)), second(with_skew(-1)), outer(with_skew(-1));
    for (std::size_t i = 0; i < 3; ++i) inner.add(sources[i].name, *sources[i].reader);
    for (std::size_t i = 3; i < 5; ++i) second.add(sources[i].name, *sources[i].reader);
    outer.add("s0", inner);
    outer.add("s1", second);
    outer.add("s5", *sources[5].reader);
    std::mt19937 random(5);
    std::vector<std::uint64_t> times(sources.size());
    std::vector<std::int64_t> expected;
    for (int i = 0; i < 600; ++i) {
        const std::size_t which = random() % sources.size();
        times[which] += random() % 50;
        append(*sources[which].writer, std::string(random() % 300, 'n'), times[which]);
        expected.push_back(static_cast<std::int64_t>(times[which]));
    }
    std::sort(expected.begin(), expected.end());
    std::vector<std::int64_t> got;
    while (got.size() < expected.size()) {
        RecordView record;
        for (int i = 0; i < 7 && outer.next(record); ++i) got.push_back(record.timestamp_ns);
        BatchColumns columns;
        const std::size_t n = outer.read_batch(columns, 100);
        for (std::size_t i = 0; i < n; ++i) got.push_back(columns.timestamp_ns[i]);
        for (std::size_t i = 0; i < columns.owners.size(); ++i) {
            CHECK_EQ(std::count(columns.owners.begin(), columns.owners.end(), columns.owners[i]),
                     1);
        }
        if (n == 0) break;
    }
    CHECK(got == expected);
}

// Writers on threads of their own; the fan-in parks whenever it has nothing to read. A lost wake-up
// shows as a sleep that only the fan-in's own check after a second ends.
static void park_among(std::size_t count, bool old_kernel) {
    tapewire::futex_wait_any_is_unsupported(old_kernel);
    const Scratch tmp;
    constexpr std::uint64_t kEach = 400;
    auto sources = make_sources(tmp, count);
    FanIn fan(with_skew(0));
    for (Source& source : sources) fan.add(source.name, *source.reader);
    std::vector<std::thread> writers;
    for (Source& source : sources) {
        writers.emplace_back([&source] {
            const std::string payload(500, 'p');
            for (std::uint64_t i = 0; i < kEach; ++i) {
                append(*source.writer, payload, i);
                const std::int64_t until =
                    tapewire::mono_ns() + static_cast<std::int64_t>(i % 16) * 10'000;
                while (tapewire::mono_ns() < until) std::this_thread::yield();
            }
        });
    }
    std::vector<std::uint64_t> expected(count);
    std::uint64_t seen = 0;
    int overslept = 0;
    RecordView record;
    while (seen < kEach * count) {
        while (fan.next(record)) {
            CHECK_EQ(record.seq, expected[fan.source()]);
            ++expected[fan.source()];
            ++seen;
        }
        if (seen == kEach * count) break;
        const std::int64_t asleep = tapewire::mono_ns();
        if (!CHECK(fan.wait(30'000'000'000) == WaitOutcome::ready)) break;
        if (tapewire::mono_ns() - asleep > 900'000'000) ++overslept;
    }
    CHECK(overslept <= 1);
    for (std::thread& writer : writers) writer.join();
    tapewire::futex_wait_any_is_unsupported(false);
}

TEST(a_parked_fan_in_loses_no_record_of_any_source) { park_among(4, false); }
TEST(a_parked_fan_in_loses_no_record_where_it_cannot_sleep_on_several_words) {
    park_among(4, true);
}

TEST(sources_come_and_go_while_it_runs) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 8);
    FanIn fan(with_skew(0));
    std::vector<std::optional<FanIn::Slot>> slots(sources.size());
    std::vector<std::uint64_t> expected(sources.size());
    std::mt19937 random(7);
    for (int i = 0; i < 3000; ++i) {
        const std::size_t which = random() % sources.size();
        switch (random() % 4) {
            case 0:
                if (slots[which]) {
                    fan.remove(*slots[which]);
                    slots[which].reset();
                } else {
                    slots[which] = fan.add(sources[which].name, *sources[which].reader);
                }
                break;
            case 1:
                append(*sources[which].writer, std::string(random() % 200, 'y'), random() % 100);
                break;
            default: {
                RecordView record;
                if (!fan.next(record)) break;
                const auto from = std::find(slots.begin(), slots.end(), fan.source());
                if (!CHECK(from != slots.end())) return;
                std::uint64_t& next = expected[static_cast<std::size_t>(from - slots.begin())];
                CHECK_EQ(record.seq, next);
                ++next;
            }
        }
    }
    CHECK(std::accumulate(expected.begin(), expected.end(), std::uint64_t{0}) > 300);
}

TEST(a_damaged_source_alone_is_reported_and_skipped) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 2);
    for (std::uint64_t i = 0; i < 6; ++i) append(*sources[i % 2].writer, std::string(40, 'z'), i);
    {
        std::fstream file(tmp / "s0/000000000.q", std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(64 + 128 + 64);  // the payload of its second record
        file.put('\xff');
    }
    FanIn fan(with_skew(-1));
    for (Source& source : sources) fan.add(source.name, *source.reader);
    BatchColumns columns;
    CHECK_EQ(fan.read_batch(columns, 100), 1u);
    BatchColumns none;
    CHECK_THROWS(fan.read_batch(none, 100), Error);
    RecordView record;
    CHECK_THROWS(fan.next(record), Error);
    CHECK_EQ(fan.skip_damaged().bytes, 128u);
    BatchColumns rest;
    CHECK_EQ(fan.read_batch(rest, 100), 4u);
}

TEST(an_interrupt_ends_a_wait) {
    const Scratch tmp;
    auto sources = make_sources(tmp, 2);
    FanIn fan(with_skew(0));
    for (Source& source : sources) fan.add(source.name, *source.reader);
    std::atomic<bool> ended{false};
    std::thread waiter([&] {
        while (fan.wait(kSliceNs) != WaitOutcome::interrupted) {
        }
        ended = true;
    });
    fan.interrupt();
    CHECK(eventually([&] { return ended.load(); }));
    waiter.join();
}

TEST_MAIN()
