// Leaving a segment: every outcome that a reader can see during a roll, counted. The writer's side
// is the engine's own roll; each round has its own segment, of the smallest size.
#include <memory>
#include <optional>

#include "litmus_kit.hpp"
#include "queue_kit.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"

using namespace kit;
using litmus::Kind;
using litmus::Table;
using tapewire::format::kSegmentDataOffset;
using tapewire::queue::Commit;
using tapewire::queue::Control;
using tapewire::queue::Segment;

namespace {

constexpr std::uint64_t kEnough = 1000;  // rounds

// Starts at the beginning of a segment, which must contain a record before a roll leaves it.
class Roller {
  public:
    explicit Roller(const std::string& root) : layout_{root} {
        WriterOptions options = small();
        options.preallocate = false;  // the roll itself makes the next segment
        options.checksum = false;
        writer_ = std::make_unique<Writer>(root, options);
        control_ = Control::open(layout_, true);
        look_at_current();
    }

    const Segment& segment() const { return *segment_; }
    const Layout& layout() const { return layout_; }
    const Control& control() const { return control_; }

    void append() { CHECK(writer_->try_append(7, 0, writer_->next_seq(), 1, "last", 4)); }
    void roll() { CHECK(writer_->make_room(writer_->max_payload_bytes())); }

    // Called while both sides wait.
    void next_round() {
        writer_->resume();
        fs::remove(layout_.segment(segment_->id()));
        look_at_current();
    }

  private:
    void look_at_current() {
        segment_ = Segment::open(layout_, control_.geometry(), control_.current_segment(),
                                 tapewire::Mapping::Access::read_only);
        segment_->close_file();
    }

    Layout layout_;
    std::unique_ptr<Writer> writer_;
    Control control_;
    std::optional<Segment> segment_;
};

}  // namespace

TEST(records_committed_before_the_seal_are_found_after_it) {
    const Scratch tmp;
    Roller roller(tmp / "q");
    enum Found : std::size_t { first_look, second_look, lost };
    Table table("commit 0, SEALED, commit again", kEnough,
                {{"committed at the first look", Kind::allowed},
                 {"commit 0, SEALED, committed at the second look", Kind::racing},
                 {"commit 0, SEALED, commit 0: the record is missed", Kind::forbidden}});
    Found found{};
    litmus::race(
        [&](std::uint64_t) {
            roller.append();
            roller.roll();
        },
        [&](std::uint64_t round) {
            const std::byte* const at = roller.segment().data() + kSegmentDataOffset;
            for (std::uint64_t looks = 0;; ++looks) {
                if (Commit::at(at)) {
                    found = first_look;
                    return;
                }
                // In some rounds as long as a roll takes: both stores then fall between two loads.
                litmus::linger((round + looks) % 16 * 20'000);
                if (!roller.segment().sealed()) continue;
                found = Commit::at(at) ? second_look : lost;
                return;
            }
        },
        [&](std::uint64_t) {
            table.count(found);
            roller.next_round();
            return table.wants_more();
        });
    table.report();
}

TEST(a_reader_that_leaves_a_sealed_segment_finds_the_next_one) {
    const Scratch tmp;
    Roller roller(tmp / "q");
    enum Found : std::size_t { open_alone, open_with_next, sealed_with_next, absent, unannounced };
    Table table("SEALED, then the next segment", kEnough,
                {{"not sealed, no next segment", Kind::allowed},
                 {"not sealed, the next segment exists", Kind::racing},
                 {"sealed, the next segment exists and is announced", Kind::racing},
                 {"sealed, no next segment", Kind::forbidden},
                 {"sealed, current_segment is still the old one", Kind::forbidden}});
    std::array<std::uint64_t, 5> looks{};
    roller.append();
    litmus::race([&](std::uint64_t) { roller.roll(); },
                 [&](std::uint64_t) {
                     looks = {};
                     const std::uint32_t next = roller.segment().id() + 1;
                     for (bool sealed = false; !sealed;) {
                         sealed = roller.segment().sealed();
                         const bool announced = roller.control().current_segment() == next;
                         const bool there = tapewire::file_exists(roller.layout().segment(next));
                         ++looks[!sealed      ? (there ? open_with_next : open_alone)
                                 : !there     ? absent
                                 : !announced ? unannounced
                                              : sealed_with_next];
                     }
                 },
                 [&](std::uint64_t) {
                     for (std::size_t i = 0; i < looks.size(); ++i) table.count(i, looks[i]);
                     roller.next_round();
                     roller.append();
                     return table.wants_more();
                 });
    table.report();
}

// As with a commit: a reader about to sleep at the end of a segment checks SEALED instead.
TEST(a_roll_that_sees_no_waiter_and_a_waiter_that_sees_no_seal_never_meet) {
    const Scratch tmp;
    Roller roller(tmp / "q");
    const std::atomic_ref<std::uint32_t> waiters(*roller.control().waiters_word());
    enum Woken : std::size_t { both, writer_only, reader_only, neither };
    Table table("store buffering, SEALED", kEnough,
                {{"both saw the other", Kind::allowed},
                 {"the writer saw the flag, the reader no seal", Kind::racing},
                 {"the reader saw the seal, the writer no flag", Kind::racing},
                 {"neither saw the other: a lost wake-up", Kind::forbidden}});
    litmus::Phase phase;
    bool reader_saw = false;
    roller.append();
    litmus::race([&](std::uint64_t) { roller.roll(); },
                 [&](std::uint64_t round) {
                     // The seal comes at the end of a roll, after a varying time: wait until it is
                     // near.
                     const std::uint32_t next = roller.segment().id() + 1;
                     if (round % 8 != 0) {
                         while (roller.control().current_segment() != next) {
                         }
                     }
                     phase.hold_right(round);
                     waiters.store(1, std::memory_order_seq_cst);
                     reader_saw = roller.segment().sealed(std::memory_order_seq_cst);
                 },
                 [&](std::uint64_t) {
                     const bool writer_saw =
                         waiters.exchange(0) == 0;  // if so, it has cleared the flag
                     table.count(writer_saw ? (reader_saw ? both : writer_only)
                                            : (reader_saw ? reader_only : neither));
                     if (writer_saw && !reader_saw) phase.right_was_first();
                     if (reader_saw && !writer_saw) phase.left_was_first();
                     roller.next_round();
                     roller.append();
                     return table.wants_more();
                 });
    table.report();
}

TEST(the_published_position_is_never_torn) {
    const Scratch tmp;
    const Layout layout{tmp / "q"};
    tapewire::make_directory(layout.root);
    Control::create(layout, {kSmallest, 0});
    Control writer = Control::open(layout, true);
    const Control reader = Control::open(layout, false);
    const auto offset_of = [](std::uint32_t segment) { return 64 + std::uint64_t{64} * segment; };
    writer.publish_position(0, offset_of(0));
    Table table("segment and offset under the seqlock", kEnough,
                {{"the previous pair, or none while it changed", Kind::allowed},
                 {"a newer pair, complete", Kind::racing},
                 {"segment and offset of two pairs", Kind::forbidden},
                 {"the two words read without the seqlock: of two pairs (control)", Kind::racing}});
    constexpr std::uint32_t kPublished = 64;  // per round
    std::array<std::uint64_t, 4> looks{};
    litmus::race(
        [&](std::uint64_t round) {
            for (std::uint32_t i = 1; i <= kPublished; ++i) {
                const auto segment = static_cast<std::uint32_t>(round) * kPublished + i;
                writer.publish_position(segment, offset_of(segment));
                litmus::linger(i);
            }
        },
        [&](std::uint64_t round) {
            looks = {};
            const std::uint32_t last = (static_cast<std::uint32_t>(round) + 1) * kPublished;
            for (std::uint32_t before = last - kPublished; before != last;) {
                const std::uint32_t segment = reader.current_segment();
                const std::uint64_t offset = reader.write_offset();
                if (offset != offset_of(segment)) ++looks[3];

                const auto at = reader.position();
                if (at && at->second != offset_of(at->first)) {
                    ++looks[2];
                } else {
                    ++looks[at && at->first != before ? 1 : 0];
                }
                if (at) before = at->first;
            }
        },
        [&](std::uint64_t) {
            for (std::size_t i = 0; i < looks.size(); ++i) table.count(i, looks[i]);
            return table.wants_more();
        });
    table.report();
}

TEST_MAIN()
