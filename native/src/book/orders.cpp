// Applies order events to a book, by the rules of its venue.
#include "scale.hpp"
#include "tapewire/book/book.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

using format::L3Event;
using format::L3Type;
using format::Side;

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

Applied Book::apply_l3(const L3Event& event, std::uint8_t price_scale, std::uint8_t size_scale,
                       std::uint32_t phase_before) {
    const L3Type type{event.event_type};
    if (type == L3Type::reset) {
        l3_.clear();
        settling_ = {};
        trust();
        return Applied::changed;
    }
    if (type == L3Type::heartbeat) return Applied::unchanged;
    if (!trusted()) [[unlikely]]
        return Applied::ignored;
    if (price_scale == options_.price_scale && size_scale == options_.size_scale) [[likely]]
        return apply_order(event, phase_before);
    L3Event order = event;
    const bool priced = !is_unpriced(order);
    if ((priced && !Rescale(price_scale, options_.price_scale)(order.price)) ||
        !Rescale(size_scale, options_.size_scale)(order.qty))
        return distrust(Distrust::does_not_fit);
    return apply_order(order, phase_before);
}

// Outside auctions, which collect orders that match, a book must not be crossed after an event, or
// by Shenzhen's rules, which show an order before its trades, before the next one. Trades are
// excepted: those of an auction are published when its phase has ended.
Applied Book::apply_order(const L3Event& e, std::uint32_t phase_before) {
    if (options_.rules == Rules::none) return apply_by_type(e);
    const bool may_cross = (e.flags & kAuction) != 0 || L3Type{e.event_type} == L3Type::trade;
    if (options_.rules == Rules::szse) {
        if (!may_cross && (phase_before & kAuction) == 0 && l3_.crossed()) [[unlikely]]
            return distrust(Distrust::crossed);
        return apply_by_type(e);
    }
    const Applied applied = apply_by_type(e);
    if (!may_cross && l3_.crossed() && trusted()) [[unlikely]]
        return distrust(Distrust::crossed);
    return applied;
}

Applied Book::apply_by_type(const L3Event& e) {
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

bool Book::is_unpriced(const L3Event& e) const noexcept {
    if ((e.flags & format::kL3PriceIsMarket) != 0) return true;
    if (options_.rules == Rules::none || options_.rules == Rules::continuous)
        return false;  // prices of 0 and below are valid prices
    if (options_.rules == Rules::szse && e.ord_type == kSzseMarket) return true;
    return e.price <= 0;
}

Applied Book::add_order(const L3Event& e) {
    const Side side{e.side};
    if (side == Side::unknown) [[unlikely]]
        return distrust(Distrust::no_side);
    if (e.qty == 0) return Applied::unchanged;
    if (l3_.find(e.order_id) != L3::kNone) [[unlikely]]
        return unknown(e.order_id, Distrust::duplicate_order);
    // A reused id: the order that waited for its price is gone, and the price does not apply to
    // this one.
    if (settling_.on && settling_.id == e.order_id) [[unlikely]]
        settling_ = {};
    std::int64_t price = e.price;
    bool unpriced = is_unpriced(e);
    if (options_.rules == Rules::szse && e.ord_type == kSzseOwnBest) {
        // Joins the best price of its own side; if there is none the exchange cancels it.
        unpriced = l3_.side(side).empty();
        if (!unpriced) price = l3_.side(side).best_price();
    }
    if (unpriced) {
        l3_.add_unpriced(e.order_id, side, e.qty);
        return Applied::changed;
    }
    if (!l3_.add(e.order_id, side, price, e.qty)) return distrust(Distrust::does_not_fit);
    return Applied::changed;
}

Applied Book::cancel_order(const L3Event& e) {
    const std::uint64_t id = cancelled_id(e);
    const std::uint32_t slot = l3_.find(id);
    if (slot == L3::kNone) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    if (contradicts(e, slot)) [[unlikely]]
        return unknown(id, Distrust::unknown_order);
    const std::int64_t remaining = l3_.order(slot).remaining;
    if (e.qty > remaining) return distrust(Distrust::negative_size);
    l3_.reduce(slot, e.qty == 0 ? remaining : e.qty);
    return Applied::changed;
}

// Whether an event of Shanghai, which repeats price and side of the order, means another one: its
// id, or that of the order, is not what the exchange sent.
bool Book::contradicts(const L3Event& e, std::uint32_t slot) const noexcept {
    if (options_.rules != Rules::sse || !l3_.rests(slot)) return false;
    const L3::Order& order = l3_.order(slot);
    const bool of_cancel = L3Type{e.event_type} == L3Type::cancel;
    if (of_cancel && e.side != 0 && Side{e.side} != order.side) return true;
    // A trade of continuous trading, which has an aggressor, is at the price of the resting order.
    return (of_cancel || e.side != 0) && e.price > 0 && l3_.level(order.level).price != e.price;
}

Applied Book::modify_order(const L3Event& e) {
    const std::uint32_t slot = l3_.find(e.order_id);
    if (slot == L3::kNone) [[unlikely]]
        return unknown(e.order_id, Distrust::unknown_order);
    const L3::Order& order = l3_.order(slot);
    if (e.qty == 0) {
        l3_.remove(slot);
    } else if (is_unpriced(e)) {
        l3_.move_to_unpriced(slot, e.qty);
    } else if (l3_.rests(slot) && l3_.level(order.level).price == e.price &&
               e.qty <= order.remaining) {
        if (e.qty == order.remaining) return Applied::unchanged;
        l3_.reduce(slot, order.remaining - e.qty);  // a reduced order keeps its place
    } else if (!l3_.move(slot, e.price, e.qty)) {
        return distrust(Distrust::does_not_fit);
    }
    if (settling_.on && settling_.id == e.order_id) settling_ = {};
    return Applied::changed;
}

Applied Book::trade(const L3Event& e) {
    bool bid = (e.flags & format::kL3HasBidId) != 0;
    bool ask = (e.flags & format::kL3HasAskId) != 0;
    std::uint64_t ids[2] = {};
    std::size_t count = 0;
    if (!bid && !ask) {
        ids[count++] = e.order_id;
    } else if (options_.rules == Rules::sse && e.side != 0) {
        // Shanghai shows an aggressor only as the remainder of its trades: it is not in the book
        // yet.
        bid = bid && Side{e.side} == Side::sell;
        ask = ask && Side{e.side} == Side::buy;
    }
    if (bid) ids[count++] = e.bid_order_id;
    if (ask) ids[count++] = e.ask_order_id;
    if (e.qty == 0) return Applied::unchanged;

    // All checks first, so that a trade is applied to both sides or to none.
    std::uint32_t slots[2];
    std::size_t found = 0;
    for (std::size_t i = 0; i < count; ++i) {
        const std::uint32_t slot = l3_.find(ids[i]);
        if (slot == L3::kNone) [[unlikely]] {
            unknown(ids[i], Distrust::unknown_order);
            if (!trusted()) return Applied::ignored;
            continue;
        }
        if (contradicts(e, slot)) [[unlikely]]
            return unknown(ids[i], Distrust::unknown_order);
        if (l3_.order(slot).remaining < e.qty) return distrust(Distrust::negative_size);
        if (found == 1 && slots[0] == slot) continue;  // both sides name the same order
        slots[found++] = slot;
    }
    for (std::size_t i = 0; i < found; ++i) {
        const bool some_left = l3_.order(slots[i]).remaining > e.qty;
        l3_.reduce(slots[i], e.qty);
        if (some_left && options_.rules == Rules::szse && !l3_.rests(slots[i])) [[unlikely]]
            await_price(slots[i], e.price);
    }
    return found > 0 ? Applied::changed : Applied::unchanged;
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

}  // namespace tapewire::book
