#include "tapewire/book/batch.hpp"

#include <cstddef>
#include <cstring>

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

// The orders that events name lie anywhere, and waiting for them is most of what an event costs: so
// their memory is asked for this many events ahead. The ids are not checked yet, and need not be
// right.
constexpr std::size_t kEntryAhead = 16, kOrderAhead = 8;

std::uint64_t order_id_of(const BatchColumns& records, std::size_t i) noexcept {
    constexpr std::size_t kAt =
        sizeof(format::BookEventHeader) + offsetof(format::L3Event, order_id);
    std::uint64_t id = 0;
    if (records.payload_len[i] >= kAt + sizeof id)
        std::memcpy(&id, records.payload[i] + kAt, sizeof id);
    return id;
}

template <typename F>
void each_event(const Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                std::size_t& done, F&& f) {
    const bool ahead = book.options().mode == format::BookMode::l3;
    for (std::size_t i = from; i < to; ++i) {
        if (ahead && i + kEntryAhead < to) {
            book.l3().prefetch_entry(order_id_of(records, i + kEntryAhead));
            book.l3().prefetch_order(order_id_of(records, i + kOrderAhead));
        }
        done = i + 1 - from;
        if (records.type_id[i] != format::kBookEvent) continue;
        f(market::decode_book_event(view_of(records, i)), records.seq[i]);
    }
}

}  // namespace

std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done) {
    std::size_t changed = 0;
    each_event(book, records, from, to, done,
               [&](const market::BookEvent& event, std::uint64_t seq) {
                   changed += book.apply(event, seq) == Applied::changed;
               });
    return changed;
}

std::vector<TopRow> tops(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                         RowPer per, std::size_t& done) {
    std::size_t most = to - from;  // rows: a level takes 16 bytes of its record
    if (per == RowPer::level)
        for (std::size_t i = from; i < to; ++i)
            most += records.payload_len[i] / sizeof(format::Level);
    std::vector<TopRow> rows;
    rows.reserve(most);
    each_event(book, records, from, to, done,
               [&](const market::BookEvent& event, std::uint64_t seq) {
                   if (per == RowPer::level) {
                       book.apply(event, seq, rows);
                   } else {
                       book.apply(event, seq);
                       rows.push_back(book.top_row(book.last_timestamp_ns()));
                   }
               });
    return rows;
}

}  // namespace tapewire::book
