// The available features, their meanings and their look-backs.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tapewire::replay {

enum class FeatureKind : std::uint8_t {
    bid,
    ask,
    bid_size,
    ask_size,
    mid,
    spread,
    spread_bps,
    microprice,
    imbalance,  // N levels
    bid_depth,  // N levels
    ask_depth,  // N levels
    ofi,
    trade_sign,
    trade_price,
    trade_size,
    trade_flow,  // over a span
    volume,      // over a span
    vwap,        // over a span
    volatility,  // over a span of whole seconds
    time_since_trade,
};

enum class Takes : std::uint8_t { nothing, levels, span };

// One row of the output of `describe_features`.
struct FeatureInfo {
    FeatureKind kind;
    Takes takes;
    std::string_view name;  // without N or span
    std::string_view meaning;
    std::string_view formula;
    std::string_view unit;
    std::string_view look_back;
    std::string_view missing;  // when the value is null
};
std::span<const FeatureInfo> feature_infos() noexcept;

struct Feature {
    FeatureKind kind;
    std::uint32_t levels = 0;
    std::int64_t span_ns = 0;
};

// When rows are made. The replay time is the highest timestamp of the records so far.
struct Sample {
    enum class At : std::uint8_t {
        event,  // after each book event and each trade: the state after it
        trade,  // at each trade: the state just before it
        grid,   // at multiples of the span since the epoch: the state just before each
    };
    At at = At::event;
    std::int64_t span_ns = 0;  // of a grid
};

// A trade is forgotten after this time unless a span specifies otherwise.
inline constexpr std::int64_t kTradeMemoryNs = 3'600'000'000'000;
// Order flow up to a trade restarts at whole minutes.
inline constexpr std::int64_t kFlowAnchorNs = 60'000'000'000;
// Volatility samples the mid price at whole seconds.
inline constexpr std::int64_t kSecondNs = 1'000'000'000;
inline constexpr std::int64_t kLongestSpanNs = 86'400'000'000'000;
inline constexpr std::uint32_t kMostLevels = 65'535;

// Both throw invalid_option, with the possible values as the hint.
Feature parse_feature(std::string_view name);
Sample parse_sample(std::string_view text);
// "100ms", "1s", "5m": a whole number of us, ms, s, m, h or d, at most a day.
std::int64_t parse_span(std::string_view text);

// Nothing before `time - look_back_ns` affects a row at `time`, except through the book, which a
// snapshot contains.
std::int64_t look_back_ns(const Feature& feature, const Sample& sample) noexcept;

}  // namespace tapewire::replay
