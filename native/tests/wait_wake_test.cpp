// Publish, wait, wake, with real threads and a real futex: parked readers through rolls of every
// shape, and writers that stop and restart. The model in model/ proves the order of loads and
// stores; this shows that the code keeps it.
//
// Readers wait in long slices and do not spin, so that a lost wake-up shows: as a reader that has
// not caught up within the time that `eventually` allows, or as a sleep that ended only because a
// parked reader checks again by itself.
#include <algorithm>
#include <atomic>
#include <memory>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/clock.hpp"

using namespace kit;
using tapewire::WaitKind;
using tapewire::WaitOutcome;
using tapewire::format::Stat;

namespace {

constexpr std::int64_t kLongNs = 30'000'000'000;
constexpr std::int64_t kOverslept = 900'000'000;  // a parked reader checks again after a second

class ParkedReader {
  public:
    ParkedReader(const std::string& root, std::uint64_t wanted) : wanted_(wanted) {
        ReaderOptions options;
        options.wait = WaitKind::spin_then_park;
        options.wait_ns = 0;
        reader_ = std::make_unique<Reader>(root, options);
        thread_ = std::thread([this] { run(); });
    }
    ~ParkedReader() {
        reader_->interrupt();
        thread_.join();
    }

    std::uint64_t seen() const { return seen_.load(std::memory_order_acquire); }
    std::uint64_t oversleeps() const { return oversleeps_.load(std::memory_order_relaxed); }

  private:
    void run() {
        try {
            RecordView record;
            while (seen() < wanted_) {
                while (reader_->next(record)) {
                    CHECK_EQ(record.seq, seen());
                    seen_.fetch_add(1, std::memory_order_release);
                }
                if (seen() >= wanted_) break;
                const std::int64_t asleep = tapewire::mono_ns();
                const WaitOutcome outcome = reader_->wait(kLongNs);
                if (outcome == WaitOutcome::interrupted && seen() < wanted_) return;
                if (outcome == WaitOutcome::ready && tapewire::mono_ns() - asleep > kOverslept) {
                    oversleeps_.fetch_add(1, std::memory_order_relaxed);
                }
            }
        } catch (const Error& e) {
            check::fail(__FILE__, __LINE__,
                        "a parked reader got: " + e.message + " (" + e.path + ")");
        }
    }

    std::uint64_t wanted_;
    std::unique_ptr<Reader> reader_;
    std::atomic<std::uint64_t> seen_{0};
    std::atomic<std::uint64_t> oversleeps_{0};
    std::thread thread_;
};

// Sometimes returns at once, sometimes after the readers have had time to fall asleep.
void stagger(std::uint64_t i) {
    const std::int64_t until = tapewire::mono_ns() + static_cast<std::int64_t>(i % 16) * 3'000;
    while (tapewire::mono_ns() < until) {
    }
}

}  // namespace

TEST(parked_readers_lose_no_record_through_rolls_that_leave_64_bytes_and_none) {
    const Scratch tmp;
    constexpr std::uint64_t kRecords = 1500;
    Writer writer(tmp / "q", small());
    ParkedReader one(tmp / "q", kRecords), two(tmp / "q", kRecords);
    const std::string leaves_64(8000, 'a'), leaves_none(8064, 'b'), tiny(1, 'c');
    for (std::uint64_t i = 0; i < kRecords; ++i) {
        append(writer, i % 5 == 4 ? tiny : i % 2 == 0 ? leaves_64 : leaves_none);
        if (!CHECK(eventually([&] { return one.seen() > i && two.seen() > i; }))) return;
        stagger(i);
    }
    CHECK(stat(writer, Stat::rolls) >= kRecords / 2);
    CHECK(stat(writer, Stat::wakes) > 0);
    CHECK(one.oversleeps() + two.oversleeps() <= 2);
}

TEST(a_parked_reader_keeps_up_with_a_writer_that_never_waits_for_it) {
    const Scratch tmp;
    constexpr std::uint64_t kRecords = 20'000;
    Writer writer(tmp / "q", small());
    ParkedReader reader(tmp / "q", kRecords);
    const std::string payload(100, 'x');
    for (std::uint64_t i = 0; i < kRecords; ++i) append(writer, payload);
    CHECK(eventually([&] { return reader.seen() == kRecords; }));
}

TEST(batches_wake_parked_readers) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    constexpr std::uint64_t kBatches = 300;
    ParkedReader reader(tmp / "q", kBatches * 20);
    const std::string row(400, 'r');
    tapewire::queue::BatchRows batch;
    batch.count = 20;
    batch.base = reinterpret_cast<const std::byte*>(row.data());
    batch.row_bytes = 400;
    for (std::uint64_t i = 0; i < kBatches; ++i) {
        std::uint64_t done = 0;
        CHECK(writer.batch_fits(batch));
        writer.append_batch(batch, done);
        if (!CHECK(eventually([&] { return reader.seen() == (i + 1) * 20; }))) return;
        stagger(i);
    }
    CHECK(reader.oversleeps() <= 1);
}

TEST(the_first_append_of_a_restarted_writer_wakes_a_parked_reader) {
    const Scratch tmp;
    constexpr std::uint64_t kSessions = 60;
    {
        const Writer first(tmp / "q", small());
    }
    ParkedReader reader(tmp / "q", kSessions);
    for (std::uint64_t i = 0; i < kSessions; ++i) {
        Writer writer(tmp / "q", WriterOptions{});
        append(writer, std::string(i % 3 == 0 ? 8064 : i % 3 == 1 ? 8000 : 10, 's'));
        if (!CHECK(eventually([&] { return reader.seen() > i; }))) return;
    }
    CHECK(reader.oversleeps() <= 1);
}

TEST(a_reader_parked_in_a_segment_that_was_left_without_a_record_proceeds) {
    // The predecessor published the next segment and died before its first record.
    const Scratch tmp;
    {
        Writer writer(tmp / "q", small());
        append(writer, std::string(8064, 'x'));
        CHECK(writer.make_room(1));
    }
    ParkedReader reader(tmp / "q", 2);
    CHECK(eventually([&] { return reader.seen() == 1; }));
    Writer writer(tmp / "q", WriterOptions{});
    append(writer, "next");
    CHECK(eventually([&] { return reader.seen() == 2; }));
}

TEST(a_reader_that_ended_asleep_costs_one_wake_in_total) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    {
        ReaderOptions options;
        options.wait_ns = 0;
        Reader reader(tmp / "q", options);
        CHECK(reader.wait(1'000'000) ==
              WaitOutcome::not_yet);  // leaves the flag set, as a kill would
    }
    for (int i = 0; i < 20'000; ++i) append(writer, "x");
    CHECK(stat(writer, Stat::wakes) <= 1);
}

TEST(an_interrupt_ends_a_wait_that_spins_and_one_that_naps) {
    const Scratch tmp;
    const Writer writer(tmp / "q", small());
    for (const WaitKind kind : {WaitKind::busy_spin, WaitKind::sleep}) {
        ReaderOptions options;
        options.wait = kind;
        options.wait_ns = 1'000'000;
        Reader reader(tmp / "q", options);
        std::atomic<bool> ended{false};
        std::thread waiting([&] {
            CHECK(reader.wait(kLongNs) == WaitOutcome::interrupted);
            ended = true;
        });
        reader.interrupt();
        CHECK(eventually([&] { return ended.load(); }));
        waiting.join();
    }
}

TEST_MAIN()
