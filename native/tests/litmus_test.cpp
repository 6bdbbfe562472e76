// Publishing a record, and waking for it: every outcome that two threads can see, counted. The
// writer's side is the engine's own, in each of its three ways to publish.
#include <memory>

#include "litmus_kit.hpp"
#include "queue_kit.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/record_check.hpp"

using namespace kit;
using litmus::Kind;
using litmus::Table;
using tapewire::format::kSegmentDataOffset;
using tapewire::format::record_bytes;
using tapewire::queue::BatchRows;
using tapewire::queue::Commit;
using tapewire::queue::Control;
using tapewire::queue::load_commit;

namespace {

constexpr std::uint64_t kSegmentBytes = std::uint64_t{32} << 20;  // no race here needs a second one
constexpr std::uint64_t kEnough = 20'000;                         // rounds
constexpr std::size_t kLongest = 1200;
constexpr std::uint64_t kBatch = 8;
constexpr std::uint16_t kType = 7;

// Never zero; every byte of the segment is zero before.
std::byte payload_byte(std::uint64_t seq, std::size_t i) {
    return static_cast<std::byte>(1 + (seq * 7 + i * 13) % 255);
}

std::uint64_t time_of(std::uint64_t seq) { return (seq + 1) * 1'000'003; }

enum class Way { append, batch, reserve };

const char* name_of(Way way) {
    return way == Way::append ? "append" : way == Way::batch ? "batch" : "reserve and commit";
}

// A queue, its writer, and the place of the next record.
class Publisher {
  public:
    Publisher(const std::string& root, Way way, bool checksum) : way_(way) {
        WriterOptions options;
        options.segment_bytes = kSegmentBytes;
        options.preallocate = false;
        options.checksum = checksum;
        writer_ = std::make_unique<Writer>(root, options);
        seed_ = tapewire::queue::HeaderSeed(Control::open(Layout{root}, false).geometry().key, 0);
        // All blocks of the segment at once, so that only the append is measured.
        CHECK(writer_->make_room(writer_->max_payload_bytes()));
        writer_->resume();
        // Touched beforehand: a page fault in every other round would keep the two threads apart.
        writer_->current_map()->populate(0, kSegmentBytes);
    }

    // The same mapping for both sides, so that ThreadSanitizer sees one memory.
    const std::byte* at() const { return writer_->current_map()->data() + offset_; }
    // The initial state of the header check of a record so many bytes further.
    std::uint32_t state(std::uint64_t bytes) const { return seed_.at(offset_ + bytes); }
    std::uint64_t seq() const { return seq_; }
    std::uint64_t records() const { return way_ == Way::batch ? kBatch : 1; }
    bool has_room(std::size_t payload_len) const {
        return offset_ + 2 * records() * record_bytes(payload_len) <= kSegmentBytes - 65536;
    }

    // Publishes the records of one round: one, or a batch.
    void publish(std::size_t payload_len) {
        for (std::uint64_t n = 0; n < records(); ++n) {
            times_[n] = time_of(seq_ + n);
            for (std::size_t i = 0; i < payload_len; ++i) rows_[n][i] = payload_byte(seq_ + n, i);
        }
        publish_rows(payload_len);
    }

    void publish_rows(std::size_t payload_len) {
        switch (way_) {
            case Way::append:
                CHECK(writer_->try_append(kType, 0, seq_, times_[0], rows_[0].data(), payload_len));
                break;
            case Way::batch: {
                BatchRows batch;
                batch.count = kBatch;
                batch.base = rows_[0].data();
                batch.stride = sizeof rows_[0];
                batch.row_bytes = static_cast<std::uint32_t>(payload_len);
                batch.type_id = kType;
                batch.timestamps_ns = times_.data();
                std::uint64_t done = 0;
                writer_->append_batch(batch, done);
                break;
            }
            case Way::reserve:
                // Reserved longer than committed: what follows the record is zeroed before the
                // commit.
                std::memcpy(writer_->reserve(payload_len + 64), rows_[0].data(), payload_len);
                writer_->commit_reserved(kType, 0, seq_, times_[0], payload_len);
                break;
        }
    }

    // Called while both sides wait.
    void next_round(std::size_t payload_len) {
        offset_ += records() * record_bytes(payload_len);
        seq_ += records();
    }

  private:
    Way way_;
    std::unique_ptr<Writer> writer_;
    std::uint64_t offset_ = kSegmentDataOffset;
    std::uint64_t seq_ = 0;
    tapewire::queue::HeaderSeed seed_;
    std::array<std::array<std::byte, kLongest>, kBatch> rows_{};
    std::array<std::uint64_t, kBatch> times_{};
};

enum Passed : std::size_t { at_once, after_waiting, header_wrong, payload_wrong };

Passed judge_record(Commit commit, std::uint32_t state, std::uint64_t seq, std::size_t payload_len,
                    bool waited) {
    const auto& header = commit.header();
    if (header.seq != seq || header.timestamp_ns != time_of(seq) || header.type_id != kType ||
        commit.payload_len() != payload_len ||
        header.header_check != tapewire::crc32c_32bytes(&header, state)) {
        return header_wrong;
    }
    for (std::size_t i = 0; i < payload_len; ++i) {
        if (commit.payload()[i] != payload_byte(seq, i)) return payload_wrong;
    }
    return waited ? after_waiting : at_once;
}

void pass_messages(Way way) {
    const Scratch tmp;
    Publisher publisher(tmp / "q", way, true);
    Table table(std::string("message passing, ") + name_of(way), kEnough,
                {{"commit seen at the first look, record complete", Kind::allowed},
                 {"commit 0, then seen, record complete", Kind::racing},
                 {"commit seen before its header", Kind::forbidden},
                 {"commit seen before its payload", Kind::forbidden}});
    const auto length = [](std::uint64_t round) { return 1 + round * 37 % (kLongest - 64); };
    std::array<Passed, kBatch> passed{};
    litmus::race([&](std::uint64_t round) { publisher.publish(length(round)); },
                 [&](std::uint64_t round) {
                     const std::uint64_t stride = record_bytes(length(round));
                     for (std::uint64_t n = 0; n < publisher.records(); ++n) {
                         bool waited = false;
                         Commit commit = Commit::at(publisher.at() + n * stride);
                         for (; !commit; commit = Commit::at(publisher.at() + n * stride))
                             waited = true;
                         passed[n] = judge_record(commit, publisher.state(n * stride),
                                                  publisher.seq() + n, length(round), waited);
                     }
                 },
                 [&](std::uint64_t round) {
                     for (std::uint64_t n = 0; n < publisher.records(); ++n) table.count(passed[n]);
                     publisher.next_round(length(round));
                     return publisher.has_room(kLongest) && table.wants_more();
                 });
    table.report();
}

// ---- store buffering ----------------------------------------------------------------------------

enum Woken : std::size_t { both, writer_only, reader_only, neither };

Woken outcome(bool writer_saw_flag, bool reader_saw_record) {
    return writer_saw_flag ? (reader_saw_record ? both : writer_only)
                           : (reader_saw_record ? reader_only : neither);
}

void bring_together(litmus::Phase& phase, Woken woken) {
    if (woken == writer_only) phase.right_was_first();
    if (woken == reader_only) phase.left_was_first();
}

// Store, then load, on two words, with orders that look sufficient and are not. Returns whether
// this machine lets both loads pass both stores.
bool shows_store_buffering() {
    struct alignas(128) Word {
        std::uint32_t value = 0;
    };
    Word commit, waiters;
    Table table("store buffering, release and relaxed instead (control, not the engine)", kEnough,
                {{"both saw the other", Kind::allowed},
                 {"the writer saw the flag, the reader no record", Kind::racing},
                 {"the reader saw the record, the writer no flag", Kind::racing},
                 {"neither saw the other: a lost wake-up", Kind::racing}});
    litmus::Phase phase;
    bool writer_saw = false, reader_saw = false;
    litmus::race(
        [&](std::uint64_t round) {
            phase.hold_left(round);
            std::atomic_ref(commit.value).store(1, std::memory_order_release);
            writer_saw = std::atomic_ref(waiters.value).load(std::memory_order_relaxed) != 0;
        },
        [&](std::uint64_t round) {
            // A reader has checked before it goes to sleep. The line is then in its cache, and the
            // writer's store must wait for it: long enough for an unordered load to pass.
            std::atomic_ref(commit.value).load(std::memory_order_relaxed);
            phase.hold_right(round);
            std::atomic_ref(waiters.value).store(1, std::memory_order_release);
            reader_saw = std::atomic_ref(commit.value).load(std::memory_order_relaxed) != 0;
        },
        [&](std::uint64_t) {
            const Woken woken = outcome(writer_saw, reader_saw);
            table.count(woken);
            bring_together(phase, woken);
            commit.value = waiters.value = 0;
            return table.wants_more();
        });
    table.report();
    return table.seen(neither) != 0;
}

// The engine's publish, racing what Reader::wait does before it sleeps.
void buffer_stores(Way way) {
    constexpr std::size_t kPayload = 8;
    const Scratch tmp;
    Publisher publisher(tmp / "q", way, false);
    const Control control = Control::open(Layout{tmp / "q"}, true);
    const std::atomic_ref<std::uint32_t> waiters(*control.waiters_word());
    Table table(std::string("store buffering, ") + name_of(way), kEnough,
                {{"both saw the other", Kind::allowed},
                 {"the writer saw the flag, the reader no record", Kind::racing},
                 {"the reader saw the record, the writer no flag", Kind::racing},
                 {"neither saw the other: a lost wake-up", Kind::forbidden}});
    // The last record of a batch: its commit is the closest to the load that must not pass it.
    const auto place = [&] {
        return publisher.at() + (publisher.records() - 1) * record_bytes(kPayload);
    };
    litmus::Phase phase;
    bool reader_saw = false;
    litmus::race(
        [&](std::uint64_t round) {
            phase.hold_left(round);
            publisher.publish_rows(kPayload);
        },
        [&](std::uint64_t round) {
            load_commit(place());  // as above
            phase.hold_right(round);
            waiters.store(1, std::memory_order_seq_cst);
            reader_saw = load_commit(place(), std::memory_order_seq_cst) != 0;
        },
        [&](std::uint64_t) {
            // A writer that saw the flag has cleared it.
            const Woken woken = outcome(waiters.exchange(0) == 0, reader_saw);
            table.count(woken);
            bring_together(phase, woken);
            publisher.next_round(kPayload);
            return publisher.has_room(kPayload) && table.wants_more();
        });
    table.report();
}

}  // namespace

TEST(a_commit_that_is_seen_comes_with_its_complete_record) {
    for (const Way way : {Way::append, Way::batch, Way::reserve}) pass_messages(way);
}

TEST(a_writer_that_sees_no_waiter_and_a_waiter_that_sees_no_record_never_meet) {
    if (!shows_store_buffering()) {
        std::printf("  no store was passed by a load here: the next three tables show nothing\n");
    }
    for (const Way way : {Way::append, Way::batch, Way::reserve}) buffer_stores(way);
}

TEST(no_committed_record_follows_an_uncommitted_one) {
    constexpr std::size_t kPayload = 100;
    const Scratch tmp;
    Publisher publisher(tmp / "q", Way::batch, true);
    enum Prefix : std::size_t { none, some, all, hole };
    Table table("a batch looked at from its end to its beginning", kEnough,
                {{"none of it committed", Kind::allowed},
                 {"a part of it, from its beginning", Kind::racing},
                 {"all of it", Kind::allowed},
                 {"a committed record after an uncommitted one", Kind::forbidden}});
    std::array<std::uint64_t, 4> looks{};
    litmus::race(
        [&](std::uint64_t) { publisher.publish(kPayload); },
        [&](std::uint64_t) {
            looks = {};
            for (Prefix found = none; found != all; ++looks[found]) {
                // The later record first: whatever precedes it was committed before it.
                std::uint64_t committed = 0;
                bool gap = false;
                for (std::uint64_t n = kBatch; n-- > 0;) {
                    const bool there =
                        load_commit(publisher.at() + n * record_bytes(kPayload)) != 0;
                    if (there) ++committed;
                    gap = gap || (!there && committed != 0);
                }
                found = gap ? hole : committed == 0 ? none : committed < kBatch ? some : all;
            }
        },
        [&](std::uint64_t) {
            for (std::size_t i = 0; i < looks.size(); ++i) table.count(i, looks[i]);
            publisher.next_round(kPayload);
            return publisher.has_room(kPayload) && table.wants_more();
        });
    table.report();
}

TEST_MAIN()
