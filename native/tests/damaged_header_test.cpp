// A segment with a damaged header: every reader that reaches it reports it, skips it on request,
// and never confuses it with a segment that a writer has only prepared.
#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/fan_in.hpp"
#include "tapewire/queue/status.hpp"

using namespace kit;
using tapewire::BatchColumns;
using tapewire::FanIn;
using tapewire::Skipped;
using tapewire::WaitOutcome;
using tapewire::queue::Position;
using tapewire::queue::QueueWatch;

namespace {

constexpr std::uint64_t kRecords = 200;
constexpr std::uint64_t kInSegment = 42;  // of records with a payload of 100 bytes
constexpr std::uint32_t kLast = 4;        // the segment that holds the last of them

const std::string kPayload(100, 'x');

void damage(const std::string& root, std::uint32_t id) {
    const std::string wrong(64, '\xff');
    poke_file(Layout{root}.segment(id), 0, wrong.data(), wrong.size());
}

// Five segments; nothing is prepared after them.
std::string write_log(const Scratch& scratch) {
    const std::string root = scratch / "q";
    Writer writer(root, small());
    for (std::uint64_t i = 0; i < kRecords; ++i) append(writer, kPayload, i);
    writer.close();
    return root;
}

std::vector<std::uint64_t> all_but(std::uint32_t id) {
    std::vector<std::uint64_t> left;
    for (std::uint64_t n = 0; n < kRecords; ++n) {
        if (n / kInSegment != id) left.push_back(n);
    }
    return left;
}

// Reads to the end, past every damaged header; the skipped ranges go to `spans`.
std::vector<std::uint64_t> read_past(Reader& reader, std::vector<Skipped>& spans) {
    std::vector<std::uint64_t> found;
    RecordView record;
    for (;;) {
        try {
            if (!reader.next(record)) return found;
            found.push_back(record.seq);
        } catch (const Error& e) {
            CHECK(e.code == Errc::corrupt_metadata);
            spans.push_back(reader.skip_damaged());
            CHECK(spans.back().bytes != 0);
        }
    }
}

}  // namespace

TEST(a_reader_raises_each_time_and_stays_before_it) {
    for (std::uint32_t id : {0u, 2u, kLast}) {
        const Scratch scratch;
        const std::string root = write_log(scratch);
        damage(root, id);
        Reader reader(root, ReaderOptions{});
        RecordView record;
        for (std::uint64_t n = 0; n < id * kInSegment; ++n) CHECK(reader.next(record));
        const auto at = reader.position();
        BatchColumns columns;
        for (int times = 0; times < 2; ++times) {
            CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
            CHECK(throws(Errc::corrupt_metadata, [&] { reader.read_batch(columns, 10); }));
            CHECK(throws(Errc::corrupt_metadata, [&] { reader.wait(0); }));
        }
        CHECK(reader.position() == at);
        CHECK(!reader.sparse());
        try {
            reader.next(record);
        } catch (const Error& e) {
            CHECK_EQ(e.path, Layout{root}.segment(id));
            CHECK(!e.hint.empty());
        }
    }
}

TEST(skip_damaged_continues_after_it_and_returns_the_lost_numbers) {
    for (std::uint32_t id : {0u, 2u, kLast}) {
        const Scratch scratch;
        const std::string root = write_log(scratch);
        damage(root, id);
        Reader reader(root, ReaderOptions{});
        std::vector<Skipped> spans;
        CHECK(read_past(reader, spans) == all_but(id));
        CHECK_EQ(spans.size(), 1u);
        CHECK_EQ(spans[0].segment, id);
        CHECK_EQ(spans[0].bytes, kSmallest);
        CHECK_EQ(spans[0].numbers_known, id != kLast);  // unknown for the last one
        if (id == kLast) continue;
        CHECK_EQ(spans[0].first_seq, id * kInSegment);
        CHECK_EQ(spans[0].last_seq, (id + 1) * kInSegment - 1);
    }
}

TEST(consecutive_damaged_headers_are_one_span) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    damage(root, 0);
    damage(root, 1);
    const std::string wrong(64, '\xff');
    poke_file(Layout{root}.segment(1), 64, wrong.data(), wrong.size());  // its first record, too
    Reader reader(root, ReaderOptions{});
    std::vector<Skipped> spans;
    CHECK_EQ(read_past(reader, spans).front(), 2 * kInSegment);
    CHECK_EQ(spans.size(), 1u);
    CHECK_EQ(spans[0].bytes, 2 * kSmallest);
    CHECK_EQ(spans[0].first_seq, 0u);
    CHECK_EQ(spans[0].last_seq, 2 * kInSegment - 1);
}

TEST(a_seek_into_it_stops_before_it) {
    for (std::uint32_t id : {0u, 2u, kLast}) {
        for (const bool first_record_too : {false, true}) {
            const Scratch scratch;
            const std::string root = write_log(scratch);
            damage(root, id);
            const std::string wrong(64, '\xff');
            if (first_record_too)
                poke_file(Layout{root}.segment(id), 64, wrong.data(), wrong.size());
            Reader reader(root, ReaderOptions{});
            RecordView record;
            const std::uint64_t inside = id * kInSegment + 5;
            CHECK(reader.seek_seq(inside));
            CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
            CHECK(reader.seek_time(static_cast<std::int64_t>(inside)));
            CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
            const Skipped skipped = reader.skip_damaged();
            CHECK_EQ(skipped.bytes, kSmallest);
            if (id != kLast) {
                CHECK(skipped.numbers_known);
                CHECK_EQ(skipped.first_seq, id * kInSegment);
                CHECK(reader.next(record));
                CHECK_EQ(record.seq, (id + 1) * kInSegment);
            }
            const std::uint64_t elsewhere = id == 2 ? 0 : 2 * kInSegment + 1;
            CHECK(reader.seek_seq(elsewhere));
            CHECK(reader.next(record));
            CHECK_EQ(record.seq, elsewhere);
            reader.seek_end();
            if (id == kLast) {
                CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
            } else {
                CHECK(!reader.next(record));
            }
        }
    }
}

TEST(a_restored_file_is_read_as_before) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    const std::string right = peek_file(Layout{root}.segment(0), 0, 64);
    damage(root, 0);
    Reader reader(root, ReaderOptions{});
    RecordView record;
    CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
    poke_file(Layout{root}.segment(0), 0, right.data(), right.size());
    CHECK_EQ(drain(reader).size(), kRecords);
}

TEST(a_file_that_was_moved_away_is_a_missing_segment) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    damage(root, 0);
    Reader reader(root, ReaderOptions{});
    RecordView record;
    fs::remove(Layout{root}.segment(0));
    CHECK(throws(Errc::segment_missing, [&] { reader.next(record); }));
    CHECK(reader.seek_start());
    CHECK(reader.next(record));
    CHECK_EQ(record.seq, kInSegment);
}

TEST(after_the_last_one_a_reader_waits_for_the_next_segment) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    WriterOptions options = small();
    options.preallocate = false;
    Writer writer(root, options);
    for (std::uint64_t i = 0; i < kInSegment + 1; ++i) append(writer, kPayload);
    damage(root, 1);  // the writer has it open: it appends there as before
    Reader reader(root, ReaderOptions{});
    std::vector<Skipped> spans;
    CHECK_EQ(read_past(reader, spans).size(), kInSegment);
    CHECK((reader.position() == Position{2, 64}));
    CHECK(reader.wait(0) == WaitOutcome::not_yet);
    CHECK_EQ(reader.skip_damaged().bytes, 0u);
    CHECK(reader.ready_fd() >= 0);
    RecordView record;
    CHECK(!reader.next(record));
    std::thread writing([&] {
        for (std::uint64_t i = kInSegment + 1; i < 2 * kInSegment + 1; ++i)
            append(writer, kPayload);
    });
    bool gap = false;
    CHECK(eventually([&] {
        try {
            return reader.wait(1'000'000'000) == WaitOutcome::ready;
        } catch (const Error& e) {
            CHECK(e.code == Errc::gap_detected);
            CHECK_EQ(e.numbers[0], kInSegment);
            CHECK_EQ(e.numbers[1], 2 * kInSegment - 1);
            gap = true;
            return false;
        }
    }));
    writing.join();
    CHECK(gap);
    CHECK(reader.next(record));
    CHECK_EQ(record.seq, 2 * kInSegment);
}

TEST(a_segment_that_is_only_prepared_is_not_part_of_the_log) {
    const Scratch scratch;
    const std::string root = scratch / "q";
    Writer writer(root, small());
    append(writer, kPayload);
    CHECK(eventually([&] { return fs::exists(Layout{root}.segment(1)); }));
    const std::string image = crash_image(root);
    damage(image, 1);
    CHECK_EQ(read_all(image).size(), 1u);
    Reader reader(image, ReaderOptions{});
    reader.seek_end();
    CHECK((reader.position() == Position{0, 64 + 192}));
    CHECK(reader.wait(0) == WaitOutcome::not_yet);
}

TEST(a_lost_seal_does_not_hide_it) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    const char unsealed[4] = {};
    poke_file(Layout{root}.segment(kLast - 1), 12, unsealed, sizeof unsealed);
    damage(root, kLast);
    Reader reader(root, ReaderOptions{});
    std::vector<Skipped> spans;
    CHECK(read_past(reader, spans) == all_but(kLast));
    CHECK_EQ(spans.size(), 1u);
}

TEST(a_committed_position_in_or_after_it_is_kept) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    {
        Reader reader(root, named("r"));
        reader.register_position();
        CHECK(reader.seek_seq(2 * kInSegment + 5));
        reader.commit();
    }
    damage(root, 2);
    damage(root, kLast);
    Reader reader(root, named("r"));
    CHECK(reader.resume_committed());
    CHECK((reader.position() == Position{2, 64 + 5 * 192}));
    RecordView record;
    CHECK(throws(Errc::corrupt_metadata, [&] { reader.next(record); }));
    std::vector<Skipped> spans;
    CHECK_EQ(read_past(reader, spans).size(), kInSegment);
    reader.commit();
    reader.close(false);
    Reader again(root, named("r"));
    CHECK(again.resume_committed());
    CHECK((again.position() == Position{kLast + 1, 64}));
    CHECK(!again.next(record));
}

TEST(a_fan_in_skips_it_in_one_source) {
    const Scratch scratch;
    const std::string root = write_log(scratch);
    damage(root, 0);
    Reader one(root, ReaderOptions{});
    FanIn fan(tapewire::FanInOptions{});
    fan.add("one", one);
    RecordView record;
    CHECK(throws(Errc::corrupt_metadata, [&] { fan.next(record); }));
    CHECK_EQ(fan.skip_damaged().bytes, kSmallest);
    CHECK(fan.next(record));
    CHECK_EQ(record.seq, kInSegment);
}

TEST(the_status_has_the_number_that_a_reader_reaches_there) {
    for (std::uint32_t id : {0u, 2u, kLast}) {
        for (const bool at_its_start : {false, true}) {
            if (id == 0 && !at_its_start) continue;
            const Scratch scratch;
            const std::string root = write_log(scratch);
            {
                Reader reader(root, named("r"));
                reader.register_position();
                CHECK(reader.seek_seq(id * kInSegment - (at_its_start ? 0 : 1)));
                RecordView record;
                if (!at_its_start) CHECK(reader.next(record));
                CHECK_EQ(reader.position().segment, id - (at_its_start ? 0u : 1u));
                reader.commit();
            }
            damage(root, id);
            const auto look = QueueWatch(root).look();
            CHECK_EQ(look.readers.size(), 1u);
            CHECK(look.readers[0].next_seq.has_value());
            CHECK_EQ(*look.readers[0].next_seq, id * kInSegment);
            CHECK(!look.readers[0].lag_records.has_value());
        }
    }
}

TEST_MAIN()
