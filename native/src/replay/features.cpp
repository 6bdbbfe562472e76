#include "tapewire/replay/features.hpp"

#include <algorithm>
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
      depths_(plan_->level_counts.size()) {
    rows_.resize(plan_->level_counts.empty() ? 0 : plan_->level_counts.back());
}

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
    Top top{};
    if (book == nullptr) return top;
    top.trusted = book->trusted();
    if (!top.trusted) return top;
    top.has_bid = book->best(format::Side::buy, top.bid);
    top.has_ask = book->best(format::Side::sell, top.ask);
    return top;
}

// Cont, Kukanov, Stoikov: the demand that an event added at the best prices, less the supply that
// it added. An empty side is a price beyond all others with size 0.
Int128 FeatureSet::flow_between(const Top& before, const Top& now) noexcept {
    Int128 flow = 0;
    if (now.has_bid && (!before.has_bid || now.bid.price >= before.bid.price)) flow += now.bid.size;
    if (before.has_bid && (!now.has_bid || now.bid.price <= before.bid.price))
        flow -= before.bid.size;
    if (now.has_ask && (!before.has_ask || now.ask.price <= before.ask.price)) flow -= now.ask.size;
    if (before.has_ask && (!now.has_ask || now.ask.price >= before.ask.price))
        flow += before.ask.size;
    return flow;
}

void FeatureSet::begin_flow() noexcept {
    flow_ = 0;
    flow_known_ = top_.trusted;
}

Int128 FeatureSet::doubled_mid() const noexcept {
    if (!top_.trusted || !top_.has_bid || !top_.has_ask) return 0;
    return std::max<Int128>(static_cast<Int128>(top_.bid.price) + top_.ask.price, 0);
}

void FeatureSet::advance(std::int64_t time_ns) {
    time_ns_ = time_ns;
    trades_.advance(time_ns);
    returns_.advance(time_ns, doubled_mid());
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
    for (const format::Side side : {format::Side::buy, format::Side::sell}) {
        const std::size_t n = book.top(side, rows_.size(), rows_.data());
        Int128 sum = 0;
        std::size_t row = 0;
        for (std::size_t i = 0; i < depths_.size(); ++i) {
            const std::size_t to = std::min<std::size_t>(plan_->level_counts[i], n);
            for (; row < to; ++row) sum += rows_[row].size;
            (side == format::Side::buy ? depths_[i].bids : depths_[i].asks) = sum;
        }
    }
}

void FeatureSet::sampled() noexcept {
    if (plan_->sample.at != Sample::At::event) begin_flow();
}

void FeatureSet::sample(const book::Book* book, const market::TradeView* own, double* values,
                        std::uint8_t* valid) {
    if (top_.trusted && !depths_.empty()) sum_levels(*book);
    Print own_print{};
    if (own != nullptr) own_print = print_of(*own);
    // Unsigned: the difference of two times may need 64 bits.
    const bool remembered = traded_ && static_cast<std::uint64_t>(time_ns_) -
                                               static_cast<std::uint64_t>(last_.time_ns) <=
                                           static_cast<std::uint64_t>(kTradeMemoryNs);
    const std::int64_t since_ns = remembered ? time_ns_ - last_.time_ns : -1;
    const Print* last = own != nullptr ? &own_print : remembered ? &last_ : nullptr;
    for (std::size_t i = 0; i < plan_->columns.size(); ++i) {
        values[i] = 0;
        valid[i] = value_of(plan_->columns[i], last, since_ns, values[i]) ? 1 : 0;
    }
}

bool FeatureSet::value_of(const FeaturePlan::Column& column, const Print* last,
                          std::int64_t since_ns, double& out) const noexcept {
    switch (column.feature.kind) {
        case FeatureKind::ofi:
            if (!flow_known_) return false;
            out = nearest_scaled(flow_, 1, book_size_scale_);
            return true;
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
            return top_.trusted && book_value(column, out);
    }
}

bool FeatureSet::book_value(const FeaturePlan::Column& column, double& out) const noexcept {
    const auto price = [&](std::int64_t value) {
        out = nearest_scaled(value, 1, book_price_scale_);
        return true;
    };
    const auto size = [&](Int128 value) {
        out = nearest_scaled(value, 1, book_size_scale_);
        return true;
    };
    const bool both = top_.has_bid && top_.has_ask;
    const Int128 sum = static_cast<Int128>(top_.bid.price) + top_.ask.price;
    const Int128 spread = static_cast<Int128>(top_.ask.price) - top_.bid.price;
    switch (column.feature.kind) {
        case FeatureKind::bid:
            return top_.has_bid && price(top_.bid.price);
        case FeatureKind::ask:
            return top_.has_ask && price(top_.ask.price);
        case FeatureKind::bid_size:
            return top_.has_bid && size(top_.bid.size);
        case FeatureKind::ask_size:
            return top_.has_ask && size(top_.ask.size);
        case FeatureKind::mid:
            if (!both) return false;
            out = nearest_scaled(sum, 2, book_price_scale_);
            return true;
        case FeatureKind::spread:
            if (!both) return false;
            out = nearest_scaled(spread, 1, book_price_scale_);
            return true;
        case FeatureKind::spread_bps:
            if (!both || sum <= 0) return false;
            out = nearest_ratio(spread * 20'000, static_cast<UInt128>(sum));
            return true;
        case FeatureKind::microprice: {
            if (!both) return false;
            const Int128 weighted = static_cast<Int128>(top_.bid.price) * top_.ask.size +
                                    static_cast<Int128>(top_.ask.price) * top_.bid.size;
            const UInt128 sizes =
                static_cast<UInt128>(static_cast<Int128>(top_.bid.size) + top_.ask.size);
            out = nearest_scaled(weighted, sizes, book_price_scale_);
            return true;
        }
        case FeatureKind::imbalance: {
            const Depths& depth = depths_[column.window];
            if (depth.bids + depth.asks == 0) return false;
            out = nearest_ratio(depth.bids - depth.asks,
                                static_cast<UInt128>(depth.bids + depth.asks));
            return true;
        }
        case FeatureKind::bid_depth:
            return size(depths_[column.window].bids);
        default:
            return size(depths_[column.window].asks);
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
