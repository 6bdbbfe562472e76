#include "tapewire/replay/features.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <type_traits>
#include <utility>

#include "tapewire/error.hpp"

namespace tapewire::replay {

namespace {

template <typename T>
std::size_t place_of(std::vector<T>& values, T value) {
    const auto found = std::find(values.begin(), values.end(), value);
    if (found == values.end()) values.push_back(value);
    return static_cast<std::size_t>(std::find(values.begin(), values.end(), value) -
                                    values.begin());
}

// Converts to another scale, exactly.
std::int64_t rescaled(std::int64_t value, std::uint8_t from, std::uint8_t to, const char* what) {
    if (from == to) return value;
    if (from < to) {
        std::int64_t out = 0;
        const auto factor = static_cast<std::int64_t>(power_of_ten(to - from));
        if (!__builtin_mul_overflow(value, factor, &out)) return out;
    } else {
        const auto factor = static_cast<std::int64_t>(power_of_ten(from - to));
        if (value % factor == 0) return value / factor;
    }
    throw Error(Errc::corrupt_record,
                std::string("a trade does not fit the instrument's scale: ") + what + "=" +
                    std::to_string(value) + "e-" + std::to_string(from) +
                    " scale=" + std::to_string(to),
                {}, -1, "set a suitable scale for the instrument in instruments.json");
}

constexpr int kBasisPoints = 20'000;  // of a mid that is half of a sum

// Whether a double holds it.
bool is_small(Int128 value) noexcept {
    constexpr UInt128 kExact = UInt128{1} << 53;
    return static_cast<UInt128>(value) + kExact <= 2 * kExact;
}

template <typename Number>
Number exactly(Int128 value) noexcept {
    if constexpr (std::is_same_v<Number, double>) {
        return static_cast<double>(static_cast<std::int64_t>(value));  // is_small()
    } else {
        return value;
    }
}

double quotient_of(double numerator, double denominator) noexcept {
    return numerator / denominator;
}
double quotient_of(Int128 numerator, Int128 denominator) noexcept {
    return nearest_ratio(numerator, static_cast<UInt128>(denominator));
}

// Sums sizes, and stores the sum after each step of levels.
struct LevelSums {
    const std::uint32_t* step;
    Int128* depth;  // of that step
    std::uint32_t left = *step;
    Int128 sum = 0;

    bool operator()(std::int64_t, std::int64_t size) noexcept {  // false after the last step
        sum += static_cast<std::uint64_t>(size);                 // not below 0
        if (--left != 0) return true;
        *depth++ = sum;
        left = *++step;
        return left != 0;
    }
};

}  // namespace

FeaturePlan::FeaturePlan(const std::vector<std::string>& wanted, const std::string& sample_name,
                         const std::vector<std::int64_t>& kept_trades_ns, const LevelsWanted& best)
    : names(wanted), sample_text(sample_name), sample(parse_sample(sample_name)), levels(best) {
    if (levels.levels > kMostLevels)
        throw Error(Errc::invalid_option, "levels must be at most " + std::to_string(kMostLevels) +
                                              ": levels=" + std::to_string(levels.levels));
    for (const std::string& name : names) {
        if (std::count(names.begin(), names.end(), name) > 1)
            throw Error(Errc::invalid_option, "duplicate feature: name='" + name + "'");
        const Feature feature = parse_feature(name);
        std::size_t window = 0;
        if (feature.levels != 0) {
            place_of(level_counts, feature.levels);
        } else if (feature.kind == FeatureKind::volatility) {
            window = place_of(volatility_seconds, feature.span_ns / kSecondNs);
        } else if (feature.span_ns != 0) {
            window = place_of(trade_spans_ns, feature.span_ns);
        }
        columns.push_back({feature, window});
        look_back_ns = std::max(look_back_ns, replay::look_back_ns(feature, sample));
    }
    std::sort(level_counts.begin(), level_counts.end());
    std::adjacent_difference(level_counts.begin(), level_counts.end(),
                             std::back_inserter(level_steps));
    level_steps.push_back(0);
    for (Column& column : columns) {
        if (column.feature.levels != 0)
            column.window = place_of(level_counts, column.feature.levels);
    }
    for (const std::int64_t span : kept_trades_ns) {
        kept_trades.push_back(place_of(trade_spans_ns, span));
        look_back_ns = std::max(look_back_ns, span);
    }
}

FeatureSet::FeatureSet(std::shared_ptr<const FeaturePlan> plan, std::uint8_t price_scale,
                       std::uint8_t size_scale)
    : plan_(std::move(plan)),
      price_scale_(price_scale),
      size_scale_(size_scale),
      book_price_scale_(price_scale),
      book_size_scale_(size_scale),
      trades_(plan_->trade_spans_ns),
      returns_(plan_->volatility_seconds),
      bid_depths_(plan_->level_counts.size()),
      ask_depths_(plan_->level_counts.size()) {}

void FeatureSet::start(const book::Book* book, std::int64_t time_ns) {
    time_ns_ = time_ns;
    top_ = top_of(book);
    if (book != nullptr) {
        book_price_scale_ = book->options().price_scale;
        book_size_scale_ = book->options().size_scale;
    }
    flow_minute_ = time_ns / kFlowAnchorNs;
    begin_flow();
    returns_.start(time_ns);
}

FeatureSet::Top FeatureSet::top_of(const book::Book* book) noexcept {
    Top top;
    if (book == nullptr || !book->trusted()) return top;
    top.trusted = true;
    top.has_bid = book->best(format::Side::buy, top.bid);
    top.has_ask = book->best(format::Side::sell, top.ask);
    return top;
}

// Cont, Kukanov, Stoikov: the demand that an event added at the best prices, less the supply that
// it added. Sizes are not below 0, so the change of a side fits.
Int128 FeatureSet::flow_between(const Top& before, const Top& now) noexcept {
    const std::int64_t demand = (now.bid.price >= before.bid.price ? now.bid.size : 0) -
                                (now.bid.price <= before.bid.price ? before.bid.size : 0);
    const std::int64_t supply = (now.ask.price <= before.ask.price ? now.ask.size : 0) -
                                (now.ask.price >= before.ask.price ? before.ask.size : 0);
    return static_cast<Int128>(demand) - supply;
}

void FeatureSet::begin_flow() noexcept {
    flow_ = 0;
    flow_known_ = top_.trusted;
}

Int128 FeatureSet::doubled_mid() const noexcept {
    return top_.has_both() ? std::max<Int128>(top_.sum(), 0) : 0;
}

void FeatureSet::advance(std::int64_t time_ns) {
    time_ns_ = time_ns;
    trades_.advance(time_ns);
    if (!returns_.empty()) returns_.advance(time_ns, doubled_mid());
    if (plan_->sample.at == Sample::At::event) {
        begin_flow();
    } else if (plan_->sample.at == Sample::At::trade && time_ns / kFlowAnchorNs != flow_minute_) {
        flow_minute_ = time_ns / kFlowAnchorNs;
        begin_flow();
    }
}

void FeatureSet::on_book(const book::Book& book) {
    const Top now = top_of(&book);
    book_price_scale_ = book.options().price_scale;
    book_size_scale_ = book.options().size_scale;
    if (top_.trusted && now.trusted) {
        flow_ += flow_between(top_, now);
    } else {
        flow_known_ = false;
    }
    top_ = now;
}

Print FeatureSet::print_of(const market::TradeView& trade) const {
    const std::int64_t sign = trade.is_buyer_maker == 0 ? 1 : trade.is_buyer_maker == 1 ? -1 : 0;
    return {time_ns_, rescaled(trade.price, trade.price_scale, price_scale_, "price"),
            rescaled(trade.size, trade.size_scale, size_scale_, "size"), sign};
}

void FeatureSet::on_trade(const market::TradeView& trade) {
    const Print print = print_of(trade);
    const Int128 notional = static_cast<Int128>(print.price) * print.size;
    if (notional >> 96 > 0 || notional >> 96 < -1)
        throw Error(Errc::corrupt_record,
                    "price times size must fit 96 bits: price=" + std::to_string(print.price) +
                        " size=" + std::to_string(print.size));
    trades_.add(print);
    last_ = print;
    traded_ = true;
}

void FeatureSet::sum_levels(const book::Book& book) {
    const auto sum_side = [&](format::Side side, std::vector<Int128>& depths) {
        const LevelSums sums =
            book.walk_levels(side, LevelSums{plan_->level_steps.data(), depths.data()});
        // The side may have fewer levels.
        std::fill(sums.depth, depths.data() + depths.size(), sums.sum);
    };
    sum_side(format::Side::buy, bid_depths_);
    sum_side(format::Side::sell, ask_depths_);
}

void FeatureSet::sampled() noexcept {
    if (plan_->sample.at != Sample::At::event) begin_flow();
}

// Of the features that are no function of the book; false: null.
bool FeatureSet::trade_value(const FeaturePlan::Column& column, const Print* last,
                             std::int64_t since_ns, double& out) const noexcept {
    switch (column.feature.kind) {
        case FeatureKind::trade_sign:
            if (last == nullptr) return false;
            out = static_cast<double>(last->sign);
            return true;
        case FeatureKind::trade_price:
            if (last == nullptr) return false;
            out = nearest_scaled(last->price, 1, price_scale_);
            return true;
        case FeatureKind::trade_size:
            if (last == nullptr) return false;
            out = nearest_scaled(last->size, 1, size_scale_);
            return true;
        case FeatureKind::trade_flow:
            out = nearest_scaled(trades_.sums(column.window).flow, 1, size_scale_);
            return true;
        case FeatureKind::volume:
            out = nearest_scaled(trades_.sums(column.window).volume, 1, size_scale_);
            return true;
        case FeatureKind::vwap: {
            const TradeWindows::Sums& sums = trades_.sums(column.window);
            // Above 126 bits, which no real volume reaches, there is no space for the exact
            // division.
            constexpr Int128 kMost = static_cast<Int128>(1) << 126;
            if (sums.volume <= 0 ||
                sums.volume > kMost / static_cast<Int128>(power_of_ten(price_scale_)))
                return false;
            out = nearest_scaled(sums.notional, static_cast<UInt128>(sums.volume), price_scale_);
            return true;
        }
        case FeatureKind::volatility:
            return returns_.volatility(column.window, out);
        case FeatureKind::time_since_trade:
            if (since_ns < 0) return false;
            out = nearest_ratio(since_ns, static_cast<UInt128>(kSecondNs));
            return true;
        default:
            return false;
    }
}

// Whether doubles hold all that row_of<double> computes before its divisions. Each test is of a
// bound computed in doubles: if its exact value were 2^53 or more, so would be the rounded one.
inline bool FeatureSet::fits_doubles() const noexcept {
    constexpr double kExact = 0x1p53;
    const auto magnitude = [](std::int64_t value) { return std::abs(static_cast<double>(value)); };
    const double price = magnitude(top_.bid.price) + magnitude(top_.ask.price);
    const double size = magnitude(top_.bid.size) + magnitude(top_.ask.size);
    const double unit = static_cast<double>(power_of_ten(book_price_scale_));
    return price * kBasisPoints < kExact && price * size < kExact && size * unit < kExact &&
           is_small(flow_) &&
           (bid_depths_.empty() || is_small(bid_depths_.back() + ask_depths_.back()));
}

// One row: every value is a quotient of integers, which Number holds exactly, rounded once.
template <typename Number>
void FeatureSet::row_of(const Print* last, std::int64_t since_ns,
                        const FeatureRows::Cells& cells) const noexcept {
    const auto bid = static_cast<Number>(top_.bid.price), ask = static_cast<Number>(top_.ask.price);
    const auto bid_size = static_cast<Number>(top_.bid.size),
               ask_size = static_cast<Number>(top_.ask.size);
    const auto price_unit = static_cast<Number>(power_of_ten(book_price_scale_)),
               size_unit = static_cast<Number>(power_of_ten(book_size_scale_));
    const auto depth = [](const std::vector<Int128>& depths, std::size_t i) {
        return exactly<Number>(depths[i]);
    };
    std::size_t cell = 0;
    for (const FeaturePlan::Column& column : plan_->columns) {
        double value = 0;
        const auto quotient = [&](Number numerator, Number denominator) {
            value = quotient_of(numerator, denominator);
            return true;
        };
        bool known = false;
        switch (column.feature.kind) {  // an untrusted book has no sides
            case FeatureKind::bid:
                known = top_.has_bid && quotient(bid, price_unit);
                break;
            case FeatureKind::ask:
                known = top_.has_ask && quotient(ask, price_unit);
                break;
            case FeatureKind::bid_size:
                known = top_.has_bid && quotient(bid_size, size_unit);
                break;
            case FeatureKind::ask_size:
                known = top_.has_ask && quotient(ask_size, size_unit);
                break;
            case FeatureKind::mid:
                known = top_.has_both() && quotient(bid + ask, 2 * price_unit);
                break;
            case FeatureKind::spread:
                known = top_.has_both() && quotient(ask - bid, price_unit);
                break;
            case FeatureKind::spread_bps:
                known = top_.has_both() && bid + ask > 0 &&
                        quotient((ask - bid) * kBasisPoints, bid + ask);
                break;
            case FeatureKind::microprice:
                known = top_.has_both() && quotient(bid * ask_size + ask * bid_size,
                                                    (bid_size + ask_size) * price_unit);
                break;
            case FeatureKind::imbalance: {
                const Number bids = depth(bid_depths_, column.window),
                             asks = depth(ask_depths_, column.window);
                known = top_.trusted && bids + asks != 0 && quotient(bids - asks, bids + asks);
                break;
            }
            case FeatureKind::bid_depth:
                known = top_.trusted && quotient(depth(bid_depths_, column.window), size_unit);
                break;
            case FeatureKind::ask_depth:
                known = top_.trusted && quotient(depth(ask_depths_, column.window), size_unit);
                break;
            case FeatureKind::ofi:
                known = flow_known_ && quotient(exactly<Number>(flow_), size_unit);
                break;
            default:
                known = trade_value(column, last, since_ns, value);
        }
        cells.values[cell] = value;
        cells.valid[cell] = known ? 1 : 0;
        cell += cells.stride;
    }
}

void FeatureSet::sample(const book::Book* book, const market::TradeView* own,
                        const FeatureRows::Cells& cells) {
    if (top_.trusted && !bid_depths_.empty()) sum_levels(*book);
    Print own_print{};
    if (own != nullptr) own_print = print_of(*own);
    // Unsigned: the difference of two times may need 64 bits.
    const bool remembered = traded_ && static_cast<std::uint64_t>(time_ns_) -
                                               static_cast<std::uint64_t>(last_.time_ns) <=
                                           static_cast<std::uint64_t>(kTradeMemoryNs);
    const std::int64_t since_ns = remembered ? time_ns_ - last_.time_ns : -1;
    const Print* last = own != nullptr ? &own_print : remembered ? &last_ : nullptr;
    if (fits_doubles()) [[likely]] {
        row_of<double>(last, since_ns, cells);
    } else {
        row_of<Int128>(last, since_ns, cells);
    }
}

void FeatureSet::save(StateWriter& out) const {
    out.put(price_scale_);
    out.put(size_scale_);
    out.put(time_ns_);
    out.put(flow_);
    out.put(static_cast<std::uint8_t>(flow_known_));
    out.put(flow_minute_);
    out.put(static_cast<std::uint8_t>(traded_));
    out.put(last_);
    trades_.save(out);
    returns_.save(out);
}

// Call after start() with the corresponding book.
void FeatureSet::load(StateReader& in) {
    price_scale_ = in.get<std::uint8_t>();
    size_scale_ = in.get<std::uint8_t>();
    if (price_scale_ > 18 || size_scale_ > 18) StateReader::refuse("a scale is above 18");
    time_ns_ = in.get<std::int64_t>();
    flow_ = in.get<Int128>();
    flow_known_ = in.flag();
    flow_minute_ = in.get<std::int64_t>();
    traded_ = in.flag();
    last_ = in.get<Print>();
    if (last_.sign < -1 || last_.sign > 1) StateReader::refuse("invalid trade");
    trades_.load(in);
    returns_.load(in);
}

}  // namespace tapewire::replay
