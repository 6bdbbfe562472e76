// The features of one instrument: updated with each record, sampled for each row.
//
// A row at time t is a function of the book at t and of the events in the look-back before it, in
// exact integers. It is bit-identical wherever the replay began, provided it began early enough:
// see look_back_ns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/market/event.hpp"
#include "tapewire/replay/exact.hpp"
#include "tapewire/replay/feature_names.hpp"
#include "tapewire/replay/feature_rows.hpp"
#include "tapewire/replay/level_rows.hpp"
#include "tapewire/replay/state_bytes.hpp"
#include "tapewire/replay/windows.hpp"

namespace tapewire::replay {

// The requested features, in column order; shared by all instruments of a replay.
struct FeaturePlan {
    // `kept_trades_ns`: spans of which the trades themselves are needed. Throws invalid_option for
    // names that are unknown or duplicated, and for too many levels.
    FeaturePlan(const std::vector<std::string>& names, const std::string& sample,
                const std::vector<std::int64_t>& kept_trades_ns, const LevelsWanted& best = {});

    struct Column {
        Feature feature;
        std::size_t window;  // index of its span among those of its kind, or of its level count
    };
    std::vector<std::string> names;
    std::string sample_text;
    std::vector<Column> columns;
    Sample sample;
    std::vector<std::int64_t> trade_spans_ns;
    std::vector<std::size_t> kept_trades;  // windows of kept_trades_ns, in its order
    std::vector<std::int64_t> volatility_seconds;
    std::vector<std::uint32_t> level_counts;  // ascending
    std::vector<std::uint32_t> level_steps;   // from each to the next, the first from 0; then 0
    LevelsWanted levels;                      // of the book itself
    std::int64_t look_back_ns = 0;            // the longest
};

class FeatureSet {
  public:
    // Scales of the trades; a trade with another scale is converted exactly, or rejected.
    FeatureSet(std::shared_ptr<const FeaturePlan> plan, std::uint8_t price_scale,
               std::uint8_t size_scale);

    // The replay is at `time_ns` with this book; null: there is none yet.
    void start(const book::Book* book, std::int64_t time_ns);

    // Time passes with everything unchanged, up to just before the events at `time_ns`. Times must
    // not decrease.
    void advance(std::int64_t time_ns);
    // Called after an event, with the new state of the book.
    void on_book(const book::Book& book);
    // Throws corrupt_record for a trade that would overflow a sum.
    void on_trade(const market::TradeView& trade);

    // Writes a value for each column. Call after advance(), with the book last passed to on_book.
    // `own`: the trade that the row is made for, not yet passed to on_trade.
    void sample(const book::Book* book, const market::TradeView* own,
                const FeatureRows::Cells& cells);
    // A row was made, or would have been if it were wanted.
    void sampled() noexcept;

    // The trades of kept_trades[i], oldest first.
    std::size_t trade_count(std::size_t i) const noexcept {
        return trades_.count(plan_->kept_trades[i]);
    }
    const Print& trade(std::size_t i, std::size_t row) const noexcept {
        return trades_.at(plan_->kept_trades[i], row);
    }
    std::uint8_t price_scale() const noexcept { return price_scale_; }
    std::uint8_t size_scale() const noexcept { return size_scale_; }

    void save(StateWriter& out) const;
    void load(StateReader& in);

  private:
    // An empty side has a price beyond all others, and size 0.
    struct Top {
        format::Level bid{std::numeric_limits<std::int64_t>::min(), 0};
        format::Level ask{std::numeric_limits<std::int64_t>::max(), 0};
        bool has_bid = false, has_ask = false;
        bool trusted = false;

        bool has_both() const noexcept { return has_bid && has_ask; }
        Int128 sum() const noexcept { return static_cast<Int128>(bid.price) + ask.price; }
        Int128 spread() const noexcept { return static_cast<Int128>(ask.price) - bid.price; }
    };
    static Top top_of(const book::Book* book) noexcept;
    static Int128 flow_between(const Top& before, const Top& now) noexcept;
    void begin_flow() noexcept;
    void sum_levels(const book::Book& book);
    Int128 doubled_mid() const noexcept;  // 0: unknown, or not above 0
    Print print_of(const market::TradeView& trade) const;
    bool fits_doubles() const noexcept;
    template <typename Number>
    void row_of(const Print* last, std::int64_t since_ns,
                const FeatureRows::Cells& cells) const noexcept;
    bool trade_value(const FeaturePlan::Column& column, const Print* last, std::int64_t since_ns,
                     double& out) const noexcept;

    std::shared_ptr<const FeaturePlan> plan_;
    std::uint8_t price_scale_, size_scale_;            // of trades
    std::uint8_t book_price_scale_, book_size_scale_;  // of the book
    std::int64_t time_ns_ = 0;
    Top top_;
    Int128 flow_ = 0;
    bool flow_known_ = false;
    std::int64_t flow_minute_ = 0;
    bool traded_ = false;
    Print last_{};
    TradeWindows trades_;
    ReturnWindows returns_;
    std::vector<Int128> bid_depths_, ask_depths_;  // by level_counts, of the book being sampled
};

}  // namespace tapewire::replay
