// Market data messages: each rule of decode_book_event, broken in turn; decoding of what was
// encoded.
#include <array>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "tapewire/error.hpp"
#include "tapewire/market/columns.hpp"
#include "tapewire/market/decimal.hpp"
#include "tapewire/market/encode.hpp"
#include "tapewire/market/event.hpp"
#include "tapewire/xxhash.hpp"

namespace {

using namespace tapewire;
using market::BookEvent;

constexpr market::EventHead kHead{.timestamp_ns = 1000,
                                  .exchange_ts_ns = 900,
                                  .native_seq = 9,
                                  .market_id = 70'000,
                                  .stream_id = 4,
                                  .venue_id = 3,
                                  .price_scale = 2,
                                  .size_scale = 8};

using Bytes = std::vector<std::byte>;

Bytes diff_of(const std::vector<format::Level>& bids, const std::vector<format::Level>& asks,
              bool delta = false) {
    Bytes bytes(market::kDiffHeadBytes + 16 * (bids.size() + asks.size()));
    std::byte* at = market::begin_diff(bytes.data(), kHead, {7, 9, 6}, delta,
                                       static_cast<std::uint16_t>(bids.size()),
                                       static_cast<std::uint16_t>(asks.size()));
    for (const auto* side : {&bids, &asks})
        for (const format::Level& level : *side) {
            std::memcpy(at, &level, sizeof level);
            at += sizeof level;
        }
    return bytes;
}

Bytes order_of(format::L3Type type) {
    Bytes bytes(market::kOrderBytes);
    format::L3Event order{};
    order.event_type = static_cast<std::uint8_t>(type);
    order.side = 1;
    order.price = -5;
    order.qty = 7;
    market::encode_order(bytes.data(), kHead, order);
    return bytes;
}

Bytes plain(format::EventType type, format::BookMode mode) {
    const auto header = market::make_header(kHead, type, mode, 0, 64);
    Bytes bytes(sizeof header);
    std::memcpy(bytes.data(), &header, sizeof header);
    return bytes;
}

RecordView record_of(const Bytes& bytes) {
    RecordView record;
    record.payload = bytes.data();
    record.payload_len = static_cast<std::uint32_t>(bytes.size());
    record.type_id = format::kBookEvent;
    record.seq = 12;
    record.timestamp_ns = 1000;
    return record;
}

template <typename T>
Bytes with(Bytes bytes, std::size_t offset, T value) {
    std::memcpy(bytes.data() + offset, &value, sizeof value);
    return bytes;
}

// The message of the error with this code, or what happened instead.
std::string refused(const Bytes& bytes, Errc code = Errc::corrupt_record) {
    try {
        market::decode_book_event(record_of(bytes));
    } catch (const Error& error) {
        return error.code == code ? error.message : "another error: " + error.message;
    }
    return "accepted";
}

bool names(const std::string& message, const std::string& what) {
    const bool found = message.find(what) != std::string::npos;
    if (!found) std::cerr << "not in \"" << message << "\": " << what << '\n';
    return found;
}

constexpr std::size_t kDiff = sizeof(format::BookEventHeader);

}  // namespace

TEST(a_diff_is_decoded_in_place) {
    const Bytes bytes = diff_of({{10, 1}, {9, 0}}, {{-11, 3}}, true);
    const BookEvent event = market::decode_book_event(record_of(bytes));
    CHECK(event.type() == format::EventType::diff);
    CHECK_EQ(event.head.schema_version, 3);
    CHECK_EQ(event.head.market_id, 70'000);
    CHECK_EQ(event.update_first, 7);
    CHECK_EQ(event.update_last, 9);
    CHECK_EQ(event.update_prev, 6);
    CHECK(event.delta);
    CHECK_EQ(event.price_scale, 2);
    CHECK_EQ(event.size_scale, 8);
    CHECK_EQ(event.bid_count, 2);
    CHECK_EQ(event.ask_count, 1);
    CHECK(event.bids == bytes.data() + market::kDiffHeadBytes);
    CHECK_EQ(market::level_at(event.bids, 1).price, 9);
    CHECK_EQ(market::level_at(event.asks, 0).price, -11);
    CHECK_EQ(market::level_at(event.asks, 0).size, 3);
}

TEST(a_snapshot_carries_its_last_update) {
    Bytes bytes(market::kSnapshotHeadBytes + 16);
    const format::Level level{10, 2};
    std::memcpy(market::begin_snapshot(bytes.data(), kHead, 0, 1), &level, sizeof level);
    const BookEvent event = market::decode_book_event(record_of(bytes));
    CHECK(event.type() == format::EventType::snapshot);
    CHECK_EQ(event.update_last, 9);
    CHECK_EQ(event.bid_count, 0);
    CHECK_EQ(market::level_at(event.asks, 0).size, 2);
    CHECK(names(refused(with(bytes, 58, std::uint16_t{2})), "flags=2"));
    CHECK(names(refused(with(bytes, 64, std::uint8_t{19})), "price_scale=19"));
    CHECK(names(refused(with(bytes, 65, std::uint8_t{19})), "size_scale=19"));
    // Counts whose sum, or whose size in bytes, overflows 32 bits.
    CHECK(names(refused(with(bytes, 68, 0xFFFFFFFFu)), "bid_count=4294967295"));
    CHECK(names(refused(with(bytes, 72, 0x10000001u)), "ask_count=268435457"));
}

TEST(an_order_keeps_prices_below_zero) {
    const Bytes bytes = order_of(format::L3Type::add);
    const BookEvent event = market::decode_book_event(record_of(bytes));
    CHECK(event.mode() == format::BookMode::l3);
    CHECK_EQ(event.order.price, -5);
    CHECK_EQ(event.price_scale, 2);
    CHECK(names(refused(with(bytes, 64, std::uint8_t{7})), "order.event_type=7"));
    CHECK(names(refused(with(bytes, 64, std::uint8_t{0})), "order.event_type=0"));
    CHECK(names(refused(with(bytes, 65, std::uint8_t{3})), "order.side=3"));
    CHECK(names(refused(with(bytes, 68, std::uint8_t{19})), "price_scale=19"));
    CHECK(names(refused(with(bytes, 69, std::uint8_t{19})), "size_scale=19"));
    CHECK(names(refused(with(bytes, 72, std::uint32_t{64})), "order.flags=64"));
    CHECK(names(refused(with(bytes, 56, std::uint8_t{3})), "order.event_type=1, event_type=3"));
    CHECK(names(refused(with(bytes, 56, std::uint8_t{1})), "event_type=1"));
}

TEST(a_reused_event_keeps_nothing_of_the_previous_one) {
    Bytes snapshot(market::kSnapshotHeadBytes + 16);
    const format::Level level{10, 2};
    std::memcpy(market::begin_snapshot(snapshot.data(), kHead, 0, 1), &level, sizeof level);
    const std::vector<Bytes> kinds = {diff_of({{10, 1}}, {{11, 1}}, true), snapshot,
                                      order_of(format::L3Type::trade),
                                      plain(format::EventType::reset, format::BookMode::l2),
                                      plain(format::EventType::heartbeat, format::BookMode::l3)};
    const auto fields = [](const BookEvent& e) {
        return std::tuple(e.head.event_type, e.head.book_mode, e.price_scale, e.size_scale, e.delta,
                          e.update_first, e.update_last, e.update_prev, e.bids, e.asks, e.bid_count,
                          e.ask_count, e.order.event_type, e.order.price, e.order.qty);
    };
    for (const Bytes& before : kinds) {
        for (const Bytes& after : kinds) {
            BookEvent used;
            market::decode_book_event(record_of(before), used);
            market::decode_book_event(record_of(after), used);
            CHECK(fields(used) == fields(market::decode_book_event(record_of(after))));
        }
    }
}

// Changes every byte of an order's event to every other value: the short decoder takes exactly what
// the long one does.
TEST(the_short_decoder_takes_exactly_the_valid_orders) {
    std::size_t taken = 0;
    for (const auto type : {format::L3Type::add, format::L3Type::reset}) {
        const Bytes right = order_of(type);
        for (std::size_t at = 0; at < right.size(); ++at) {
            for (int value = 0; value < 256; ++value) {
                Bytes bytes = right;
                bytes[at] = static_cast<std::byte>(value);
                market::OrderEvent order;
                const bool is = market::decode_order_event(
                    bytes.data(), static_cast<std::uint32_t>(bytes.size()),
                    static_cast<std::int64_t>(kHead.timestamp_ns), order);
                BookEvent event;
                bool whole = true;
                try {
                    event = market::decode_book_event(record_of(bytes));
                    whole = event.type() == format::EventType::diff &&
                            event.mode() == format::BookMode::l3;
                } catch (const Error&) {
                    whole = false;
                }
                CHECK_EQ(is, whole);
                if (!is) continue;
                ++taken;
                CHECK_EQ(order.ingest_ts_ns, event.head.ingest_ts_ns);
                CHECK_EQ(order.exchange_ts_ns, event.head.exchange_ts_ns);
                CHECK_EQ(order.market_id, event.head.market_id);
                CHECK_EQ(order.venue_id, event.head.venue_id);
                CHECK(std::memcmp(&order.order, &event.order, sizeof order.order) == 0);
            }
        }
    }
    CHECK(taken > 10'000);
    market::OrderEvent order;
    const Bytes right = order_of(format::L3Type::add);
    CHECK(!market::decode_order_event(right.data(), 127, 1000, order));
}

TEST(a_reset_may_come_without_a_body) {
    for (const auto type : {format::EventType::reset, format::EventType::heartbeat}) {
        for (const auto mode : {format::BookMode::l2, format::BookMode::l3}) {
            const Bytes bytes = plain(type, mode);
            const BookEvent event = market::decode_book_event(record_of(bytes));
            CHECK(event.type() == type);
            CHECK_EQ(event.bid_count + event.ask_count, 0);
        }
    }
    const BookEvent bare =
        market::decode_book_payload(plain(format::EventType::reset, format::BookMode::l3));
    CHECK_EQ(bare.order.event_type, 5);
    const Bytes whole = order_of(format::L3Type::reset);
    CHECK(market::decode_book_payload(whole).type() == format::EventType::reset);
    // In an array of rows only the order's own type is set.
    CHECK_EQ(market::decode_book_payload(with(whole, 56, std::uint8_t{2})).order.event_type, 5);
}

TEST(version_2_is_read_and_others_are_refused) {
    const Bytes bytes = diff_of({}, {});
    CHECK_EQ(market::decode_book_payload(with(bytes, 0, std::uint16_t{2})).head.schema_version, 2);
    for (const std::uint16_t version : std::array<std::uint16_t, 4>{0, 1, 4, 65535}) {
        const std::string why = refused(with(bytes, 0, version), Errc::unsupported_version);
        CHECK(names(why, "schema_version=" + std::to_string(version)));
    }
    try {
        market::decode_book_payload(with(bytes, 0, std::uint16_t{4}));
        CHECK(false);
    } catch (const Error& error) {
        CHECK(names(error.hint, "upgrade"));
    }
}

TEST(every_field_of_a_diff_that_breaks_a_rule_is_named) {
    const Bytes bytes = diff_of({{10, 1}}, {{11, 1}});
    CHECK_EQ(refused(bytes), "accepted");
    CHECK(names(refused(with(bytes, 4, 127u)), "record_len=127, payload=128"));
    CHECK(names(refused(with(bytes, 8, std::uint8_t{1})), "endianness=1"));
    CHECK(names(refused(with(bytes, 24, std::uint64_t{999})), "ingest_ts_ns=999"));
    CHECK(names(refused(with(bytes, 56, std::uint8_t{0})), "event_type=0"));
    CHECK(names(refused(with(bytes, 56, std::uint8_t{6})), "event_type=6"));
    CHECK(names(refused(with(bytes, 56, std::uint8_t{3})), "record_len=128"));
    CHECK(names(refused(with(bytes, 57, std::uint8_t{2})), "book_mode=2"));
    CHECK(names(refused(with(bytes, 58, std::uint16_t{8})), "flags=8"));
    CHECK(names(refused(with(bytes, 58, std::uint16_t{3})), "flags=3"));
    CHECK(names(refused(with(bytes, kDiff + 24, std::uint8_t{19})), "price_scale=19"));
    CHECK(names(refused(with(bytes, kDiff + 25, std::uint8_t{255})), "size_scale=255"));
    CHECK(names(refused(with(bytes, kDiff + 26, std::uint16_t{2})), "diff.flags=2, flags=5"));
    CHECK(names(refused(with(bytes, kDiff + 28, std::uint16_t{2})), "bid_count=2"));
    CHECK(names(refused(with(bytes, kDiff + 30, std::uint16_t{0})), "ask_count=0"));
    CHECK(names(refused(with(bytes, 4, 127u)), "seq=12"));
    // A repeated kind, and padding, are no errors.
    CHECK_EQ(refused(with(bytes, kDiff + 26, std::uint16_t{1})), "accepted");
    for (const std::size_t padding : {2u, 3u, 9u, 20u, 23u, 60u, 63u})
        CHECK_EQ(refused(with(bytes, padding, std::uint8_t{0xFF})), "accepted");
}

TEST(every_length_that_is_too_short_or_too_long_is_refused) {
    for (const Bytes& whole : {diff_of({{10, 1}}, {{11, 1}}), order_of(format::L3Type::add),
                               plain(format::EventType::reset, format::BookMode::l2)}) {
        for (std::size_t size = 0; size < whole.size() + 40; ++size) {
            if (size == whole.size()) continue;
            Bytes cut = whole;
            cut.resize(size);
            CHECK(refused(cut) != "accepted");
            if (size >= 8)
                CHECK(refused(with(cut, 4, static_cast<std::uint32_t>(size))) != "accepted");
        }
    }
}

TEST(another_type_is_neither_a_book_event_nor_a_trade) {
    const Bytes bytes = diff_of({}, {});
    RecordView record = record_of(bytes);
    record.type_id = 0x1001;
    CHECK_THROWS(market::decode_book_event(record), Error);
    CHECK_THROWS(market::decode_trade(record), Error);
}

TEST(a_trade_is_checked) {
    format::TradeTick tick{};
    tick.timestamp_ns = 5;
    tick.price = -7;
    tick.size = 3;
    tick.trade_id = 11;
    tick.market_id = 70'000;
    tick.price_scale = 2;
    tick.is_buyer_maker = 2;
    Bytes bytes(sizeof tick);
    std::memcpy(bytes.data(), &tick, sizeof tick);
    const auto decoded = [](const Bytes& payload) {
        RecordView record = record_of(payload);
        record.type_id = format::kTradeTick;
        return market::decode_trade(record);
    };
    const market::TradeView trade = decoded(bytes);
    CHECK_EQ(trade.price, -7);
    CHECK_EQ(trade.trade_id, 11);
    CHECK_EQ(trade.market_id, 70'000);
    CHECK_EQ(trade.is_buyer_maker, 2);
    CHECK_THROWS(decoded(with(bytes, 60, std::uint8_t{19})), Error);
    CHECK_THROWS(decoded(with(bytes, 61, std::uint8_t{19})), Error);
    CHECK_THROWS(decoded(with(bytes, 62, std::uint8_t{3})), Error);
    bytes.resize(63);
    CHECK_THROWS(decoded(bytes), Error);
}

TEST(a_full_diff_has_65535_levels_a_side) {
    const std::vector<format::Level> side(65535, format::Level{1, 2});
    const Bytes bytes = diff_of(side, side);
    const BookEvent event = market::decode_book_event(record_of(bytes));
    CHECK_EQ(event.bid_count, 65535);
    CHECK_EQ(market::level_at(event.asks, 65534).size, 2);
}

TEST(levels_of_a_batch_are_counted_and_copied) {
    const Bytes one = diff_of({{10, 1}, {9, 2}}, {{11, 3}});
    const Bytes two = diff_of({}, {{12, 4}});
    BatchColumns batch;
    batch.push(record_of(one));
    RecordView other = record_of(two);
    other.type_id = 1;
    batch.push(other);
    batch.push(record_of(two));
    const market::BookCounts counts = market::count_book_events(batch, 0, 3);
    CHECK_EQ(counts.events, 2);
    CHECK_EQ(counts.levels, 4);
    std::array<market::LevelRow, 4> rows{};
    market::copy_levels(batch, 0, 3, rows.data(), rows.size());
    CHECK_EQ(rows[1].price, 9);
    CHECK_EQ(rows[2].side, 2);
    CHECK_EQ(rows[3].event, 1);
    CHECK_EQ(rows[3].size, 4);
    std::array<format::BookEventHeader, 2> headers{};
    market::copy_headers(batch, 0, 3, headers.data());
    CHECK_EQ(headers[1].seq, 12);
}

// As in a file that is written to between the count and the copy.
TEST(levels_beyond_what_was_counted_are_refused) {
    const Bytes one = diff_of({{10, 1}, {9, 2}}, {{11, 3}});
    BatchColumns batch;
    batch.push(record_of(one));
    batch.push(record_of(one));
    std::array<market::LevelRow, 6> rows{};
    CHECK_THROWS(market::copy_levels(batch, 0, 2, rows.data(), 5), Error);
    CHECK_EQ(rows[3].price, 0);
    market::copy_levels(batch, 0, 2, rows.data(), 6);
    CHECK_EQ(rows[3].price, 10);
}

TEST(decimals_are_exact_or_refused) {
    using market::Decimal;
    std::int64_t value = 0;
    const auto of = [&value](std::string_view text, int scale) {
        return market::parse_decimal(text, scale, value);
    };
    CHECK(of("101.50", 2) == Decimal::fits);
    CHECK_EQ(value, 10150);
    CHECK(of("-9223372036854775808", 0) == Decimal::fits);
    CHECK_EQ(value, std::numeric_limits<std::int64_t>::min());
    CHECK(of("9223372036854775808", 0) == Decimal::too_large);
    CHECK(of("1.5000000000000000000000000", 1) == Decimal::fits);
    CHECK_EQ(value, 15);
    CHECK(of("1.05", 1) == Decimal::digits_lost);
    CHECK(of("1e2", 0) == Decimal::fits);
    CHECK_EQ(value, 100);
    CHECK(of("150e-1", 0) == Decimal::fits);
    CHECK_EQ(value, 15);
    for (const char* text : {"", "-", ".", "1.2.3", "1e", "1e+", "0x10", " 1", "1 ", "nan", "1_0"})
        CHECK(of(text, 2) == Decimal::not_a_number);
}

// Values of the reference implementation; the Python tests compare with it at every length.
TEST(hashes_are_those_of_xxhash) {
    const auto of = [](std::string_view text) {
        return xxh64(std::as_bytes(std::span(text.data(), text.size())));
    };
    CHECK_EQ(of(""), 0xEF46DB3751D8E999);
    CHECK_EQ(of("abc"), 0x44BC2CF5AD770999);
    CHECK((Xxh3().digest() == Hash128{0x6001C324468D497F, 0x99AA06D3014798D8}));
}

TEST_MAIN()
