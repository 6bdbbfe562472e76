// One loop over a replay that makes rows: of features, and of the best levels of books.
//
//   warm   start_ns          from_ns               to_ns
//   ~~~~~~~~|-- look-back -----|===== rows =========|      books are kept from the beginning, windows from
//                                                          start_ns = from_ns - look-back
//
// What is kept at start_ns is the books alone: every other state has been built by then as in a
// loop that began earlier. A row of a grid stands for the moment just before it, and is made when
// the tape reaches it: for every point behind the first record of the tape and not behind the last.
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
    std::int64_t start_ns =
        std::numeric_limits<std::int64_t>::min();  // lowest: the tape's beginning
    std::int64_t from_ns = std::numeric_limits<std::int64_t>::min();
    std::int64_t to_ns = std::numeric_limits<std::int64_t>::max();
    // Rows that records from this number on bring about: those of a grid are its who reaches the
    // point.
    std::uint64_t from_seq = 0;
    std::int64_t first_ns = 0;  // time of the tape's first record; where start_ns is not the lowest
    // Rows of a grid are for every instrument that was added; else for each from its first record
    // on.
    bool for_all_added = false;
};

class FeatureLoop {
  public:
    // The engine is fresh, with the instruments added and warmed, and its cursor where it is to
    // begin. It belongs to somebody else, who leaves it alone.
    FeatureLoop(Engine& engine, std::shared_ptr<const FeaturePlan> plan, const FeatureSlice& slice);

    enum class Stop : std::uint8_t {
        rows,   // `rows` has as many as it may
        pause,  // `max_records` were read: look after signals, and go on
        end,    // nothing more is there now
        done,   // the slice is over
    };
    // Throws what the engine throws; the row under way is not made then.
    Stop run(FeatureRows& rows, std::size_t max_rows, std::uint64_t max_records);

    // Of the last row: what a user's function sees.
    const Market* row_market() const noexcept { return row_market_; }
    const FeatureSet* row_features() const noexcept { return row_features_; }

    // Where each source stands, by its name: behind the record of this number, or none of it was
    // read.
    struct Position {
        std::string source;
        std::optional<std::uint64_t> last_seq;
    };
    // All there is to know to go on in another process; between two rows. Of an untrusted book with
    // the diffs that wait for its snapshot, at most WaitingDiffs::kMaxBytes.
    void save(const std::vector<Position>& positions, std::vector<std::byte>& out);
    // Before the first run(), of a loop with the same plan over the same sources, which stand as
    // positions_in() says. `sources`: their names by place, where others came between them since.
    // Throws corrupt_metadata, unsupported_version, or invalid_option when the state is of another
    // plan, or of a source that is not there.
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
    // `trade`: the one to sample, of trade samples.
    void make_row(FeatureRows& rows, const Market& market, FeatureSet& set, std::int64_t time_ns,
                  const market::TradeView* trade);
    bool pass_grid(FeatureRows& rows, std::size_t max_rows);
    void load_market(StateReader& in, std::size_t index, const std::vector<std::uint16_t>& places);

    Engine& engine_;
    std::shared_ptr<const FeaturePlan> plan_;
    FeatureSlice slice_;
    bool started_ = false;
    std::int64_t time_ns_ =
        std::numeric_limits<std::int64_t>::min();  // the tape's, or what it reaches
    std::uint64_t seq_ = 0;  // of the record that brings about what is made now
    std::int64_t next_grid_ns_ = std::numeric_limits<std::int64_t>::max();
    std::size_t grid_market_ = 0;  // rows of next_grid_ns_ are made up to this instrument
    std::vector<std::unique_ptr<FeatureSet>> sets_;  // by Market::index
    // A trade that was sampled and not counted yet: its row may still be looked at.
    FeatureSet* pending_ = nullptr;
    market::TradeView trade_{};
    const Market* row_market_ = nullptr;
    const FeatureSet* row_features_ = nullptr;
    std::vector<double> values_;
    std::vector<std::uint8_t> valid_;
};

}  // namespace tapewire::replay
