#include "tapewire/market/columns.hpp"

#include <string>

#include "tapewire/error.hpp"
#include "tapewire/market/event.hpp"

namespace tapewire::market {

namespace {

template <typename Visit>
void each_event(const BatchColumns& batch, std::size_t from, std::size_t to, Visit visit) {
    BookEvent event;
    for (std::size_t i = from; i < to; ++i) {
        if (batch.type_id[i] != format::kBookEvent) continue;
        RecordView record;
        record.payload = batch.payload[i];
        record.payload_len = batch.payload_len[i];
        record.type_id = batch.type_id[i];
        record.seq = batch.seq[i];
        record.timestamp_ns = batch.timestamp_ns[i];
        decode_book_event(record, event);
        visit(event, record);
    }
}

LevelRow* copy_side(LevelRow* out, std::uint32_t event, format::Side side, const std::byte* levels,
                    std::uint32_t count) noexcept {
    for (std::uint32_t i = 0; i < count; ++i) {
        const format::Level level = level_at(levels, i);
        *out++ = {event, static_cast<std::uint8_t>(side), {}, level.price, level.size};
    }
    return out;
}

}  // namespace

BookCounts count_book_events(const BatchColumns& batch, std::size_t from, std::size_t to) {
    BookCounts counts;
    each_event(batch, from, to, [&](const BookEvent& event, const RecordView&) {
        ++counts.events;
        counts.levels += std::size_t{event.bid_count} + event.ask_count;
    });
    return counts;
}

void copy_headers(const BatchColumns& batch, std::size_t from, std::size_t to,
                  format::BookEventHeader* out) {
    each_event(batch, from, to, [&](const BookEvent& event, const RecordView& record) {
        *out = event.head;
        out->seq = record.seq;  // whatever the writer stored there
        ++out;
    });
}

void copy_levels(const BatchColumns& batch, std::size_t from, std::size_t to, LevelRow* out,
                 std::size_t room) {
    std::uint32_t number = 0;
    each_event(batch, from, to, [&](const BookEvent& event, const RecordView& record) {
        const std::size_t count = std::size_t{event.bid_count} + event.ask_count;
        if (count > room)
            throw Error(Errc::corrupt_record, "a record must not change while it is read: seq=" +
                                                  std::to_string(record.seq));
        room -= count;
        out = copy_side(out, number, format::Side::buy, event.bids, event.bid_count);
        out = copy_side(out, number, format::Side::sell, event.asks, event.ask_count);
        ++number;
    });
}

}  // namespace tapewire::market
