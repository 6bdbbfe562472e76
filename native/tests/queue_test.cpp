// The complete queue: what is appended is read, through rolls, restarts, kills, damage and seeks.
#include <algorithm>
#include <array>
#include <optional>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/format/seek_index.hpp"

using namespace kit;
using tapewire::format::Stat;

namespace {

std::vector<std::uint64_t> count_to(std::uint64_t n) {
    std::vector<std::uint64_t> result(n);
    for (std::uint64_t i = 0; i < n; ++i) result[i] = i;
    return result;
}

std::vector<Seen> fill(Writer& writer, std::uint64_t n, std::size_t bytes) {
    std::vector<Seen> written;
    for (std::uint64_t i = 0; i < n; ++i) {
        std::string payload(bytes, static_cast<char>('a' + i % 26));
        const std::uint64_t seq = append(writer, payload, 1000 + i);
        written.push_back({seq, std::move(payload)});
    }
    return written;
}

}  // namespace

// ---- writing and reading ------------------------------------------------------------------------

TEST(records_of_every_size_come_out_as_they_went_in) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    std::vector<Seen> written;
    for (const std::size_t bytes : {0, 1, 63, 64, 65, 127, 128, 4000, 8064, 0, 8000, 1}) {
        std::string payload(bytes, 'x');
        const std::uint64_t seq = append(writer, payload);
        written.push_back({seq, payload});
    }
    CHECK(read_all(tmp / "q") == written);
    CHECK(throws(Errc::payload_too_large, [&] { writer.make_room(8065); }));
}

TEST(a_reader_follows_through_rolls_that_leave_64_bytes_and_none) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    Reader reader(tmp / "q", ReaderOptions{});
    RecordView record;
    for (std::uint64_t i = 0; i < 400; ++i) {
        const std::string payload(i % 2 == 0 ? 8000 : 8064, static_cast<char>(i));
        append(writer, payload);
        if (!CHECK(reader.next(record))) return;
        CHECK(seen(record) == Seen{i, payload});
        CHECK(!reader.next(record));
    }
    CHECK_EQ(stat(writer, Stat::rolls), 399u);
}

TEST(a_batch_is_the_same_as_its_records_one_by_one) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    std::string rows(300 * 100, '\0');
    for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<char>(i);
    tapewire::queue::BatchRows batch;
    batch.count = 300;
    batch.base = reinterpret_cast<const std::byte*>(rows.data());
    batch.stride = 100;
    batch.row_bytes = 100;
    batch.type_id = 3;
    batch.timestamp_ns = 5;
    std::uint64_t done = 0;
    CHECK(writer.batch_fits(batch));
    writer.append_batch(batch, done);
    CHECK_EQ(done, 300u);
    const std::vector<Seen> records = read_all(tmp / "q");
    CHECK(numbers(records) == count_to(300));
    for (std::size_t i = 0; i < records.size(); ++i)
        CHECK(records[i].payload == rows.substr(i * 100, 100));
}

TEST(a_batch_that_does_not_fit_completely_is_not_appended) {
    const Scratch tmp;
    WriterOptions options = small();
    options.max_segments = 2;
    Writer writer(tmp / "q", options);
    const std::string row(4000, 'r');
    tapewire::queue::BatchRows batch;
    batch.count = 6;  // two per segment
    batch.base = reinterpret_cast<const std::byte*>(row.data());
    batch.row_bytes = 4000;
    CHECK(throws(Errc::queue_full, [&] { writer.batch_fits(batch); }));
    CHECK(read_all(tmp / "q").empty());
}

TEST(read_batch_gives_columns_across_segments) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    const std::vector<Seen> written = fill(writer, 200, 300);
    Reader reader(tmp / "q", ReaderOptions{});
    tapewire::BatchColumns columns;
    CHECK_EQ(reader.read_batch(columns, 1000), 200u);
    CHECK(columns.owners.size() > 1);
    for (std::size_t i = 0; i < written.size(); ++i) {
        CHECK_EQ(columns.seq[i], written[i].seq);
        CHECK(std::memcmp(columns.payload[i], written[i].payload.data(), 300) == 0);
    }
}

TEST(numbers_of_a_sparse_log_may_skip_and_must_rise) {
    const Scratch tmp;
    WriterOptions options = small();
    options.sparse = true;
    options.first_seq = 10;
    Writer writer(tmp / "q", options);
    for (const std::uint64_t seq : {10u, 11u, 500u})
        CHECK(writer.try_append_numbered(1, 0, seq, 1, "x", 1));
    CHECK(throws(Errc::sequence_not_rising, [&] { writer.check_number(500); }));
    CHECK(numbers(read_all(tmp / "q")) == std::vector<std::uint64_t>{10, 11, 500});
}

TEST(a_second_writer_is_refused) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    CHECK(throws(Errc::writer_already_active, [&] { Writer other(tmp / "q", small()); }));
}

// ---- reservations -------------------------------------------------------------------------------

TEST(an_aborted_reservation_leaves_nothing) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    Reader reader(tmp / "q", ReaderOptions{});
    CHECK(writer.make_room(2000));
    std::memset(writer.reserve(2000), 0xFF, 2000);
    CHECK(throws(Errc::reservation_open, [&] { writer.make_room(1); }));
    writer.abort_reserved();
    for (int i = 0; i < 3; ++i) append(writer, "small");
    CHECK(numbers(drain(reader)) == count_to(3));
}

TEST(a_reservation_committed_shorter_is_followed_by_clean_bytes) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    CHECK(writer.make_room(2000));
    std::memset(writer.reserve(2000), 0xFF, 2000);
    writer.commit_reserved(1, 0, 0, 1, 10);
    append(writer, "next");
    const std::vector<Seen> expected = {{0, std::string(10, '\xFF')}, {1, "next"}};
    CHECK(read_all(tmp / "q") == expected);
}

TEST(a_batch_is_refused_while_a_reservation_is_open) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    CHECK(writer.make_room(64));
    std::memset(writer.reserve(64), 'R', 64);
    const std::string row(64, 'b');
    tapewire::queue::BatchRows batch;
    batch.count = 2;
    batch.base = reinterpret_cast<const std::byte*>(row.data());
    batch.row_bytes = 64;
    CHECK(throws(Errc::reservation_open, [&] { writer.batch_fits(batch); }));
    writer.commit_reserved(1, 0, 0, 1, 64);
    CHECK(read_all(tmp / "q") == std::vector<Seen>{{0, std::string(64, 'R')}});
}

// ---- rolling ------------------------------------------------------------------------------------

// The prepared segment is taken once, however the two threads meet: a second one with the same id
// would overwrite the first.
TEST(a_segment_is_prepared_once) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    const std::string payload(8064, 'p');
    for (std::uint64_t i = 0; i < 1500; ++i) {
        CHECK(writer.make_room(payload.size()));
        // The segment stays empty for a while, as it does during a reservation.
        const std::int64_t until = tapewire::mono_ns() + static_cast<std::int64_t>(i % 8) * 10'000;
        while (tapewire::mono_ns() < until) {
        }
        writer.resume();
        append(writer, payload);
    }
    CHECK(Layout{tmp / "q"}.segments().size() >= 1500);
    CHECK(numbers(read_all(tmp / "q")) == count_to(1500));
}

TEST(the_first_roll_after_opening_always_succeeds_with_require_prealloc) {
    const Scratch tmp;
    WriterOptions options = small();
    options.require_prealloc = true;
    options.prealloc_wait_ns = 0;
    for (std::uint64_t i = 0; i < 20; ++i) {
        Writer writer(tmp / "q", options);
        CHECK_EQ(append(writer, std::string(8064, 'x')), i);
    }
    CHECK(numbers(read_all(tmp / "q")) == count_to(20));
}

TEST(a_full_queue_is_reported_and_continues_after_the_readers_commit) {
    const Scratch tmp;
    WriterOptions options = small();
    options.max_segments = 3;
    options.retention.enabled = true;
    Writer writer(tmp / "q", options);
    ReaderOptions named;
    named.name = "slow";
    Reader reader(tmp / "q", named);
    reader.register_position();
    const std::string payload(8064, 'x');
    for (int i = 0; i < 3; ++i) append(writer, payload);
    CHECK(!writer.make_room(payload.size()));
    CHECK(throws(Errc::queue_full, [&] { append(writer, payload); }));
    CHECK_EQ(drain(reader).size(), 3u);
    reader.commit();  // in the third segment: the first two may be deleted
    CHECK_EQ(append(writer, payload), 3u);
    CHECK_EQ(Layout{tmp / "q"}.segments().front(), 2u);
}

// ---- restarts, kills and damage -----------------------------------------------------------------

TEST(a_reopened_writer_continues_after_the_last_number) {
    const Scratch tmp;
    std::uint64_t n = 0;
    for (int session = 0; session < 10; ++session) {
        Writer writer(tmp / "q", session == 0 ? small() : WriterOptions{});
        for (int i = 0; i < 37; ++i) CHECK_EQ(append(writer, std::string(500, 's')), n++);
    }
    CHECK(numbers(read_all(tmp / "q")) == count_to(n));
}

TEST(nothing_is_lost_by_a_kill_after_any_number_of_records) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    std::vector<Seen> written;
    for (std::uint64_t i = 0; i < 60; ++i) {
        const std::string payload(i % 3 == 0 ? 8000 : i * 17 % 4000, 'k');
        written.push_back({append(writer, payload), payload});
        const std::string image = crash_image(tmp / "q");
        {
            Writer next(image, WriterOptions{});
            CHECK_EQ(next.next_seq(), i + 1);
            append(next, "after");
        }
        std::vector<Seen> expected = written;
        expected.push_back({i + 1, "after"});
        CHECK(read_all(image) == expected);
    }
}

TEST(a_kill_between_publishing_a_segment_and_its_first_record_keeps_the_sequence) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    append(writer, std::string(8064, 'x'));
    CHECK(writer.make_room(100));  // rolled; nothing appended yet
    const std::string image = crash_image(tmp / "q");
    Reader reader(image, ReaderOptions{});
    CHECK_EQ(drain(reader).size(), 1u);
    Writer next(image, WriterOptions{});
    CHECK_EQ(append(next, "second"), 1u);
    CHECK(drain(reader) == std::vector<Seen>{{1, "second"}});
}

TEST(an_unfinished_record_is_never_shown) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    const std::vector<Seen> written = fill(writer, 5, 100);
    const std::string image = crash_image(tmp / "q");
    // Killed in the middle of the payload: bytes, but no commit word.
    poke_file(Layout{image}.segment(0), 64 + 5 * 192 + 64, "half a payload", 14);
    std::vector<Seen> expected = written;
    {
        Writer next(image, WriterOptions{});
        CHECK_EQ(stat(next, Stat::recovered_pads), 1u);
        expected.push_back({append(next, "sixth"), "sixth"});
    }
    CHECK(read_all(image) == expected);
    CHECK_EQ(expected.back().seq, 5u);
}

TEST(damage_costs_the_records_it_hit_and_no_other) {
    for (const std::size_t bytes : {0u, 63u, 64u, 500u}) {
        const Scratch tmp;
        Writer writer(tmp / "q", small());
        const std::vector<Seen> written = fill(writer, 12, bytes);
        const std::string image = crash_image(tmp / "q");
        const std::uint64_t length = tapewire::format::record_bytes(bytes);
        const std::uint32_t wrong = 0x7FFFFFFF;
        poke_file(Layout{image}.segment(0), 64 + 4 * length, &wrong, sizeof wrong);

        Reader reader(image, ReaderOptions{});
        RecordView record;
        for (int i = 0; i < 4; ++i) CHECK(reader.next(record));
        for (int i = 0; i < 3; ++i)
            CHECK(throws(Errc::corrupt_record, [&] { reader.next(record); }));
        const tapewire::Skipped skipped = reader.skip_damaged();
        CHECK_EQ(skipped.bytes, length);
        CHECK(skipped.numbers_known && skipped.first_seq == 4 && skipped.last_seq == 4);
        CHECK(reader.next(record) && record.seq == 5);

        Writer next(image, WriterOptions{});
        CHECK_EQ(next.next_seq(), 12u);
        CHECK_EQ(stat(next, Stat::damaged_spans), 1u);
        CHECK(fs::exists(Layout{image}.damaged_copy(0)));
        Reader after(image, ReaderOptions{});
        std::vector<Seen> got;
        CHECK(throws(Errc::gap_detected, [&] {
            while (after.next(record)) got.push_back(seen(record));
        }));
        while (after.next(record)) got.push_back(seen(record));
        std::vector<Seen> expected = written;
        expected.erase(expected.begin() + 4);
        CHECK(got == expected);
    }
}

// A payload may contain the bytes of another queue's record, and the writer may be killed while it
// copies them.
TEST(a_copy_of_a_record_in_an_unfinished_payload_is_not_a_record) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    append(writer, std::string(8064, 'x'));
    CHECK(writer.make_room(1000));
    const std::string image = crash_image(tmp / "q");
    {
        WriterOptions options = small();
        options.first_seq = 77;
        Writer other(tmp / "other", options);
        append(other, "not of this queue");
        const std::string bytes = peek_file(Layout{tmp / "other"}.segment(0), 64, 128);
        poke_file(Layout{image}.segment(1), 64 + 64, bytes.data(), bytes.size());
    }
    {
        Writer next(image, WriterOptions{});
        CHECK_EQ(append(next, "second"), 1u);
    }
    CHECK(numbers(read_all(image)) == count_to(2));
}

TEST(a_missing_short_or_invalid_checkpoint_changes_nothing) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    const std::vector<Seen> written = fill(writer, 100, 700);
    writer.flush_sync();
    for (const std::string& text : {std::string(), std::string("short"), std::string(24, '\xFF'),
                                    std::string(16, '\xFF'), std::string(16, '\0')}) {
        const std::string image = crash_image(tmp / "q");
        std::ofstream(Layout{image}.tail_checkpoint(), std::ios::binary | std::ios::trunc) << text;
        Writer next(image, WriterOptions{});
        CHECK_EQ(next.next_seq(), 100u);
        CHECK(read_all(image) == written);
    }
}

// ---- seeking ------------------------------------------------------------------------------------

TEST(seek_seq_finds_every_number_with_and_without_indexes) {
    const Scratch tmp;
    WriterOptions options = small();
    options.index_stride = 4;
    Writer writer(tmp / "q", options);
    fill(writer, 300, 200);
    for (const bool indexed : {true, false}) {
        const std::string image = crash_image(tmp / "q");
        if (!indexed) {
            for (const std::uint32_t id : Layout{image}.segments())
                fs::remove(Layout{image}.index(id));
        }
        Reader reader(image, ReaderOptions{});
        RecordView record;
        for (std::uint64_t seq = 0; seq < 300; ++seq) {
            CHECK(reader.seek_seq(seq));
            CHECK(reader.next(record) && record.seq == seq);
        }
        CHECK(!reader.seek_seq(300));
        CHECK(!reader.next(record));
    }
}

TEST(seek_time_finds_the_first_record_at_which_the_log_had_reached_it) {
    const Scratch tmp;
    WriterOptions options = small();
    options.index_stride = 2;
    Writer writer(tmp / "q", options);
    std::vector<std::uint64_t> times;
    for (std::uint64_t i = 0; i < 200; ++i) {
        times.push_back(1000 + 10 * i - (i % 5 == 0 ? 300 : 0));  // sometimes the clock jumps back
        append(writer, std::string(200, 't'), times.back());
    }
    Reader reader(tmp / "q", ReaderOptions{});
    RecordView record;
    for (std::uint64_t t = 0; t < 3100; t += 7) {
        const auto it =
            std::find_if(times.begin(), times.end(), [t](auto time) { return time >= t; });
        CHECK_EQ(reader.seek_time(static_cast<std::int64_t>(t)), it != times.end());
        if (it == times.end()) continue;
        CHECK(reader.next(record));
        CHECK_EQ(record.seq, static_cast<std::uint64_t>(it - times.begin()));
    }
}

TEST(seek_end_moves_after_the_last_record) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    fill(writer, 100, 200);
    Reader reader(tmp / "q", ReaderOptions{});
    reader.seek_end();
    CHECK(drain(reader).empty());
    append(writer, "new");
    CHECK(drain(reader) == std::vector<Seen>{{100, "new"}});
    CHECK(reader.seek_start());
    CHECK_EQ(drain(reader).size(), 101u);
}

TEST(an_index_with_invalid_entries_is_ignored) {
    using tapewire::format::SeekIndexEntry;
    using tapewire::format::SeekIndexHeader;
    const std::uint64_t beyond[] = {~std::uint64_t{63}, ~std::uint64_t{127}, std::uint64_t{1} << 63,
                                    kSmallest, 7};
    for (const std::uint64_t offset : beyond) {
        const Scratch tmp;
        {
            Writer writer(tmp / "q", small());
            fill(writer, 10, 100);
        }
        SeekIndexHeader header{};
        std::memcpy(header.magic, tapewire::format::kSeekIndexMagic, sizeof header.magic);
        header.version = tapewire::format::kSeekIndexVersion;
        header.header_len = tapewire::format::kSeekIndexHeaderBytes;
        header.segment_size = kSmallest;
        header.data_offset = tapewire::format::kSegmentDataOffset;
        header.entry_stride = 1;
        header.max_seq = 9;
        header.max_ts_ns = 2000;
        header.entry_count = 1;
        const SeekIndexEntry entry{0, 1000, offset};
        {
            std::ofstream file(Layout{tmp / "q"}.index(0), std::ios::binary | std::ios::trunc);
            file.write(reinterpret_cast<const char*>(&header), sizeof header);
            file.write(reinterpret_cast<const char*>(&entry), sizeof entry);
        }
        {
            Reader reader(tmp / "q", ReaderOptions{});
            CHECK(reader.seek_seq(5));
            CHECK_EQ(drain(reader).size(), 5u);
            reader.seek_end();
            CHECK(drain(reader).empty());
        }
        Writer next(tmp / "q", WriterOptions{});
        CHECK_EQ(next.next_seq(), 10u);
    }
}

// ---- retention and readers ----------------------------------------------------------------------

TEST(retention_deletes_what_every_reader_has_committed_past_and_its_index) {
    const Scratch tmp;
    WriterOptions options = small();
    options.retention.enabled = true;
    options.retention.reader_ttl_ns = 60'000'000'000;
    Writer writer(tmp / "q", options);
    ReaderOptions named;
    named.name = "one";
    Reader reader(tmp / "q", named);
    reader.register_position();
    const Layout layout{tmp / "q"};
    for (int i = 0; i < 6; ++i) append(writer, std::string(8064, 'r'));
    CHECK_EQ(layout.segments().front(), 0u);
    RecordView record;
    for (int i = 0; i < 4; ++i) CHECK(reader.next(record));
    reader.commit();
    CHECK(eventually([&] { return layout.segments().front() == 3; }));
    CHECK(eventually([&] {
        return !fs::exists(layout.index(0)) && !fs::exists(layout.index(1)) &&
               !fs::exists(layout.index(2));
    }));
    CHECK_EQ(drain(reader).size(), 2u);
}

TEST(a_queue_without_readers_loses_nothing) {
    const Scratch tmp;
    WriterOptions options = small();
    options.retention.enabled = true;
    options.retention.reader_ttl_ns = 0;
    {
        Writer writer(tmp / "q", options);
        for (int i = 0; i < 20; ++i) append(writer, std::string(8064, 'r'));
    }
    CHECK_EQ(read_all(tmp / "q").size(), 20u);
}

TEST(a_reader_resumes_after_what_it_committed) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    fill(writer, 50, 500);
    ReaderOptions named;
    named.name = "again";
    RecordView record;
    std::uint64_t expected = 0;
    for (int session = 0; session < 5; ++session) {
        Reader reader(tmp / "q", named);
        CHECK_EQ(reader.resume_committed(), session != 0);
        for (int i = 0; i < 8; ++i, ++expected)
            CHECK(reader.next(record) && record.seq == expected);
        reader.commit();
        CHECK(reader.next(record));  // read, not committed: it is read again
        CHECK(throws(Errc::reader_already_active, [&] { Reader other(tmp / "q", named); }));
    }
}

TEST(a_reader_whose_segments_are_gone_learns_where_to_resume) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    for (int i = 0; i < 6; ++i) append(writer, std::string(8064, 'r'));
    Reader reader(tmp / "q", ReaderOptions{});
    RecordView record;
    CHECK(reader.next(record));
    for (std::uint32_t id = 0; id < 4; ++id) fs::remove(Layout{tmp / "q"}.segment(id));
    try {
        reader.next(record);
        CHECK(!"a missing segment was skipped");
    } catch (const Error& e) {
        CHECK(e.code == Errc::segment_missing);
        CHECK_EQ(e.numbers[2], 4u);
    }
    CHECK(reader.seek_start());
    CHECK(reader.next(record) && record.seq == 4);
}

TEST_MAIN()
