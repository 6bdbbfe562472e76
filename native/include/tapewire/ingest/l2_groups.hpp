// Groups rows of levels into book events: the rows of one moment become one event.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tapewire/format/market.hpp"
#include "tapewire/market/encode.hpp"

namespace tapewire::ingest {

// LevelRow.snapshot: how a row relates to the rows before it.
enum Belongs : std::int64_t {
    kUpdate = 0,    // changes the book
    kSnapshot = 1,  // after an update: clears the book first; after a snapshot row: adds to it
    kWhole = 2,     // the rows of one line are a complete book, whatever came before
    kChange = 3,    // changes the book; the rows of one line are an event, whatever their times
};

// One level of a row of the file.
struct LevelRow {
    std::int64_t ingest_ns;
    std::int64_t exchange_ns;
    std::int64_t native_seq;
    std::int64_t snapshot;  // Belongs
    std::int64_t side;      // 0 bid, 1 ask, -1 neither: the event exists, without this level
    std::int64_t price;
    std::int64_t size;  // absolute; 0 removes the level
    std::int64_t line;
};

static_assert(sizeof(LevelRow) == 64);

// Collects the rows of one instrument. Consecutive rows with the same two times and the same
// `snapshot` form one event, with kWhole and kChange only those of one line; its levels are in the
// order of the rows. The first event of a run of snapshot rows is an L2 snapshot, all others are
// diffs of absolute sizes without update ids. A side of more than 65,535 levels continues in
// another diff.
class L2Grouper {
  public:
    static constexpr std::size_t kMaxLevels = 65'535;

    L2Grouper(std::uint16_t venue_id, std::uint32_t market_id, std::uint8_t price_scale,
              std::uint8_t size_scale);

    // Appends the events that these rows complete to those not taken yet.
    void add(const LevelRow* rows, std::size_t n);
    void finish();  // no rows follow: the last event is complete

    // The events not taken yet: concatenated payloads, the end of each, the time of each.
    const std::vector<std::byte>& payloads() const noexcept { return payloads_; }
    const std::vector<std::uint64_t>& ends() const noexcept { return ends_; }
    const std::vector<std::int64_t>& timestamps_ns() const noexcept { return timestamps_ns_; }
    // The lines of the first and the last row of each.
    const std::vector<std::int64_t>& lines() const noexcept { return lines_; }
    const std::vector<std::int64_t>& last_lines() const noexcept { return last_lines_; }
    // The line of the first row of the event being collected; 0 if there is none.
    std::int64_t open_line() const noexcept { return collecting_ ? open_.line : 0; }
    void take() noexcept;

  private:
    void emit();
    bool continues(const LevelRow& row) const noexcept;

    market::EventHead head_;
    LevelRow open_{};  // the first row of the event being collected, or of the last one
    bool collecting_ = false;
    bool starts_snapshot_ = false;
    std::vector<format::Level> bids_;
    std::vector<format::Level> asks_;
    std::vector<std::byte> payloads_;
    std::vector<std::uint64_t> ends_;
    std::vector<std::int64_t> timestamps_ns_;
    std::vector<std::int64_t> lines_;
    std::vector<std::int64_t> last_lines_;
    std::int64_t last_line_ = 0;  // of the latest row of the event being collected
};

}  // namespace tapewire::ingest
