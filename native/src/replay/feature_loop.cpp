#include "tapewire/replay/feature_loop.hpp"

#include <algorithm>
#include <cassert>
#include <utility>

namespace tapewire::replay {

namespace {

constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kHighest = std::numeric_limits<std::int64_t>::max();

// The smallest multiple of `step` that is at least `time`; the highest number if there is none.
std::int64_t grid_from(std::int64_t time, std::int64_t step) noexcept {
    std::int64_t rest = time % step;
    if (rest == 0) return time;
    if (rest < 0) rest += step;
    return time > kHighest - step ? kHighest : time - rest + step;
}

std::int64_t grid_after(std::int64_t point, std::int64_t step) noexcept {
    return point > kHighest - step ? kHighest : point + step;
}

}  // namespace

FeatureLoop::FeatureLoop(Engine& engine, std::shared_ptr<const FeaturePlan> plan,
                         const FeatureSlice& slice)
    : engine_(engine), plan_(std::move(plan)), slice_(slice) {}

FeatureLoop::Stop FeatureLoop::run(FeatureRows& rows, std::size_t max_rows,
                                   std::uint64_t max_records) {
    Stop stop = Stop::end;
    if (!started_ && !warm_up(max_records, stop)) return stop;
    const bool grid = plan_->sample.at == Sample::At::grid;
    const std::uint64_t begin = engine_.records();
    Step step;
    for (;;) {
        if (grid && !pass_grid(rows, max_rows)) return Stop::rows;
        if (grid && next_grid_ns_ >= slice_.to_ns) return Stop::done;
        if (rows.size() >= max_rows) return Stop::rows;
        if (engine_.records() - begin >= max_records) return Stop::pause;
        locate([&] { apply_pending(); });
        engine_.end_at(std::min(next_grid_ns_, slice_.to_ns));
        switch (engine_.advance(step, max_records)) {
            case Engine::Found::pause:
                return Stop::pause;
            case Engine::Found::step:
                locate([&] { feed(step, rows); });
                break;
            case Engine::Found::end:
                if (engine_.ended_by_seq()) return Stop::done;
                if (!engine_.ahead_ns()) return Stop::end;
                // Not past the slice: a loop that resumes may first read logs that were not read
                // here.
                time_ns_ = std::max(time_ns_, std::min(*engine_.ahead_ns(), slice_.to_ns));
                seq_ = engine_.ahead_seq();
                if (!grid) return Stop::done;
        }
    }
}

// Adds the location of a trade that would overflow a sum.
template <typename Work>
void FeatureLoop::locate(Work work) {
    try {
        work();
    } catch (Error& e) {
        if (e.code == Errc::corrupt_record) e.message += ": seq=" + std::to_string(seq_);
        throw;
    }
}

// Processes books only, up to where windows begin. False if that is not reached yet; `stop` has the
// reason.
bool FeatureLoop::warm_up(std::uint64_t max_records, Stop& stop) {
    Step step;
    const std::uint64_t begin = engine_.records();
    engine_.end_at(slice_.start_ns);
    Engine::Found found = Engine::Found::step;
    while (found == Engine::Found::step && engine_.records() - begin < max_records)
        found = engine_.advance(step, max_records);
    if (found != Engine::Found::end) {
        stop = Stop::pause;
        return false;
    }
    stop = engine_.ended_by_seq() ? Stop::done : Stop::end;
    if (!engine_.ahead_ns()) return false;
    seq_ = engine_.ahead_seq();
    if (slice_.start_ns == kLowest) {
        begin_at(*engine_.ahead_ns(), *engine_.ahead_ns());
    } else {
        begin_at(slice_.start_ns, slice_.first_ns);
    }
    return true;
}

void FeatureLoop::begin_at(std::int64_t time_ns, std::int64_t first_ns) {
    assert(!started_ && sets_.empty());
    started_ = true;
    time_ns_ = time_ns;
    for (const auto& market : engine_.markets()) {
        if (slice_.for_all_added || market->book)
            make_set(*market, nullptr).start(market->book.get(), time_ns);
    }
    if (plan_->sample.at == Sample::At::grid) {
        const std::int64_t behind_first = first_ns == kHighest ? first_ns : first_ns + 1;
        next_grid_ns_ = grid_from(std::max(time_ns, behind_first), plan_->sample.span_ns);
    }
}

FeatureSet& FeatureLoop::make_set(const Market& market, const market::TradeView* trade) {
    std::uint8_t price_scale = 8, size_scale = 8;
    if (market.options) {
        price_scale = market.options->price_scale;
        size_scale = market.options->size_scale;
    } else if (market.book) {
        price_scale = market.book->options().price_scale;
        size_scale = market.book->options().size_scale;
    } else if (trade != nullptr) {
        price_scale = trade->price_scale;
        size_scale = trade->size_scale;
    }
    if (sets_.size() <= market.index) sets_.resize(market.index + 1);
    sets_[market.index] = std::make_unique<FeatureSet>(plan_, price_scale, size_scale);
    return *sets_[market.index];
}

// An instrument's first record creates its features; its book counts as empty before that record.
FeatureSet& FeatureLoop::set_of(const Market& market, const market::TradeView* trade) {
    if (market.index < sets_.size() && sets_[market.index]) return *sets_[market.index];
    FeatureSet& set = make_set(market, trade);
    set.start(nullptr, time_ns_);
    return set;
}

void FeatureLoop::feed(const Step& step, FeatureRows& rows) {
    if (step.kind == Kind::gap) return feed_gap(*step.gap);
    time_ns_ = std::max(time_ns_, step.time_ns);
    seq_ = step.record.seq;
    if (step.market == nullptr || (step.kind != Kind::book && step.kind != Kind::trade)) return;
    const bool trade = step.kind == Kind::trade;
    FeatureSet& set = set_of(*step.market, trade ? &step.trade : nullptr);
    set.advance(time_ns_);
    if (trade) {
        trade_ = step.trade;
        if (plan_->sample.at == Sample::At::trade) {
            make_row(rows, *step.market, set, time_ns_, &trade_);
            pending_ = &set;
            return;
        }
        set.on_trade(step.trade);
    } else if (step.book != nullptr) {
        set.on_book(*step.book);
    }
    if (plan_->sample.at == Sample::At::event) make_row(rows, *step.market, set, time_ns_, nullptr);
}

void FeatureLoop::feed_gap(const TapeGap& gap) {
    for (const Market* market : gap.markets) {
        if (market->index < sets_.size() && sets_[market->index])
            sets_[market->index]->on_book(*market->book);
    }
}

void FeatureLoop::apply_pending() {
    if (pending_ != nullptr) std::exchange(pending_, nullptr)->on_trade(trade_);
}

void FeatureLoop::make_row(FeatureRows& rows, const Market& market, FeatureSet& set,
                           std::int64_t time_ns, const market::TradeView* trade) {
    if (time_ns >= slice_.from_ns && seq_ >= slice_.from_seq) {
        set.sample(market.book.get(), trade, rows.next_row());
        rows.push(time_ns, market.index);
        if (rows.levels) {
            LevelRows::Head head{{}, set.price_scale(), set.size_scale()};
            if (plan_->sample.at != Sample::At::grid) head.seq = seq_;
            rows.levels->push(head, market.book.get());
        }
        row_market_ = &market;
        row_features_ = &set;
    }
    set.sampled();
}

// Processes the grid points that the replay has reached. False if there is no space for more rows.
bool FeatureLoop::pass_grid(FeatureRows& rows, std::size_t max_rows) {
    const std::int64_t step = plan_->sample.span_ns;
    assert(started_ && step > 0);
    while (next_grid_ns_ <= time_ns_ && next_grid_ns_ < slice_.to_ns) {
        if (next_grid_ns_ < slice_.from_ns || seq_ < slice_.from_seq) {
            // Nothing happens between these points, and their rows are not wanted: process only the
            // last one.
            const std::int64_t last = seq_ < slice_.from_seq
                                          ? std::min(time_ns_, slice_.to_ns - 1)
                                          : std::min(time_ns_, slice_.from_ns - 1);
            next_grid_ns_ += (last - next_grid_ns_) / step * step;
            for (const auto& set : sets_) {
                if (!set) continue;
                set->advance(next_grid_ns_);
                set->sampled();
            }
        } else {
            for (; grid_market_ < sets_.size(); ++grid_market_) {
                if (!sets_[grid_market_]) continue;
                if (rows.size() >= max_rows) return false;
                FeatureSet& set = *sets_[grid_market_];
                set.advance(next_grid_ns_);
                make_row(rows, *engine_.markets()[grid_market_], set, next_grid_ns_, nullptr);
            }
            grid_market_ = 0;
        }
        next_grid_ns_ = grid_after(next_grid_ns_, step);
    }
    return true;
}

}  // namespace tapewire::replay
