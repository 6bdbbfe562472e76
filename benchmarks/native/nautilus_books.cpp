// nautilus_trader's order book through the C interface that its own Cython classes call, with no
// interpreter and no Python object in the loop. Compiled against the header and the library of the
// installed package.
#include <cstdint>
#include <cstring>
#include <ctime>
#include <vector>

extern "C" {
#include "core.h"
// model.h needs what core.h declares.
#include "model.h"
}

namespace {

// The layout that nautilus_books.py makes of events.L2_DTYPE and L3_DTYPE.
struct Event {
    std::int64_t price;
    std::int64_t size;
    std::uint64_t order;
    std::uint8_t action;
    std::uint8_t side;
    std::uint8_t unused[6];
};

struct Best {
    std::int64_t bids;
    std::int64_t asks;
};

std::vector<OrderBookDelta_t> deltas;
InstrumentId_t instrument;
PriceRaw raw_tick;

PriceRaw power_of_ten(int exponent) {
    PriceRaw value = 1;
    for (int i = 0; i < exponent; ++i) value *= 10;
    return value;
}

}  // namespace

extern "C" {

// All deltas, created before anything is timed.
void prepare(const Event* events, long count, int price_scale, int size_scale) {
    instrument = instrument_id_new(symbol_new("BOOK"), venue_new("BENCH"));
    raw_tick = power_of_ten(FIXED_PRECISION - price_scale);
    const QuantityRaw raw_lot = power_of_ten(FIXED_PRECISION - size_scale);
    deltas.clear();
    deltas.reserve(static_cast<std::size_t>(count));
    for (long i = 0; i < count; ++i) {
        const Event& event = events[i];
        const Price_t price{event.price * raw_tick, static_cast<std::uint8_t>(price_scale)};
        const Quantity_t size{static_cast<QuantityRaw>(event.size) * raw_lot,
                              static_cast<std::uint8_t>(size_scale)};
        const BookOrder_t order =
            book_order_new(static_cast<OrderSide>(event.side), price, size, event.order);
        deltas.push_back(orderbook_delta_new(instrument, static_cast<BookAction>(event.action),
                                             order, 0, static_cast<std::uint64_t>(i), 0, 0));
    }
}

OrderBook* open_book(int type) { return orderbook_new(instrument, static_cast<BookType>(type))._0; }

void close_book(OrderBook* book) { orderbook_drop(OrderBook_API{book}); }

// Applies all deltas; from delta `both` on, reads both best prices after each.
Best replay(OrderBook* opened, long both) {
    OrderBook_API book{opened};
    PriceRaw bids = 0, asks = 0;
    const long count = static_cast<long>(deltas.size());
    for (long i = 0; i < count; ++i) {
        orderbook_apply_delta(&book, &deltas[static_cast<std::size_t>(i)]);
        if (i >= both) {
            bids += orderbook_best_bid_price(&book).raw;
            asks += orderbook_best_ask_price(&book).raw;
        }
    }
    return {static_cast<std::int64_t>(bids / raw_tick), static_cast<std::int64_t>(asks / raw_tick)};
}

// Writes up to `count` levels of one side, best first, as ticks and sizes; returns their number.
long ladder(OrderBook* opened, int side, long count, std::int64_t* prices, double* sizes) {
    OrderBook_API book{opened};
    const CVec levels = side == 1 ? orderbook_bids(&book) : orderbook_asks(&book);
    const long found = levels.len < static_cast<uintptr_t>(count) ? levels.len : count;
    for (long i = 0; i < found; ++i) {
        const BookLevel_API* level = static_cast<BookLevel_API*>(levels.ptr) + i;
        prices[i] = static_cast<std::int64_t>(level_price(level).raw / raw_tick);
        sizes[i] = level_size(level);
    }
    vec_drop_book_levels(levels);
    return found;
}

}  // extern "C"
