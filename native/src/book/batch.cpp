#include "tapewire/book/batch.hpp"

#include <cstddef>
#include <type_traits>

#include "tapewire/checksum.hpp"

namespace tapewire::book {

namespace {

RecordView view_of(const BatchColumns& records, std::size_t i) noexcept {
    RecordView view;
    view.payload = records.payload[i];
    view.payload_len = records.payload_len[i];
    view.type_id = records.type_id[i];
    view.seq = records.seq[i];
    view.timestamp_ns = records.timestamp_ns[i];
    return view;
}

// The orders that events name are scattered in memory, and waiting for them is most of the cost of
// an event: so their memory is prefetched this many events ahead. The ids are not checked yet and
// may be invalid.
constexpr std::size_t kEntryAhead = 16, kOrderAhead = 8;

std::uint64_t order_id_of(const BatchColumns& records, std::size_t i) noexcept {
    constexpr std::size_t kAt = sizeof(format::BookEventHeader);
    if (records.payload_len[i] < kAt + sizeof(format::L3Event)) return 0;
    const auto at = [&](std::size_t offset) {
        return detail::load_as<std::uint64_t>(records.payload[i] + kAt + offset);
    };
    // For a trade, the order that rested: the only one it names; otherwise a wrong guess.
    return at(offsetof(format::L3Event, order_id)) | at(offsetof(format::L3Event, bid_order_id)) |
           at(offsetof(format::L3Event, ask_order_id));
}

// Calls f(event, seq) with an OrderEvent, or with a BookEvent if the event is not a plain one.
template <typename F>
void each_event(const Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                std::size_t& done, F&& f) {
    const bool l3 = book.options().mode == format::BookMode::l3;
    market::OrderEvent order;
    market::BookEvent event;
    for (std::size_t i = from; i < to; ++i) {
        if (l3 && i + kEntryAhead < to) {
            __builtin_prefetch(records.payload[i + kOrderAhead]);  // its header, read again later
            book.l3().prefetch_entry(order_id_of(records, i + kEntryAhead));
            book.l3().prefetch_order(order_id_of(records, i + kOrderAhead));
        }
        done = i + 1 - from;
        if (records.type_id[i] != format::kBookEvent) continue;
        if (l3 && market::decode_order_event(records.payload[i], records.payload_len[i],
                                             records.timestamp_ns[i], order)) {
            f(order, records.seq[i]);
        } else {
            market::decode_book_event(view_of(records, i), event);
            f(event, records.seq[i]);
        }
    }
}

}  // namespace

std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done) {
    std::size_t changed = 0;
    each_event(book, records, from, to, done, [&](const auto& event, std::uint64_t seq) {
        changed += book.apply(event, seq) == Applied::changed;
    });
    return changed;
}

std::vector<TopRow> tops(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                         RowPer per, std::size_t& done) {
    const bool by_level = per == RowPer::level && book.options().mode == format::BookMode::l2;
    std::size_t most = to - from;  // upper bound of rows: a level takes 16 bytes of its record
    if (by_level)
        for (std::size_t i = from; i < to; ++i)
            most += records.payload_len[i] / sizeof(format::Level);
    std::vector<TopRow> rows;
    rows.reserve(most);
    each_event(book, records, from, to, done, [&](const auto& event, std::uint64_t seq) {
        if constexpr (std::is_same_v<decltype(event), const market::BookEvent&>) {
            if (by_level) {
                book.apply(event, seq, rows);
                return;
            }
        }
        book.apply(event, seq);
        rows.push_back(book.top_row(book.last_timestamp_ns()));
    });
    return rows;
}

}  // namespace tapewire::book
