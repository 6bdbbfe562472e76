// Replay: drives a cursor over one log, or a FanIn over many, keeps a book for each instrument, and
// returns the effect of each record.
//
// The clock is the replay time: the highest timestamp of the records so far. It never goes back,
// and no other clock is read: the same records give the same steps and the same books in every
// process and at any time.
//
// The caller owns the cursor and must not move it meanwhile. It is positioned before the first
// record that was not returned.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/cursor.hpp"
#include "tapewire/market/event.hpp"
#include "tapewire/xxhash.hpp"

namespace tapewire::replay {

// One instrument. Its address does not change during the life of the engine.
struct Market {
    std::uint32_t index = 0;  // in the order of first appearance
    std::uint16_t venue_id = 0;
    std::uint32_t market_id = 0;
    std::uint64_t symbol_hash = 0;         // XXH64 of "venue:symbol"; 0 = unknown
    std::optional<book::Options> options;  // of its book; empty: the scales of its first event
    std::shared_ptr<book::Book> book;      // null before the first book event
    bool scales_known = true;              // false: no event of the book had scales yet

    // The book was loaded from a snapshot: it already contains the records of `warm_source` up to
    // this sequence number, and those of other logs up to this time.
    std::uint16_t warm_source = 0;
    std::optional<std::uint64_t> warm_seq;
    std::int64_t warm_ns = 0;

    bool changed = false;                // since saved() was called
    std::uint64_t rebuild_from = 0;      // the first record to read to rebuild this book
    std::vector<std::uint16_t> sources;  // of its book events

    std::uint64_t key() const noexcept { return (std::uint64_t{venue_id} << 32) | market_id; }
};

// Records that are missing from a log or cannot be read.
struct TapeGap {
    enum class Cause : std::uint8_t { missing, damaged, unreadable };
    Cause cause = Cause::missing;
    bool counted = true;  // false: the count is unknown; first = last = the next sequence number
    std::uint64_t first = 0, last = 0;
    std::uint64_t seq = 0;  // of the last record returned before it, in that log
    std::int64_t timestamp_ns = 0;
    std::uint16_t source = 0;
    std::vector<Market*> markets;  // whose books are untrusted since then
};

enum class Kind : std::uint8_t { book, trade, quote, other, gap };

struct Step {
    Kind kind = Kind::other;
    book::Applied applied = book::Applied::unchanged;  // if kind is book
    std::uint16_t source = 0;                          // the FanIn's slot; 0 for a single log
    RecordView record;                                 // if kind is gap: without payload
    std::int64_t time_ns = 0;                          // the replay time
    Market* market = nullptr;                          // null: none, or unknown
    book::Book* book = nullptr;    // of the instrument; null before its first event
    market::TradeView trade{};     // if kind is trade
    const TapeGap* gap = nullptr;  // if kind is gap; valid until the next call
};

struct EngineOptions {
    book::GapPolicy on_gap = book::GapPolicy::resync;
    book::Unknown unknown = book::Unknown::distrust;
    bool only_added =
        false;  // skip instruments that were not add()ed, and records without an instrument
    bool skip_damaged = false;  // false: damage throws, on each call, until the cursor skips it
    // Records before the replay reaches this time are applied but not returned.
    std::int64_t show_from_ns = std::numeric_limits<std::int64_t>::min();
    // The same by sequence number, for a single log. A gap is treated as the record before it.
    std::uint64_t show_from_seq = 0;
    // Ends before the first record at which the replay reaches this time.
    std::int64_t end_ns = std::numeric_limits<std::int64_t>::max();
    // For a single log: ends before the first record with a sequence number of `end_seq` or higher.
    // A FanIn has its own ends.
    bool ends_at_seq = false;
    std::uint64_t end_seq = 0;
};

// When run() stops: after the record that reaches one of these limits.
struct Limits {
    std::uint64_t records = std::numeric_limits<std::uint64_t>::max();
    std::uint64_t bytes = std::numeric_limits<std::uint64_t>::max();  // of log, headers included
    std::int64_t until_ns = std::numeric_limits<std::int64_t>::max();
    bool at_roll = false;       // the first record of another segment
    bool at_gap = false;        // records are missing, or the trust in a book has changed
    std::int64_t slice_ns = 0;  // of wall clock; 0: no limit
};
enum class Stop : std::uint8_t { end, records, bytes, time, roll, gap, slice };

class Engine {
  public:
    Engine(Cursor& cursor, const EngineOptions& options);

    // Adds an instrument; to be called before the first record.
    Market& add(std::uint16_t venue_id, std::uint32_t market_id, std::uint64_t symbol_hash = 0,
                std::optional<book::Options> options = {});
    // Sets its book as of record `seq` of `source`, whose time was `timestamp_ns`.
    void warm(Market& market, std::shared_ptr<book::Book> book, std::uint16_t source,
              std::uint64_t seq, std::int64_t timestamp_ns);
    // The current book has been saved to disk and can be loaded from there.
    void saved(Market& market) noexcept;
    // `source` begins after missing records: the books read from it are untrusted.
    void lost_before(std::uint16_t source, std::uint64_t first, std::uint64_t last);

    // Sets a new end: before the first record at which the replay reaches this time.
    void end_at(std::int64_t end_ns) noexcept { options_.end_ns = end_ns; }
    // After an end by time: the replay time at the record before which it ended, and the sequence
    // number of that record; empty if there is no such record now, or the end is by sequence
    // number.
    std::optional<std::int64_t> ahead_ns() const noexcept { return ahead_ns_; }
    std::uint64_t ahead_seq() const noexcept { return ahead_seq_; }
    // It ended before EngineOptions::end_seq, or every source of the FanIn before its own.
    bool ended_by_seq() const noexcept { return ended_by_seq_; }

    // The next step; false at the current end. Throws what the cursor throws, and gap_detected with
    // GapPolicy::raise: then the record has been consumed, and the next call continues after it.
    bool next(Step& out);
    enum class Found : std::uint8_t { step, end, pause };
    // The same, but returns `pause` after `max_passed` records that are not shown.
    Found advance(Step& out, std::uint64_t max_passed);
    // Applies records without returning them.
    Stop run(const Limits& limits);

    std::uint64_t records() const noexcept { return records_; }  // returned or skipped
    std::uint64_t events() const noexcept { return events_; }    // book events applied
    std::uint64_t bytes() const noexcept { return bytes_; }
    std::uint64_t rolls() const noexcept { return rolls_; }  // from one segment to another
    std::optional<std::uint64_t> last_seq() const noexcept { return last_seq_; }
    std::int64_t last_timestamp_ns() const noexcept { return last_timestamp_ns_; }
    std::int64_t clock_ns() const noexcept { return clock_ns_; }
    std::uint64_t gap_changes() const noexcept { return gap_changes_; }
    // The end set in EngineOptions was reached: no more steps follow, whatever is appended.
    bool finished() const noexcept { return finished_; }

    const std::vector<std::unique_ptr<Market>>& markets() const noexcept { return markets_; }
    const std::vector<TapeGap>& tape_gaps() const noexcept { return tape_gaps_; }
    // A hash of all books, by venue and market: XXH3-128 of venue_id u32, market_id u32 and the
    // book's hash.
    Hash128 hash() const;

  private:
    enum class Taken : std::uint8_t { shown, passed };

    bool is_at_end(const RecordView& record) noexcept;
    bool is_shown() const noexcept;
    bool is_known(const Market& market, const RecordView& record,
                  std::uint16_t source) const noexcept;
    bool peek(RecordView& record, Step& out, bool& gap);
    Taken take(const RecordView& record, Step& out);
    Taken take_book(const RecordView& record, Step& out);
    bool take_unreadable(const RecordView& record, Step& out);
    Market* market_of_event(const RecordView& record);
    Market* market_of_symbol(std::uint64_t symbol_hash, std::uint32_t market_id) const noexcept;
    void make_book(Market& market, const market::BookEvent& event, std::uint16_t source);
    void apply(Market& market, const market::BookEvent& event, const RecordView& record, Step& out);
    void note_gap(TapeGap gap, Market* only);
    void distrust(Market& market, const TapeGap& gap);
    void show_gap(Step& out);
    std::uint16_t failed_source() const noexcept;

    Cursor& cursor_;
    EngineOptions options_;
    std::vector<std::unique_ptr<Market>> markets_;
    std::unordered_map<std::uint64_t, Market*> by_key_;
    std::unordered_map<std::uint64_t, Market*> by_symbol_;
    std::unordered_map<std::uint32_t, Market*> by_market_id_;  // null: used by several venues
    Market* last_market_ = nullptr;  // of the last book event: most logs have one
    market::BookEvent event_;        // reused: clearing it each time would cost as much as the rest
    std::vector<TapeGap> tape_gaps_;
    struct Given {
        std::uint64_t seq;
        std::int64_t timestamp_ns;
    };
    std::vector<std::optional<Given>> given_;  // by source: its last record
    const Mapping* segment_ = nullptr;         // that contains the last record
    std::uint64_t records_ = 0, events_ = 0, bytes_ = 0, rolls_ = 0, gap_changes_ = 0;
    bool finished_ = false, ended_by_seq_ = false;
    std::optional<std::uint64_t> last_seq_;
    std::int64_t last_timestamp_ns_ = 0;
    std::int64_t clock_ns_ = std::numeric_limits<std::int64_t>::min();
    std::optional<std::int64_t> ahead_ns_;
    std::uint64_t ahead_seq_ = 0;
};

}  // namespace tapewire::replay
