#include "tapewire/replay/level_rows.hpp"

namespace tapewire::replay {

void LevelRows::push(const Head& head, const book::Book* book) {
    const bool trust = book != nullptr && book->trusted();
    seq.push_back(head.seq.value_or(0));
    has_seq.push_back(head.seq.has_value() ? 1 : 0);
    trusted.push_back(trust ? 1 : 0);
    price_scale.push_back(book != nullptr ? book->options().price_scale : head.price_scale);
    size_scale.push_back(book != nullptr ? book->options().size_scale : head.size_scale);
    push_side(trust ? book : nullptr, format::Side::buy, bids);
    push_side(trust ? book : nullptr, format::Side::sell, asks);
}

void LevelRows::push_side(const book::Book* book, format::Side which, Side& side) {
    const std::size_t n = book == nullptr ? 0 : book->top(which, wanted_.levels, scratch_.data());
    for (std::size_t i = 0; i < n; ++i) {
        side.price.push_back(scratch_[i].price);
        side.size.push_back(scratch_[i].size);
        if (wanted_.orders) side.orders.push_back(scratch_[i].orders);
    }
    side.ends.push_back(static_cast<std::int32_t>(side.price.size()));
}

}  // namespace tapewire::replay
