// The status as seen from outside while a writer and readers run, and cleaning up after dead
// processes.
#include "tapewire/queue/status.hpp"

#include <algorithm>
#include <atomic>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/queue/upkeep.hpp"
#include "tapewire/queue/walk.hpp"

using namespace kit;
using tapewire::queue::count_records;
using tapewire::queue::look_at_writer_lock;
using tapewire::queue::Mark;
using tapewire::queue::open_or_nothing;
using tapewire::queue::QueueLook;
using tapewire::queue::QueueWatch;
using tapewire::queue::remove_reader;
using tapewire::queue::Tally;
using tapewire::queue::Upkeep;
using tapewire::queue::wrong_indexes;

TEST(every_place_of_a_segment_is_counted_alike_from_the_index_a_mark_and_the_start) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    constexpr std::uint64_t bytes = 1 << 18;
    constexpr std::uint64_t count = 1000;
    {
        WriterOptions options;
        options.segment_bytes = bytes;
        options.index_stride = 7;
        Writer writer(root, options);
        for (std::uint64_t i = 0; i < count; ++i) append(writer, std::string(100, 'x'));
        writer.close();
    }
    const Layout layout{root};
    const auto geometry = tapewire::queue::Control::open(layout, false).geometry();
    const auto segment = open_or_nothing(layout, geometry, 0);
    CHECK(segment.has_value());
    std::optional<Mark> mark;
    for (std::uint64_t i = 0; i <= count; i += 13) {
        const std::uint64_t place = 64 + i * 192;
        const Tally by_index =
            count_records(layout, geometry, *segment, place, std::nullopt, bytes);
        const Tally by_walk = count_records(layout, geometry, *segment, place, std::nullopt, 0);
        const Tally by_mark = count_records(layout, geometry, *segment, place, mark, 0);
        for (const Tally& tally : {by_index, by_walk, by_mark}) {
            CHECK_EQ(tally.mark.records, i);
            CHECK_EQ(tally.next.has_value(), i < count);
            if (tally.next) CHECK_EQ(tally.next->seq, i);
        }
        mark = by_mark.mark;
    }
    // Inside a record: that record is not counted as done.
    CHECK_EQ(count_records(layout, geometry, *segment, 64 + 192 + 64, std::nullopt, 0).mark.records,
             1u);
}

TEST(the_status_beside_a_writer_never_goes_back_and_ends_exact) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    Writer writer(root, small());
    Reader reader(root, named("r"));
    reader.register_position();
    append(writer, "first");
    std::atomic<bool> done{false};
    std::thread looker([&] {
        QueueWatch watch(root);
        std::uint64_t last = 0, lag = 0;
        while (!done) {
            const QueueLook look = watch.look();
            CHECK(look.lock.held);
            CHECK(look.problems.empty());
            CHECK(look.last_seq.value_or(0) >= last);
            last = look.last_seq.value_or(0);
            CHECK_EQ(look.readers.size(), 1u);
            if (look.readers.size() != 1) break;
            CHECK(look.readers[0].lag_records.value_or(0) >= lag);
            lag = look.readers[0].lag_records.value_or(0);
            CHECK_EQ(lag, last + 1);  // it never commits, and sequence numbers begin at 0
        }
    });
    for (int i = 0; i < 20000; ++i)
        append(writer, std::string(static_cast<std::size_t>(i % 200), 'x'));
    done = true;
    looker.join();
    const QueueLook look = QueueWatch(root).look();
    CHECK_EQ(look.last_seq.value_or(0), 20000u);
    CHECK_EQ(look.readers[0].lag_records.value_or(0), 20001u);
}

TEST(a_clean_close_takes_the_name_out_of_the_lock) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    const Layout layout{root};
    {
        Writer writer(root, small());
        CHECK(look_at_writer_lock(layout).owner.has_value());
        const std::string image = crash_image(root);
        CHECK(look_at_writer_lock(Layout{image}).owner.has_value());
        CHECK(!look_at_writer_lock(Layout{image}).held);
        writer.close();
    }
    CHECK(!look_at_writer_lock(layout).owner.has_value());
}

TEST(upkeep_needs_a_queue_without_a_writer_and_cleans_up_after_the_dead) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    Writer writer(root, small());
    CHECK(throws(Errc::writer_already_active, [&] { Upkeep upkeep(root); }));
    const std::string image = crash_image(root);
    const std::string half = Layout{image}.segment_temp(7);
    std::ofstream(half) << "half";
    {
        const Upkeep upkeep(image);
        upkeep.clear_owner();
        const auto removed = upkeep.remove_temporary_files();
        CHECK(std::find(removed.begin(), removed.end(), half) != removed.end());
        CHECK(throws(Errc::writer_already_active, [&] { Writer other(image, small()); }));
    }
    CHECK(!look_at_writer_lock(Layout{image}).owner.has_value());
    CHECK(!fs::exists(half));
}

TEST(a_reader_is_removed_when_it_is_dead_and_has_not_come_back) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    Writer writer(root, small());
    {
        Reader reader(root, named("r"));
        reader.register_position();
        CHECK(throws(Errc::reader_already_active, [&] { remove_reader(root, "r", std::nullopt); }));
    }
    CHECK(!remove_reader(root, "r", 1));
    CHECK_EQ(Layout{root}.reader_names().size(), 1u);
    CHECK(remove_reader(root, "r", std::nullopt));
    CHECK_EQ(Layout{root}.reader_names().size(), 0u);
    CHECK(throws(Errc::os_error, [&] { remove_reader(root, "r", std::nullopt); }));
    CHECK(throws(Errc::invalid_name, [&] { remove_reader(root, "../r", std::nullopt); }));
}

TEST(a_false_index_is_named) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    {
        Writer writer(root, small());
        append(writer, "a");
        writer.close();
    }
    const Layout layout{root};
    CHECK(wrong_indexes(root).empty());
    poke_file(layout.index(0), 90, "x", 1);
    CHECK_EQ(wrong_indexes(root).size(), 1u);
}

TEST_MAIN()
