// Merges cursors into one, ordered by time, then by source name; each source keeps its own order.
//
// A source is in the heap, by its next record; or silent: it was at its end when last checked; or
// over: it has reached the sequence number at which it ends. The earliest record of the heap may be
// returned if no silent source can still have an earlier one. With a limit (`max_skew_ns`), a
// record older than the limit is returned regardless of the silent sources. Without one, the calls
// that never block merge what is available now, and those that follow wait until every source with
// a writer has a record.
//
// The cursor of a source is positioned before its record in the heap, so a position committed at
// any time covers exactly the records that were returned. The caller owns the cursors and must not
// move them.
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
        std::uint64_t late = 0;  // returned after a record with a later time
    };

    explicit FanIn(const FanInOptions& options);
    ~FanIn() override;

    // Slots are reused. The record last returned by next() stays valid. With `end_seq` the source
    // ends before its first record with that sequence number or a higher one, and from then on
    // delays no other source.
    Slot add(const std::string& name, Cursor& cursor, std::optional<std::uint64_t> end_seq = {});
    void remove(Slot slot) noexcept;
    Counts counts(Slot slot) const { return sources_[slot].counts; }
    std::optional<std::uint64_t> last_seq() const noexcept { return last_seq_; }
    // True once every source has reached its `end_seq`.
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
    bool seek_seq(std::uint64_t seq) override;  // throws: sequence numbers belong to the sources
    bool seek_time(std::int64_t timestamp_ns) override;
    bool seek_start() override;
    void seek_end() override;
    Skipped skip_damaged() override;  // of the source that threw last

    // While following without a limit, next() waits for all sources that have a writer, also in
    // nested fan-ins.
    void follow(bool on) noexcept override;
    // Ends a wait() of another thread within one slice.
    void interrupt() noexcept { interrupted_.store(true, std::memory_order_release); }
    // Keeps the descriptor readable for holders of copies of both, also after this object is
    // destroyed.
    int wake_fd();
    bool forked_away() const noexcept { return forked(); }

  private:
    static constexpr int kNone = -1;

    struct Source {
        Cursor* cursor = nullptr;  // null: the slot is free
        bool merges = false;       // the cursor is a fan-in itself
        std::string name;
        std::uint32_t rank = 0;  // of the name among all names
        RecordView shown;        // while in the heap
        std::optional<std::uint64_t> end_seq;
        bool over = false;  // before end_seq: neither in the heap nor silent
        Counts counts;
        const Mapping* in_batch = nullptr;  // its mapping that the current batch already holds
        bool has_writer = false;
        std::int64_t ask_writer_ns = 0;  // not checked again before this time
        // Since when a run of its records with timestamps in the future has been held back.
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
    // Whether the top of the heap may be returned now. `look`: checks the silent sources first.
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
    bool park(std::int64_t until_ns);  // false: a signal arrived

    const FanInOptions options_;
    std::vector<Source> sources_;
    std::vector<Entry> heap_;
    std::vector<Slot> silent_;
    std::vector<Slot> by_name_;
    std::size_t merging_ = 0;                                // how many sources are fan-ins
    std::shared_ptr<const std::vector<std::string>> names_;  // by slot; kept by batches
    bool top_consumed_ =
        false;  // the top of the heap was returned: its source must provide its next record
    std::optional<std::uint64_t> last_seq_;
    std::optional<std::int64_t> latest_;  // highest time returned
    // With a limit: the wall clock as last read, and as read before the last check of all silent
    // sources; and since when, by the monotonic clock, the top has been held back.
    std::int64_t wall_ns_ = 0;
    std::int64_t looked_wall_ns_ = 0;
    std::optional<std::int64_t> held_since_ns_;
    bool following_ = false;
    int failed_ = kNone;
    std::exception_ptr gap_;  // thrown once, by the call after the batch that met it
    std::atomic<bool> interrupted_{false};
    std::unique_ptr<Poller> poller_;  // from the first ready_fd() on
};

}  // namespace tapewire
