// Applies the columns of a batch to a book: loops that Python calls without the GIL.
//
// Records of other types than BookEvent are skipped. `done` is the number of records consumed, also
// when an exception is thrown: it includes the record that threw, so a caller can resume after it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/cursor.hpp"

namespace tapewire::book {

// The orders that events name are scattered in memory, and waiting for them would be most of the
// cost of an event: so the loops below prefetch them this many events ahead.
inline constexpr std::size_t kEntryAhead = 16, kOrderAhead = 8;

// The order that an event probably names; not checked, may be invalid. For a trade, the order that
// rested: the only one it names; otherwise a wrong guess.
inline std::uint64_t order_id_of(const format::L3Event& order) noexcept {
    return order.order_id | order.bid_order_id | order.ask_order_id;
}

// Applies records [from, to). Returns how many events changed the book.
std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done);

enum class RowPer { event, level };

// The same; returns the best of both sides after each event or each level (see Book::apply).
std::vector<TopRow> tops(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                         RowPer per, std::size_t& done);

// Applies events of orders that are in memory and have one head; calls after() after each.
template <typename After>
void apply_orders(Book& book, const market::OrderHead& head,
                  std::span<const format::L3Event> orders, std::uint64_t first_seq, After&& after) {
    for (std::size_t i = 0; i < orders.size(); ++i) {
        if (book.l3().prefetches() && i + kEntryAhead < orders.size()) {
            book.l3().prefetch_entry(order_id_of(orders[i + kEntryAhead]));
            book.l3().prefetch_order(order_id_of(orders[i + kOrderAhead]));
        }
        book.apply(head, orders[i], first_seq + i);
        after();
    }
}

}  // namespace tapewire::book
