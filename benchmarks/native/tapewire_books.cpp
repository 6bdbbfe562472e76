// Tapewire's book of orders through its C++ interface: the events are in memory, as those of the
// alternatives are, and no interpreter is in the loop.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tapewire/book/batch.hpp"
#include "tapewire/book/book.hpp"

namespace {

using tapewire::book::Book;
using tapewire::format::L3Event;
using tapewire::format::Side;

struct Best {
    std::int64_t bids;
    std::int64_t asks;
};

std::vector<L3Event> events;
tapewire::book::Options options;
const tapewire::market::OrderHead kHead{.ingest_ts_ns = 1, .market_id = 1, .venue_id = 1};

}  // namespace

extern "C" {

void prepare(const L3Event* rows, long count, int price_scale, int size_scale) {
    events.assign(rows, rows + count);
    options.mode = tapewire::format::BookMode::l3;
    options.price_scale = static_cast<std::uint8_t>(price_scale);
    options.size_scale = static_cast<std::uint8_t>(size_scale);
}

Book* open_book() { return std::make_unique<Book>(options).release(); }

void close_book(Book* opened) { const std::unique_ptr<Book> book(opened); }

// Applies all events and reads both best prices after each; sums them from event `both` on.
Best replay(Book* book, long both) {
    Best sum{0, 0};
    long done = 0;
    tapewire::book::apply_orders(*book, kHead, events, 1, [&] {
        tapewire::format::Level bid{}, ask{};
        book->best(Side::buy, bid);
        book->best(Side::sell, ask);
        const bool counts = done++ >= both;
        sum.bids += counts ? bid.price : 0;
        sum.asks += counts ? ask.price : 0;
    });
    return sum;
}

// Writes up to `count` levels of one side, best first; returns their number.
long ladder(Book* book, int side, long count, tapewire::book::LevelRow* rows) {
    return static_cast<long>(
        book->top(Side{static_cast<std::uint8_t>(side)}, static_cast<std::size_t>(count), rows));
}

}  // extern "C"
