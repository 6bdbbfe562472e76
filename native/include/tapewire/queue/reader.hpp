// A reader of a queue: a cursor over its segments, with or without a name. Named readers keep a
// committed position and a heartbeat; anonymous ones write nothing.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "tapewire/cursor.hpp"
#include "tapewire/process.hpp"
#include "tapewire/queue/catalog.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/log_end.hpp"
#include "tapewire/queue/reader_meta.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"
#include "tapewire/read_ahead.hpp"
#include "tapewire/ready_fd.hpp"
#include "tapewire/service.hpp"

namespace tapewire::queue {

struct ReaderOptions {
    std::string name;  // empty: anonymous, nothing is written
    bool pinned = false;
    WaitKind wait = WaitKind::spin_then_park;
    std::int64_t wait_ns = 10'000;  // how long to spin, or to sleep between looks
};

struct WriterStatus {
    bool alive = false;
    std::int64_t pid = 0;
    std::uint64_t epoch = 0;
    std::int64_t heartbeat_age_ns = 0;  // since its value last changed, as observed by this process
};

enum class Disconnect { none, lock_lost, heartbeat_stale, segment_missing };

class Reader final : public Cursor, private ForkAware {
  public:
    // Starts at the earliest record; `resume()` and the seeks move it. A segment with a damaged
    // header is not an error here: the reader is then positioned before it, and next() throws until
    // skip_damaged().
    Reader(const std::string& root, const ReaderOptions& options);
    ~Reader() override;

    bool next(RecordView& out) override;
    std::size_t read_batch(BatchColumns& out, std::size_t max_records) override;
    bool peek(RecordView& out) override;
    void pass(const RecordView& shown) noexcept override;
    WaitOutcome wait(std::int64_t max_ns) override;
    int ready_fd() override;
    bool prepare_to_sleep(Bell& bell) override;
    bool has_writer() override;
    bool seek_seq(std::uint64_t seq) override;
    bool seek_time(std::int64_t timestamp_ns) override;
    bool seek_start() override;
    void seek_end() override;
    Skipped skip_damaged() override;

    void filter(std::unique_ptr<TypeFilter> types) noexcept { filter_ = std::move(types); }

    // Moves to after the last committed record of this name; false if it has committed nothing yet.
    bool resume_committed();
    // Writes the position of a new name, so that retention respects it. Completes what the
    // constructor began.
    void register_position();
    void commit();
    std::optional<Position> committed() const;
    Position position() const noexcept { return {segment_.id(), offset_}; }
    std::optional<std::uint64_t> last_seq() const noexcept { return last_seq_; }
    std::uint64_t segment_bytes() const noexcept { return control_.segment_bytes(); }
    const Geometry& geometry() const noexcept { return control_.geometry(); }
    std::uint64_t first_seq() const noexcept { return control_.first_seq(); }
    bool sparse() const;

    WriterStatus writer_status(std::int64_t ttl_ns);
    Disconnect detect_disconnect(std::int64_t ttl_ns);
    bool forked_away() const noexcept { return forked(); }
    void check_usable() const;  // open, not forked, its mappings intact

    // Ends a wait() of another thread within one slice.
    void interrupt() noexcept { interrupted_.store(true, std::memory_order_release); }
    void close(bool forget);

  private:
    static constexpr std::uint64_t kAnySeq = ~std::uint64_t{0};

    class Heartbeat final : public Service::Client {
      public:
        explicit Heartbeat(Reader& reader) : reader_(reader) {}
        std::int64_t run(std::int64_t now) noexcept override;

      private:
        Reader& reader_;
        std::int64_t next_beat_ns_ = 0;
    };

    void on_forked() noexcept override {
        end_ = 0;
        look_to_ = 0;
        read_ahead_.forget_in_child();
    }

    bool look(RecordView& out);       // finds the next record; inline in the hot calls
    bool look_cold(RecordView& out);  // the same, for all other callers
    void pass_unwanted() noexcept;
    bool look_further();
    bool leave_segment();  // at an uncommitted word: to the next segment, or false at the end
    bool passed_over() const;
    bool was_entered(std::uint32_t id) const;
    bool can_park() const noexcept;
    bool nothing_until_rung(std::uint32_t& heard);
    bool look_again(RecordView& out);
    bool progress_made() const noexcept;
    void check_hidden_record() const;
    bool goes_on_after_end();
    void check_passed_by_writer();
    void check_sealed_end() const;
    bool sees_writer();
    [[noreturn]] void throw_lost_end(const LostEnd& lost) const;
    void enter(Segment segment, std::uint64_t offset) noexcept;
    bool enter_id(std::uint32_t id, std::uint64_t offset);
    void stand_before(std::uint32_t id, std::uint64_t offset) noexcept;
    bool come_to(std::uint32_t id, std::uint64_t offset);
    bool is_outside() const noexcept { return !map_; }
    bool enter_awaited();
    void expect_first_number() noexcept;
    bool is_only_prepared(std::uint32_t id) const;
    void note_gap(std::uint64_t seq);
    void watch_heartbeat(std::int64_t now) noexcept;
    bool seek_newest_run(std::uint64_t seq);
    bool settle(std::uint32_t id, std::uint64_t offset, bool from_start = false);
    void stand_on_the_log();
    void pass_unnumbered(std::uint64_t bytes, Position to) noexcept;
    std::optional<Numbering> numbers_here();
    bool has_left() const;
    bool skip_segments(Skipped& skipped);
    void expect_first_of(std::uint32_t id);
    void count_skipped(Skipped& skipped);
    std::optional<LostEnd> lost_here();
    template <class Seek>
    bool or_stay(Seek seek);
    bool find_seq(std::uint64_t seq);
    bool find_time(std::uint64_t timestamp_ns);
    void find_end();
    [[noreturn]] void throw_fault(Fault fault) const;
    [[noreturn]] void throw_segment_missing(std::uint32_t id);

    // Hot.
    const std::byte* base_ = nullptr;
    std::uint64_t offset_ = 0;
    std::uint64_t look_to_ = 0;  // up to here no pages need be requested; 0: take the slow path
    std::uint64_t end_ = 0;      // of the segment
    std::uint64_t expected_ = kAnySeq;
    HeaderSeed seed_;
    std::unique_ptr<TypeFilter> filter_;
    MappingRef map_;

    // Cold.
    // Bytes passed without a record, up to a position, while a sequence number was expected.
    struct Unnumbered {
        std::uint64_t expected = kAnySeq;
        std::uint64_t bytes = 0;
        Position to;
    } unnumbered_;
    Segment segment_;  // unmapped: the reader is positioned before this segment and in none
    std::optional<std::uint64_t> last_seq_;
    Layout layout_;
    ReaderOptions options_;
    Control control_;
    Catalog catalog_;
    std::uint64_t ahead_to_ = 0;       // pages up to here were requested
    std::uint64_t catalog_epoch_ = 0;  // of the writer when the catalog was started
    std::unique_ptr<ReaderMeta> meta_;
    ReadAhead read_ahead_;
    DirectoryLock
        registering_;  // held until the position is written: retention does not run meanwhile
    bool closed_ = false;
    std::atomic<bool> interrupted_{false};
    std::unique_ptr<ReadyFd> ready_;  // from the first ready_fd() on

    // Without a live writer, an end is checked once. True while one is alive: testing its lock
    // takes system calls, so its heartbeat is watched instead.
    std::atomic<bool> writer_lives_{false};
    std::atomic<bool> hint_due_{false};  // the writer's hint must be read again
    std::optional<Position> checked_end_;
    std::uint64_t hint_seen_at_ = 0;  // the reader's offset then; 0: not in this segment yet
    std::uint64_t checked_epoch_ = 0;

    std::atomic<std::uint64_t> heartbeat_seen_{0};
    std::atomic<std::int64_t> heartbeat_since_ns_{0};
    Heartbeat heartbeat_{*this};
};

}  // namespace tapewire::queue
