// A single loop over a replay that makes rows of features and rows of the best levels of books.
//
//   warm   start_ns          from_ns               to_ns
//   ~~~~~~~~|-- look-back -----|===== rows =========|   books are kept from the beginning,
//                                                       windows from start_ns = from_ns - look-back
//
// Only the books carry over from before start_ns: all other state has been rebuilt by from_ns, as
// in a loop that began earlier. A row of a grid describes the moment just before its point and is
// made when the replay reaches the point: for every point after the first record and not after the
// last.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "tapewire/replay/engine.hpp"
#include "tapewire/replay/feature_rows.hpp"
#include "tapewire/replay/features.hpp"

namespace tapewire::replay {

struct FeatureSlice {
    std::int64_t start_ns = std::numeric_limits<std::int64_t>::min();  // lowest: the beginning
    std::int64_t from_ns = std::numeric_limits<std::int64_t>::min();
    std::int64_t to_ns = std::numeric_limits<std::int64_t>::max();
    // Rows caused by records from this sequence number on; a row of a grid is caused by the record
    // that reaches its point.
    std::uint64_t from_seq = 0;
    std::int64_t first_ns = 0;  // time of the log's first record; required if start_ns is set
    // Rows of a grid are made for every instrument that was added; otherwise for each from its
    // first record on.
    bool for_all_added = false;
};

class FeatureLoop {
  public:
    // The engine is new, with its instruments added and warmed and its cursor at the start. The
    // caller owns it and must not use it meanwhile.
    FeatureLoop(Engine& engine, std::shared_ptr<const FeaturePlan> plan, const FeatureSlice& slice);

    enum class Stop : std::uint8_t {
        rows,   // `rows` is full
        pause,  // `max_records` were read: handle signals, then call again
        end,    // no more records at the moment
        done,   // the end of the slice was reached
    };
    // Throws what the engine throws; the current row is not made then.
    Stop run(FeatureRows& rows, std::size_t max_rows, std::uint64_t max_records);

    // Of the last row: passed to a user's function.
    const Market* row_market() const noexcept { return row_market_; }
    const FeatureSet* row_features() const noexcept { return row_features_; }

    // The position of each source, by name: after the record with this sequence number; empty if
    // none was read.
    struct Position {
        std::string source;
        std::optional<std::uint64_t> last_seq;
    };
    // Everything needed to resume in another process; call between two rows. Includes, for an
    // untrusted book, the diffs that wait for its snapshot, at most WaitingDiffs::kMaxBytes.
    void save(const std::vector<Position>& positions, std::vector<std::byte>& out);
    // Call before the first run(), on a loop with the same plan over the same sources, positioned
    // as positions_in() returns. `sources`: their names by slot, if sources were added in between.
    // Throws corrupt_metadata, unsupported_version, or invalid_option if the state belongs to
    // another plan, or to a source that does not exist.
    void load(std::span<const std::byte> state, const std::vector<std::string>& sources = {});
    static std::vector<Position> positions_in(std::span<const std::byte> state);

  private:
    template <typename Work>
    void locate(Work work);
    bool warm_up(std::uint64_t max_records, Stop& stop);
    void begin_at(std::int64_t time_ns, std::int64_t first_ns);
    FeatureSet& make_set(const Market& market, const market::TradeView* trade);
    FeatureSet& set_of(const Market& market, const market::TradeView* trade);
    void feed(const Step& step, FeatureRows& rows);
    void feed_gap(const TapeGap& gap);
    void apply_pending();
    // `trade`: the trade to sample, with trade sampling.
    void make_row(FeatureRows& rows, const Market& market, FeatureSet& set, std::int64_t time_ns,
                  const market::TradeView* trade);
    bool pass_grid(FeatureRows& rows, std::size_t max_rows);
    void load_market(StateReader& in, std::size_t index, const std::vector<std::uint16_t>& places);

    Engine& engine_;
    std::shared_ptr<const FeaturePlan> plan_;
    FeatureSlice slice_;
    bool started_ = false;
    std::int64_t time_ns_ =
        std::numeric_limits<std::int64_t>::min();  // the replay time, or the time being reached
    std::uint64_t seq_ = 0;                        // of the record that causes the rows made now
    std::int64_t next_grid_ns_ = std::numeric_limits<std::int64_t>::max();
    std::size_t grid_market_ = 0;  // rows of next_grid_ns_ are done up to this instrument
    std::vector<std::unique_ptr<FeatureSet>> sets_;  // by Market::index
    // A trade that was sampled but not added yet: its row may still be read.
    FeatureSet* pending_ = nullptr;
    market::TradeView trade_{};
    const Market* row_market_ = nullptr;
    const FeatureSet* row_features_ = nullptr;
};

}  // namespace tapewire::replay
