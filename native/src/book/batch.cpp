#include "tapewire/book/batch.hpp"

#include <algorithm>
#include <array>
#include <cstddef>

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

// Events that are decoded before the first of them is applied.
constexpr std::size_t kRun = 64;
using Run = std::array<market::OrderEvent, kRun>;

// Decodes the events of orders from record `at` on, up to the first record that is anything else.
// A loop of its own: it has no branch that depends on the market, unlike applying them, which the
// core cannot run ahead of.
std::size_t decode_run(const L3& l3, const BatchColumns& records, std::size_t at, std::size_t to,
                       Run& run) {
    const bool prefetches = l3.prefetches();
    const std::size_t most = std::min(to - at, kRun);
    std::size_t n = 0;
    for (; n < most && records.type_id[at + n] == format::kBookEvent; ++n) {
        if (!market::decode_order_event(records.payload[at + n], records.payload_len[at + n],
                                        records.timestamp_ns[at + n], run[n]))
            break;
        if (prefetches) l3.prefetch_entry(order_id_of(run[n].order));
    }
    return n;
}

// Applies each event, an order's by itself and any other by take(event, seq), and calls
// after(applied).
template <typename Take, typename After>
void each_event(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                std::size_t& done, Take&& take, After&& after) {
    const bool l3 = book.options().mode == format::BookMode::l3;
    Run run;
    market::BookEvent event;
    for (std::size_t i = from; i < to;) {
        const std::size_t n = l3 ? decode_run(book.l3(), records, i, to, run) : 0;
        const bool prefetches = book.l3().prefetches();
        for (std::size_t at = 0; at < n; ++at) {
            if (prefetches && at + kOrderAhead < n)
                book.l3().prefetch_order(order_id_of(run[at + kOrderAhead].order));
            done = ++i - from;
            after(book.apply(run[at], run[at].order, records.seq[i - 1]));
        }
        if (n == kRun || i == to) continue;
        done = ++i - from;
        if (records.type_id[i - 1] != format::kBookEvent) continue;
        market::decode_book_event(view_of(records, i - 1), event);
        after(take(event, records.seq[i - 1]));
    }
}

}  // namespace

std::size_t apply_batch(Book& book, const BatchColumns& records, std::size_t from, std::size_t to,
                        std::size_t& done) {
    std::size_t changed = 0;
    each_event(
        book, records, from, to, done,
        [&](const market::BookEvent& event, std::uint64_t seq) { return book.apply(event, seq); },
        [&](Applied applied) { changed += applied == Applied::changed; });
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
    each_event(
        book, records, from, to, done,
        [&](const market::BookEvent& event, std::uint64_t seq) {
            return by_level ? book.apply(event, seq, rows) : book.apply(event, seq);
        },
        [&](Applied) {
            if (!by_level) rows.push_back(book.top_row(book.last_timestamp_ns()));
        });
    return rows;
}

}  // namespace tapewire::book
