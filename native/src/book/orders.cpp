// Applies order events to a book, by the rules of its venue.
#include "guarded.hpp"
#include "scale.hpp"
#include "tapewire/book/book.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

using format::L3Event;
using format::L3Type;
using format::Side;

// The compiler would not inline these into apply(): four of five events do nothing else.
#define TW_HOT [[gnu::always_inline]] inline

namespace {

// SZSE's values of ord_type; '2' is a limit order.
constexpr std::uint8_t kSzseMarket = '1';
constexpr std::uint8_t kSzseOwnBest = 'U';

constexpr std::uint32_t kAuction = format::kL3OpeningAuction | format::kL3ClosingAuction;

// Importers store it in order_id, or in the field that the venue's trade stream used.
std::uint64_t cancelled_id(const L3Event& e) noexcept {
    if (e.order_id != 0) return e.order_id;
    return (e.flags & format::kL3HasBidId) != 0 ? e.bid_order_id : e.ask_order_id;
}

bool names(const L3Event& e, std::uint64_t id) noexcept {
    return e.order_id == id || ((e.flags & format::kL3HasBidId) != 0 && e.bid_order_id == id) ||
           ((e.flags & format::kL3HasAskId) != 0 && e.ask_order_id == id);
}

}  // namespace

TW_HOT bool Book::is_unpriced(const L3Event& e) const noexcept {
    if ((e.flags & format::kL3PriceIsMarket) != 0) return true;
    if (options_.rules == Rules::none || options_.rules == Rules::continuous)
        return false;  // prices of 0 and below are valid prices
    if (options_.rules == Rules::szse && e.ord_type == kSzseMarket) return true;
    return e.price <= 0;
}

TW_HOT Applied Book::add_order(const L3Event& e) {
    const Side side{e.side};
    if (side == Side::unknown) [[unlikely]]
        return distrust(Distrust::no_side);
    if (e.qty == 0) [[unlikely]]
        return Applied::unchanged;
    const bool own_best = options_.rules == Rules::szse && e.ord_type == kSzseOwnBest;
    if (settling_.on || own_best || is_unpriced(e)) [[unlikely]]
        return add_specially(e);
    return add_at(e, e.price);
}

TW_HOT Applied Book::add_at(const L3Event& e, std::int64_t price) {
    const L3::Added added = l3_.add(e.order_id, Side{e.side}, price, e.qty);
    if (added == L3::Added::added) [[likely]]
        return Applied::changed;
    return added == L3::Added::known ? unknown(e.order_id, Distrust::duplicate_order)
                                     : distrust(Distrust::does_not_fit);
}

// While an order waits for its price, or if this one has none in the event.
Applied Book::add_specially(const L3Event& e) {
    if (l3_.find(e.order_id) != L3::kNone) return unknown(e.order_id, Distrust::duplicate_order);
    // A reused id: the order that waited for its price is gone, and the price does not apply to
    // this one.
    if (settling_.on && settling_.id == e.order_id) settling_ = {};
    const Side side{e.side};
    if (options_.rules == Rules::szse && e.ord_type == kSzseOwnBest) {
        // Joins the best price of its own side; if there is none the exchange cancels it.
        if (!l3_.side(side).empty()) return add_at(e, l3_.side(side).best_price());
    } else if (!is_unpriced(e)) {
        return add_at(e, e.price);
    }
    l3_.add_unpriced(e.order_id, side, e.qty);
    return Applied::changed;
}

// Whether an event of Shanghai or Shenzhen means another order than the one it names: its id, or
// that of the order, is not what the exchange sent. `side` is what the event calls the order's.
TW_HOT bool Book::contradicts(const L3Event& e, std::uint32_t slot, Side side) const noexcept {
    if (options_.rules != Rules::sse && options_.rules != Rules::szse) return false;
    const L3::Order& order = l3_.order(slot);
    if (side != Side::unknown && side != order.side) return true;
    if (options_.rules == Rules::szse || !l3_.rests(slot)) return false;
    // Shanghai repeats the price of an order. A trade of continuous trading, which has an
    // aggressor, is at the price of the resting order.
    const bool repeats = L3Type{e.event_type} == L3Type::cancel || e.side != 0;
    return repeats && e.price > 0 && l3_.level(order.level).price != e.price;
}

TW_HOT Applied Book::cancel_order(const L3Event& e) {
    const std::uint64_t id = cancelled_id(e);
    const L3::Place place = l3_.place_of(id);
    if (place.slot == L3::kNone) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    if (contradicts(e, place.slot, Side{e.side})) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    const std::int64_t remaining = l3_.order(place.slot).remaining;
    if (e.qty > remaining) [[unlikely]]
        return distrust(Distrust::negative_size);
    l3_.reduce(place, e.qty == 0 ? remaining : e.qty);
    return Applied::changed;
}

Applied Book::modify_order(const L3Event& e) {
    const L3::Place place = l3_.place_of(e.order_id);
    if (place.slot == L3::kNone) [[unlikely]]
        return unknown(e.order_id, Distrust::unknown_order);
    const L3::Order& order = l3_.order(place.slot);
    if (e.qty == 0) {
        l3_.remove(place);
    } else if (is_unpriced(e)) {
        l3_.move_to_unpriced(place.slot, e.qty);
    } else if (l3_.rests(place.slot) && l3_.level(order.level).price == e.price &&
               e.qty <= order.remaining) {
        if (e.qty == order.remaining) return Applied::unchanged;
        l3_.reduce(place, order.remaining - e.qty);  // a reduced order keeps its place
    } else if (!l3_.move(place.slot, e.price, e.qty)) {
        return distrust(Distrust::does_not_fit);
    }
    if (settling_.on && settling_.id == e.order_id) settling_ = {};
    return Applied::changed;
}

TW_HOT Applied Book::trade(const L3Event& e) {
    bool bid = (e.flags & format::kL3HasBidId) != 0;
    bool ask = (e.flags & format::kL3HasAskId) != 0;
    if (options_.rules == Rules::sse && e.side != 0 && (bid || ask)) {
        // Shanghai shows an aggressor only as the remainder of its trades: it is not in the book
        // yet.
        bid = bid && Side{e.side} == Side::sell;
        ask = ask && Side{e.side} == Side::buy;
        if (!bid && !ask) return Applied::unchanged;
    }
    if (e.qty == 0) [[unlikely]]
        return Applied::unchanged;
    if (static_cast<unsigned>(bid) + ask == 2) return trade_both(e);
    // One of three ids, by masks: a branch would be unpredictable.
    const auto if_set = [](bool is, std::uint64_t id) { return id & -std::uint64_t{is}; };
    const std::uint64_t id = if_set(bid, e.bid_order_id) | if_set(ask, e.ask_order_id) |
                             if_set(!bid && !ask, e.order_id);
    const L3::Place place = l3_.place_of(id);
    if (place.slot == L3::kNone) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    const Side side = bid ? Side::buy : ask ? Side::sell : Side::unknown;
    if (contradicts(e, place.slot, side)) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    if (l3_.order(place.slot).remaining < e.qty) [[unlikely]]
        return distrust(Distrust::negative_size);
    fill(place, e);
    return Applied::changed;
}

// All checks first, so that a trade is applied to both sides or to none.
Applied Book::trade_both(const L3Event& e) {
    const std::uint64_t ids[2] = {e.bid_order_id, e.ask_order_id};
    L3::Place places[2];
    constexpr Side sides[2] = {Side::buy, Side::sell};
    std::size_t found = 0;
    for (std::size_t i = 0; i < 2; ++i) {
        const std::uint64_t id = ids[i];
        const L3::Place place = l3_.place_of(id);
        if (place.slot == L3::kNone) [[unlikely]] {
            unknown(id, Distrust::unknown_order);
            if (!trusted()) return Applied::ignored;
            continue;
        }
        if (contradicts(e, place.slot, sides[i])) [[unlikely]]
            return unknown(id, Distrust::unknown_order);
        if (l3_.order(place.slot).remaining < e.qty) return distrust(Distrust::negative_size);
        if (found == 1 && places[0].slot == place.slot) continue;  // both sides name one order
        places[found++] = place;
    }
    for (std::size_t i = 0; i < found; ++i) fill(places[i], e);
    return found > 0 ? Applied::changed : Applied::unchanged;
}

TW_HOT void Book::fill(const L3::Place& place, const L3Event& e) {
    const bool some_left = l3_.order(place.slot).remaining > e.qty;
    l3_.reduce(place, e.qty);
    if (options_.rules == Rules::szse && some_left && !l3_.rests(place.slot)) [[unlikely]]
        await_price(place.slot, e.price);
}

void Book::await_price(std::uint32_t slot, std::int64_t price) {
    const std::uint64_t id = l3_.order(slot).id;
    if (settling_.on && settling_.id != id) settle();
    settling_ = {true, id, price};
}

void Book::settle() {
    const Settling order = settling_;
    settling_ = {};
    const std::uint32_t slot = l3_.find(order.id);
    if (slot == L3::kNone || l3_.rests(slot)) return;  // cancelled, or filled
    if (!l3_.move(slot, order.price, l3_.order(slot).remaining)) distrust(Distrust::does_not_fit);
}

Applied Book::unknown(std::uint64_t id, Distrust cause) {
    ++unknown_count_;
    if (options_.unknown == Unknown::ignore) return Applied::unchanged;
    if (options_.unknown == Unknown::distrust) return distrust(cause);
    const bool there = cause == Distrust::duplicate_order;
    throw Error(Errc::unknown_order,
                std::string(there ? "an order that is in the book must not be added again"
                                  : "an event must refer to a known order") +
                    ": order_id=" + std::to_string(id) + ", seq=" + std::to_string(last_seq_),
                {}, -1, "unknown=\"ignore\" counts such events and continues");
}

// ---- entry -------------------------------------------------------------------------------------

TW_HOT Applied Book::apply_by_type(const L3Event& e) {
    if (settling_.on && !names(e, settling_.id)) [[unlikely]] {
        settle();
        if (!trusted()) return Applied::ignored;
    }
    if (e.qty < 0) [[unlikely]]
        return distrust(Distrust::negative_size);
    switch (L3Type{e.event_type}) {
        case L3Type::add:
            return add_order(e);
        case L3Type::cancel:
            return cancel_order(e);
        case L3Type::modify:
            return modify_order(e);
        case L3Type::trade:
            return trade(e);
        case L3Type::reset:
        case L3Type::heartbeat:
            break;  // handled before
    }
    return Applied::unchanged;
}

// Outside auctions, which collect orders that match, a book must not be crossed after an event, or
// by Shenzhen's rules, which show an order before its trades, before the next one. Trades are
// excepted: those of an auction are published when its phase has ended.
TW_HOT Applied Book::apply_order(const L3Event& e, std::uint32_t phase_before) {
    const bool may_cross = (e.flags & kAuction) != 0 || L3Type{e.event_type} == L3Type::trade;
    if (options_.rules == Rules::szse) [[unlikely]] {
        if (!may_cross && (phase_before & kAuction) == 0 && l3_.crossed())
            return distrust(Distrust::crossed);
    }
    const Applied applied = apply_by_type(e);
    const bool at_once = options_.rules == Rules::sse || options_.rules == Rules::continuous;
    if (at_once && !may_cross && l3_.crossed() && trusted()) [[unlikely]]
        return distrust(Distrust::crossed);
    return applied;
}

TW_HOT Applied Book::take_l3(const L3Event& event, std::uint8_t price_scale,
                             std::uint8_t size_scale) {
    if (price_scale != options_.price_scale || size_scale != options_.size_scale) [[unlikely]]
        return apply_rescaled(event, price_scale, size_scale);
    const std::uint32_t phase_before = phase_;
    phase_ = event.flags & kL3Phase;
    const L3Type type{event.event_type};
    if (type >= L3Type::reset) [[unlikely]]
        return type == L3Type::reset ? apply_reset() : Applied::unchanged;
    if (!trusted()) [[unlikely]]
        return Applied::ignored;
    return apply_order(event, phase_before);
}

Applied Book::apply_reset() {
    l3_.clear();
    settling_ = {};
    trust();
    return Applied::changed;
}

Applied Book::apply_rescaled(const L3Event& event, std::uint8_t price_scale,
                             std::uint8_t size_scale) {
    L3Event e = event;
    const Rescale price(price_scale, options_.price_scale), size(size_scale, options_.size_scale);
    const bool fits = (is_unpriced(e) || price(e.price)) && size(e.qty);
    if (!fits && trusted() && L3Type{e.event_type} < L3Type::reset) {
        phase_ = e.flags & kL3Phase;
        return distrust(Distrust::does_not_fit);
    }
    return apply_l3(e, options_.price_scale, options_.size_scale);
}

Applied Book::apply_l3(const L3Event& event, std::uint8_t price_scale, std::uint8_t size_scale) {
    return take_l3(event, price_scale, size_scale);
}

Applied Book::apply(const market::OrderHead& head, const L3Event& order, std::uint64_t record_seq) {
    note(format::BookMode::l3, head.venue_id, head.market_id, record_seq, head.ingest_ts_ns,
         head.exchange_ts_ns);
    return guarded([&] {
        if (quarantined_) [[unlikely]]
            return Applied::ignored;
        return take_l3(order, order.price_scale, order.size_scale);
    });
}

}  // namespace tapewire::book
