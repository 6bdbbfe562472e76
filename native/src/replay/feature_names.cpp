#include "tapewire/replay/feature_names.hpp"

#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "tapewire/error.hpp"

namespace tapewire::replay {

namespace {

constexpr std::string_view kNoBook = "the book is untrusted";
constexpr std::string_view kNoSide = "the book is untrusted, or that side is empty";
constexpr std::string_view kNoSides = "the book is untrusted, or a side is empty";
constexpr std::string_view kBookState = "0: a function of the book";
constexpr std::string_view kHour = "1 h";
constexpr std::string_view kSpan = "the span";
constexpr std::string_view kNoTrade = "no trade in the last hour";

constexpr auto kInfos = std::to_array<FeatureInfo>({
    {FeatureKind::bid, Takes::nothing, "bid", "best bid price", "Pb", "price", kBookState, kNoSide},
    {FeatureKind::ask, Takes::nothing, "ask", "best ask price", "Pa", "price", kBookState, kNoSide},
    {FeatureKind::bid_size, Takes::nothing, "bid_size", "size at the best bid", "Qb", "size",
     kBookState, kNoSide},
    {FeatureKind::ask_size, Takes::nothing, "ask_size", "size at the best ask", "Qa", "size",
     kBookState, kNoSide},
    {FeatureKind::mid, Takes::nothing, "mid", "middle of the best prices", "(Pb + Pa) / 2", "price",
     kBookState, kNoSides},
    {FeatureKind::spread, Takes::nothing, "spread",
     "distance of the best prices; below 0 when crossed", "Pa - Pb", "price", kBookState, kNoSides},
    {FeatureKind::spread_bps, Takes::nothing, "spread_bps", "spread in basis points of the mid",
     "20000 (Pa - Pb) / (Pa + Pb)", "1/10000", kBookState,
     "the book is untrusted, a side is empty, or the mid is not above 0"},
    {FeatureKind::microprice, Takes::nothing, "microprice",
     "best prices weighted by the size of the other side", "(Pb Qa + Pa Qb) / (Qb + Qa)", "price",
     kBookState, kNoSides},
    {FeatureKind::imbalance, Takes::levels, "imbalance",
     "sizes of the best N levels, bids against asks; 1 or -1 when one side is empty",
     "(B - A) / (B + A), B and A: sums of N sizes", "-1 … 1", kBookState,
     "the book is untrusted, or both sides are empty"},
    {FeatureKind::bid_depth, Takes::levels, "bid_depth",
     "size of the best N bid levels; 0 when empty", "sum of N sizes", "size", kBookState, kNoBook},
    {FeatureKind::ask_depth, Takes::levels, "ask_depth",
     "size of the best N ask levels; 0 when empty", "sum of N sizes", "size", kBookState, kNoBook},
    {FeatureKind::ofi, Takes::nothing, "ofi",
     "order-flow imbalance at the best prices: event, of this event; grid, since the previous grid "
     "point; trade, since the previous trade or whole minute, whichever is later",
     "sum of [Pb >= Pb'] Qb - [Pb <= Pb'] Qb' - [Pa <= Pa'] Qa + [Pa >= Pa'] Qa', ' = before the "
     "event",
     "size", "event: 0; grid: its span; trade: 1 m", "the book was untrusted at some time of that"},
    {FeatureKind::trade_sign, Takes::nothing, "trade_sign",
     "who took the last trade (at trades: this one): 1 the buyer, -1 the seller, 0 not known",
     "sign", "-1, 0, 1", kHour, kNoTrade},
    {FeatureKind::trade_price, Takes::nothing, "trade_price", "price of that trade", "p", "price",
     kHour, kNoTrade},
    {FeatureKind::trade_size, Takes::nothing, "trade_size", "size of that trade", "q", "size",
     kHour, kNoTrade},
    {FeatureKind::trade_flow, Takes::span, "trade_flow", "signed size of the trades of the span",
     "sum of sign q", "size", kSpan, "never: 0 without trades"},
    {FeatureKind::volume, Takes::span, "volume", "size of the trades of the span", "sum of q",
     "size", kSpan, "never: 0 without trades"},
    {FeatureKind::vwap, Takes::span, "vwap",
     "mean price of the trades of the span, weighted by size", "sum of p q / sum of q", "price",
     kSpan, "no trade in the span, or a volume beyond 2^126 / 10^scale"},
    {FeatureKind::volatility, Takes::span, "volatility",
     "realised volatility: of the mid at whole seconds, not annualised",
     "sqrt(sum of r^2), r = ln(mid / mid a second before), in steps of 2^-48", "log return",
     "the span and 1 s",
     "the mid was not above 0, or not known, at a whole second of the look-back"},
    {FeatureKind::time_since_trade, Takes::nothing, "time_since_trade",
     "time since the last trade (at trades: since the one before)", "t - t'", "s", kHour, kNoTrade},
});

struct Unit {
    std::string_view text;
    std::int64_t ns;
};
constexpr auto kUnits = std::to_array<Unit>({{"us", 1'000},
                                             {"ms", 1'000'000},
                                             {"s", kSecondNs},
                                             {"m", 60 * kSecondNs},
                                             {"h", 3'600 * kSecondNs},
                                             {"d", 86'400 * kSecondNs}});

[[noreturn]] void refuse(const std::string& what, std::string hint) {
    throw Error(Errc::invalid_option, what, {}, -1, std::move(hint));
}

// An integer from 1 without leading zeros, so that a feature has one name; and the text after it.
std::optional<std::pair<std::uint32_t, std::string_view>> number_at_start(std::string_view text) {
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc{} || number == 0 || text[0] == '0') return std::nullopt;
    return std::pair{number, text.substr(static_cast<std::size_t>(end - text.data()))};
}

std::optional<std::int64_t> span_of(std::string_view text) {
    const auto number = number_at_start(text);
    if (!number) return std::nullopt;
    for (const Unit& unit : kUnits) {
        if (number->second != unit.text) continue;
        if (number->first > kLongestSpanNs / unit.ns) return std::nullopt;
        return number->first * unit.ns;
    }
    return std::nullopt;
}

constexpr const char* kSpanHint =
    "a span is an integer with us, ms, s, m, h or d, at most a day: 100ms, 1s, 5m";

std::string known_names() {
    std::string text = "available:";
    for (const FeatureInfo& info : kInfos) {
        text += ' ';
        text += info.name;
        if (info.takes == Takes::levels) text += 'N';
        if (info.takes == Takes::span) text += "_SPAN";
    }
    return text + "; N is a number of levels, SPAN a time span, as in imbalance5 and vwap_1m";
}

std::optional<Feature> parsed(const FeatureInfo& info, std::string_view rest) {
    if (info.takes == Takes::nothing) {
        return rest.empty() ? std::optional(Feature{info.kind}) : std::nullopt;
    }
    if (info.takes == Takes::levels) {
        const auto number = number_at_start(rest);
        if (!number || !number->second.empty() || number->first > kMostLevels) return std::nullopt;
        return Feature{info.kind, number->first};
    }
    if (!rest.starts_with('_')) return std::nullopt;
    const auto span = span_of(rest.substr(1));
    if (!span) return std::nullopt;
    if (info.kind == FeatureKind::volatility && *span % kSecondNs != 0) return std::nullopt;
    return Feature{info.kind, 0, *span};
}

}  // namespace

std::span<const FeatureInfo> feature_infos() noexcept { return kInfos; }

std::int64_t parse_span(std::string_view text) {
    const auto span = span_of(text);
    if (!span) refuse("invalid span: span='" + std::string(text) + "'", kSpanHint);
    return *span;
}

Feature parse_feature(std::string_view name) {
    for (const FeatureInfo& info : kInfos) {
        if (!name.starts_with(info.name)) continue;
        if (const auto feature = parsed(info, name.substr(info.name.size()))) return *feature;
    }
    std::string hint = known_names();
    if (name.starts_with("volatility_")) hint = "volatility needs a span of whole seconds: 30s, 5m";
    refuse("unknown feature: name='" + std::string(name) + "'", std::move(hint));
}

Sample parse_sample(std::string_view text) {
    if (text == "event") return {Sample::At::event, 0};
    if (text == "trade") return {Sample::At::trade, 0};
    const auto span = span_of(text);
    if (!span) {
        refuse("sample must be event, trade or a time span: sample='" + std::string(text) + "'",
               kSpanHint);
    }
    return {Sample::At::grid, *span};
}

std::int64_t look_back_ns(const Feature& feature, const Sample& sample) noexcept {
    switch (feature.kind) {
        case FeatureKind::ofi:
            if (sample.at == Sample::At::grid) return sample.span_ns;
            return sample.at == Sample::At::trade ? kFlowAnchorNs : 0;
        case FeatureKind::trade_sign:
        case FeatureKind::trade_price:
        case FeatureKind::trade_size:
        case FeatureKind::time_since_trade:
            return kTradeMemoryNs;
        case FeatureKind::trade_flow:
        case FeatureKind::volume:
        case FeatureKind::vwap:
            return feature.span_ns;
        case FeatureKind::volatility:
            return feature.span_ns + kSecondNs;
        default:
            return 0;
    }
}

}  // namespace tapewire::replay
