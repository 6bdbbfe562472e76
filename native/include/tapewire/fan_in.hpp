// Many cursors as one, in the order of time, then of the sources' names; each source keeps its own order.
//
// Each source is either in the heap, by the record it shows next, or silent: at its end when it was last
// looked at; or over, where it was given a number to end at. The earliest record shown may be given when no silent source could still come before it, and
// that is a question of patience. With a limit (`max_skew_ns`) a record that is older than the limit is
// given whatever the silent ones may say later; without, the calls that never block take what is there
// now, and those that follow wait until every source that has a writer shows a record.
//
// A source's cursor stands in front of the record it shows: a position committed at any time covers just
// what was given. The cursors belong to somebody else, who takes care that nobody else moves them.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tapewire/cursor.hpp"
#include "tapewire/process.hpp"

namespace tapewire {

struct FanInOptions {
    std::int64_t max_skew_ns = -1;  // below 0: no limit
    WaitKind wait = WaitKind::spin_then_park;
    std::int64_t wait_ns = 10'000;  // how long to spin, or to sleep between looks
};

class FanIn final : public Cursor, private ForkAware {
  public:
    using Slot = std::uint16_t;
    static constexpr std::size_t kMostSources = 0xFFFF;

    struct Counts {
        std::uint64_t records = 0;
        std::uint64_t late = 0;  // given after a record with a later time
    };

    explicit FanIn(const FanInOptions& options);
    ~FanIn() override;

    // Slots are used again. The record that next() gave last stays valid. With `end_seq` the source is
    // over in front of its first record of that number or a higher one: it shows nothing, and holds
    // nobody back.
    Slot add(const std::string& name, Cursor& cursor, std::optional<std::uint64_t> end_seq = {});
    void remove(Slot slot) noexcept;
    Counts counts(Slot slot) const { return sources_[slot].counts; }
    std::optional<std::uint64_t> last_seq() const noexcept { return last_seq_; }
    // True once every source has come to its `end_seq`.
    bool is_over() const noexcept override;

    bool next(RecordView& out) override;
    int failed() const noexcept override { return failed_; }
    bool merges() const noexcept override { return true; }
    std::size_t read_batch(BatchColumns& out, std::size_t max_records) override;
    bool peek(RecordView& out) override;
    void pass(const RecordView& shown) noexcept override;
    WaitOutcome wait(std::int64_t max_ns) override;
    int ready_fd() override;
    bool prepare_to_sleep(Bell& bell) override;
    bool has_writer() override;
    bool seek_seq(std::uint64_t seq) override;  // refused: numbers are each source's own
    bool seek_time(std::int64_t timestamp_ns) override;
    bool seek_start() override;
    void seek_end() override;
    Skipped skip_damaged() override;  // of the source whose error was thrown last

    // While following without a limit, next() waits for all that have a writer: here and in the fan-ins
    // that are sources.
    void follow(bool on) noexcept override;
    // Ends a wait() of another thread within one slice.
    void interrupt() noexcept { interrupted_.store(true, std::memory_order_release); }
    // Keeps the descriptor readable for who holds copies of both, also when this object is gone.
    int wake_fd();
    bool forked_away() const noexcept { return forked(); }

  private:
    static constexpr int kNone = -1;

    struct Source {
        Cursor* cursor = nullptr;  // null: the slot is free
        bool merges = false;       // the cursor is a fan-in itself
        std::string name;
        std::uint32_t rank = 0;  // of the name among all
        RecordView shown;        // while in the heap
        std::optional<std::uint64_t> end_seq;
        bool over = false;  // in front of end_seq: neither in the heap nor silent
        Counts counts;
        const Mapping* in_batch = nullptr;  // its mapping that the batch being filled holds already
        bool has_writer = false;
        std::int64_t ask_writer_ns = 0;  // not asked again before
        // Since when its records are held back that are stamped later than now, one behind the other.
        std::optional<std::int64_t> ahead_since_ns;
    };
    struct Entry {
        std::int64_t time;
        std::uint32_t rank;
        std::uint32_t slot;
        bool before(const Entry& other) const noexcept {
            return time != other.time ? time < other.time : rank < other.rank;
        }
    };

    class Poller;

    void check_usable() const;
    bool limited() const noexcept { return options_.max_skew_ns >= 0; }
    // Whether the top of the heap may be given now; looks at the silent ones first when told to.
    bool choose(bool look);
    bool skew_limit_passed();
    bool all_shown();
    bool nothing_now();  // false; the descriptor, if there is one, is armed
    void look_at_silent();
    void refill_top();
    bool show(Slot slot);
    bool became_ready(std::size_t at);
    void push(Slot slot) noexcept;
    void give() noexcept;
    void retire_consumed_top() noexcept;
    void mark_all_idle() noexcept;
    void sift_down() noexcept;
    void order_heap() noexcept;
    void take_mapping(BatchColumns& out, Source& source) const;
    void push(const Entry& entry) noexcept;
    void pop_top() noexcept;
    void rank_names() noexcept;
    std::int64_t held_since() const noexcept;
    void read_clock() noexcept;
    template <class Seek>
    bool seek_all(Seek seek);
    std::int64_t release_ns(std::int64_t now) const noexcept;
    bool park(std::int64_t until_ns);  // false: a signal came

    const FanInOptions options_;
    std::vector<Source> sources_;
    std::vector<Entry> heap_;
    std::vector<Slot> silent_;
    std::vector<Slot> by_name_;
    std::size_t merging_ = 0;                                // how many sources are fan-ins
    std::shared_ptr<const std::vector<std::string>> names_;  // by slot; what batches keep
    bool top_consumed_ =
        false;  // the top of the heap was given: its source must show its next record
    std::optional<std::uint64_t> last_seq_;
    std::optional<std::int64_t> latest_;  // time of all that were given
    // With a limit: the wall clock as last read, and before the last look at all silent ones; and since
    // when the top may not be given yet, by the other clock, which does not jump.
    std::int64_t wall_ns_ = 0;
    std::int64_t looked_wall_ns_ = 0;
    std::optional<std::int64_t> held_since_ns_;
    bool following_ = false;
    int failed_ = kNone;
    std::exception_ptr gap_;  // told once: by the call after the batch that met it
    std::atomic<bool> interrupted_{false};
    std::unique_ptr<Poller> poller_;  // from the first ready_fd() on
};

}  // namespace tapewire
