// The state of a feature loop as bytes. Version 2, little-endian:
//
//   crc u32        CRC-32C of everything after it
//   version u32    2
//   positions      the position up to which each source was read
//   plan           names and sample: must match on loading
//   loop           time, next grid point
//   tape gaps      source, first, last
//   instruments    ids, book (trusted or not), windows
#include <algorithm>
#include <utility>

#include "tapewire/checksum.hpp"
#include "tapewire/replay/feature_loop.hpp"

namespace tapewire::replay {

namespace {

constexpr std::uint32_t kVersion = 2;

std::string plan_text(const FeaturePlan& plan) {
    std::string text = plan.sample_text + ":";
    for (const std::string& name : plan.names) text += " " + name;
    for (const std::size_t window : plan.kept_trades)
        text += " [" + std::to_string(plan.trade_spans_ns[window]) + " ns of trades]";
    if (plan.levels.levels != 0) text += " [" + std::to_string(plan.levels.levels) + " levels]";
    return text;
}

// Skips checksum and version after checking them.
StateReader checked(std::span<const std::byte> state) {
    StateReader in(state);
    const auto crc = in.get<std::uint32_t>();
    if (crc != crc32c(state.data() + sizeof crc, state.size() - sizeof crc))
        StateReader::refuse("its checksum does not match: bytes=" + std::to_string(state.size()));
    const auto version = in.get<std::uint32_t>();
    if (version != kVersion) {
        throw Error(
            Errc::unsupported_version,
            "the state of features has an unsupported version: version=" + std::to_string(version),
            {}, -1, "start without a state, or use the release that wrote it");
    }
    return in;
}

std::vector<FeatureLoop::Position> read_positions(StateReader& in) {
    std::vector<FeatureLoop::Position> positions(in.count(17));
    for (FeatureLoop::Position& position : positions) {
        position.source = in.text();
        const bool any = in.flag();
        const auto seq = in.get<std::uint64_t>();
        if (any) position.last_seq = seq;
    }
    return positions;
}

// The current slot of each saved source.
std::vector<std::uint16_t> places_of(const std::vector<FeatureLoop::Position>& saved,
                                     const std::vector<std::string>& sources) {
    std::vector<std::uint16_t> places;
    for (const FeatureLoop::Position& position : saved) {
        const auto found = std::find(sources.begin(), sources.end(), position.source);
        if (found == sources.end() && !sources.empty())
            throw Error(
                Errc::invalid_option,
                "the state has a log that is not among the sources: log='" + position.source + "'");
        const std::size_t place =
            sources.empty() ? places.size() : static_cast<std::size_t>(found - sources.begin());
        places.push_back(static_cast<std::uint16_t>(place));
    }
    return places;
}

std::uint16_t get_place(StateReader& in, const std::vector<std::uint16_t>& places) {
    const auto saved = in.get<std::uint16_t>();
    if (saved >= places.size())
        StateReader::refuse("unknown source: source=" + std::to_string(saved));
    return places[saved];
}

void put_options(StateWriter& out, const book::Options& options) {
    out.put(static_cast<std::uint8_t>(options.mode));
    out.put(options.price_scale);
    out.put(options.size_scale);
    out.put(static_cast<std::uint8_t>(options.rules));
    out.put(static_cast<std::uint8_t>(options.on_gap));
    out.put(static_cast<std::uint8_t>(options.unknown));
}

template <typename Enum>
Enum get_enum(StateReader& in, Enum last) {
    const auto value = in.get<std::uint8_t>();
    if (value > static_cast<std::uint8_t>(last))
        StateReader::refuse("invalid value of an option: value=" + std::to_string(value));
    return static_cast<Enum>(value);
}

book::Options get_options(StateReader& in) {
    book::Options options;
    options.mode = get_enum(in, format::BookMode::l3);
    options.price_scale = in.get<std::uint8_t>();
    options.size_scale = in.get<std::uint8_t>();
    if (options.price_scale > 18 || options.size_scale > 18)
        StateReader::refuse("a scale is above 18");
    options.rules = get_enum(in, book::kMaxRules);
    options.on_gap = get_enum(in, book::GapPolicy::resync);
    options.unknown = get_enum(in, book::Unknown::distrust);
    return options;
}

}  // namespace

void FeatureLoop::save(const std::vector<Position>& positions, std::vector<std::byte>& out) {
    apply_pending();
    out.assign(sizeof(std::uint32_t), std::byte{0});
    StateWriter to(out);
    to.put(kVersion);
    to.put(static_cast<std::uint64_t>(positions.size()));
    for (const Position& position : positions) {
        to.text(position.source);
        to.put(static_cast<std::uint8_t>(position.last_seq.has_value()));
        to.put(position.last_seq.value_or(0));
    }
    to.text(plan_text(*plan_));
    to.put(static_cast<std::uint8_t>(started_));
    to.put(time_ns_);
    to.put(next_grid_ns_);
    to.put(static_cast<std::uint64_t>(grid_market_));
    // A message that could not be read does not affect instruments that come later.
    const auto counts = [](const TapeGap& gap) { return gap.cause != TapeGap::Cause::unreadable; };
    const auto& gaps = engine_.tape_gaps();
    to.put(static_cast<std::uint64_t>(std::count_if(gaps.begin(), gaps.end(), counts)));
    for (const TapeGap& gap : gaps) {
        if (!counts(gap)) continue;
        to.put(gap.source);
        to.put(gap.first);
        to.put(gap.last);
    }
    to.put(static_cast<std::uint64_t>(engine_.markets().size()));
    for (const auto& market : engine_.markets()) {
        to.put(market->venue_id);
        to.put(market->market_id);
        to.put(market->symbol_hash);
        to.put(static_cast<std::uint8_t>(market->book != nullptr));
        if (market->book) {
            put_options(to, market->book->options());
            std::vector<std::byte> book;
            market->book->save_state(book);
            to.block(book);
            to.put(static_cast<std::uint64_t>(market->sources.size()));
            for (const std::uint16_t source : market->sources) to.put(source);
        }
        const bool has_set = market->index < sets_.size() && sets_[market->index];
        to.put(static_cast<std::uint8_t>(has_set));
        if (has_set) sets_[market->index]->save(to);
    }
    const std::uint32_t crc = crc32c(out.data() + sizeof crc, out.size() - sizeof crc);
    std::memcpy(out.data(), &crc, sizeof crc);
}

std::vector<FeatureLoop::Position> FeatureLoop::positions_in(std::span<const std::byte> state) {
    StateReader in = checked(state);
    return read_positions(in);
}

void FeatureLoop::load(std::span<const std::byte> state, const std::vector<std::string>& sources) {
    StateReader in = checked(state);
    const std::vector<std::uint16_t> places = places_of(read_positions(in), sources);
    const std::string plan = in.text();
    if (plan != plan_text(*plan_)) {
        throw Error(Errc::invalid_option, "the state belongs to other features: requested='" +
                                              plan_text(*plan_) + "' state='" + plan + "'");
    }
    const bool started = in.flag();
    time_ns_ = in.get<std::int64_t>();
    next_grid_ns_ = in.get<std::int64_t>();
    const auto grid_market = in.get<std::uint64_t>();
    const bool grid = plan_->sample.at == Sample::At::grid;
    // Grid points are after a record, and no record is before the epoch.
    if (grid && started && next_grid_ns_ != std::numeric_limits<std::int64_t>::max() &&
        (next_grid_ns_ < 0 || next_grid_ns_ % plan_->sample.span_ns != 0))
        StateReader::refuse("the next point is not on the grid: time=" +
                            std::to_string(next_grid_ns_));
    for (std::size_t n = in.count(18); n > 0; --n) {
        const std::uint16_t source = get_place(in, places);
        const auto first = in.get<std::uint64_t>();
        engine_.lost_before(source, first, in.get<std::uint64_t>());
    }
    const std::size_t markets = in.count(16);
    for (std::size_t i = 0; i < markets; ++i) load_market(in, i, places);
    in.end();
    if (grid_market > markets) StateReader::refuse("unknown instrument");
    grid_market_ = grid_market;
    started_ = started;
    // Instruments that were added since begin here.
    for (std::size_t i = markets; started && slice_.for_all_added && i < engine_.markets().size();
         ++i)
        make_set(*engine_.markets()[i], nullptr).start(nullptr, time_ns_);
}

void FeatureLoop::load_market(StateReader& in, std::size_t index,
                              const std::vector<std::uint16_t>& places) {
    const auto venue_id = in.get<std::uint16_t>();
    const auto market_id = in.get<std::uint32_t>();
    const auto symbol_hash = in.get<std::uint64_t>();
    Market& market = engine_.add(venue_id, market_id, symbol_hash);
    if (market.index != index) {
        throw Error(
            Errc::invalid_option,
            "the state belongs to other instruments: market_id=" + std::to_string(market_id), {},
            -1, "pass the same symbols in the same order");
    }
    if (in.flag()) {
        const book::Options options = get_options(in);
        auto book = std::make_shared<book::Book>(book::Book::load_state(in.block(), options));
        // The sources begin after the records in it: none of their records is in it already.
        engine_.warm(market, std::move(book), 0, 0, time_ns_);
        market.warm_seq.reset();
        market.sources.clear();
        for (std::size_t n = in.count(2); n > 0; --n)
            market.sources.push_back(get_place(in, places));
    }
    if (!in.flag()) return;
    FeatureSet& set = make_set(market, nullptr);
    set.start(market.book.get(), time_ns_);
    set.load(in);
}

}  // namespace tapewire::replay
