// Converts a book to bytes and back. The input may be anything: every count is checked against the
// remaining bytes before it is used, and the result is always a book that could have been saved.
#include <cassert>
#include <cstring>
#include <string>

#include "tapewire/book/book.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/book_payload.hpp"

namespace tapewire::book {

using format::BookMode;
using format::BookPayload;
using format::Side;

namespace {

constexpr Side kSides[] = {Side::buy, Side::sell};

class Output {
  public:
    explicit Output(std::vector<std::byte>& bytes) : bytes_(bytes) {}

    template <typename T>
    void put(const T& record) {
        put_bytes(reinterpret_cast<const std::byte*>(&record), sizeof record);
    }
    void put_bytes(const std::byte* data, std::size_t size) {
        bytes_.insert(bytes_.end(), data, data + size);
    }

  private:
    std::vector<std::byte>& bytes_;
};

class Input {
  public:
    explicit Input(std::span<const std::byte> bytes) : bytes_(bytes) {}

    template <typename T>
    T take() {
        if (bytes_.size() - at_ < sizeof(T))
            damaged("the payload ends early", "bytes", bytes_.size());
        T record;
        std::memcpy(&record, bytes_.data() + at_, sizeof record);
        at_ += sizeof record;
        return record;
    }
    std::span<const std::byte> take_bytes(std::uint64_t size) {
        expect(size, 1, "bytes");
        at_ += size;
        return bytes_.subspan(at_ - size, size);
    }
    // At least this many records must remain: checked before anything is allocated for them.
    void expect(std::uint64_t count, std::size_t size, const char* name) const {
        if (count > (bytes_.size() - at_) / size)
            damaged("a count exceeds the bytes that follow", name, count);
    }
    void end() const {
        if (at_ != bytes_.size()) damaged("bytes follow the book", "extra", bytes_.size() - at_);
    }
    template <typename Number>
    [[noreturn]] void damaged(const char* rule, const char* name, Number value) const {
        throw Error(Errc::corrupt_metadata,
                    std::string("a saved book is damaged: ") + rule + ": " + name + "=" +
                        std::to_string(value),
                    {}, static_cast<std::int64_t>(at_));
    }

  private:
    std::span<const std::byte> bytes_;
    std::size_t at_ = 0;
};

// Checks levels that must come best first.
class Falling {
  public:
    explicit Falling(Side side) : side_(side) {}
    bool operator()(std::int64_t price) noexcept {
        const bool right = first_ || (side_ == Side::buy ? price < last_ : price > last_);
        first_ = false;
        last_ = price;
        return right;
    }

  private:
    Side side_;
    bool first_ = true;
    std::int64_t last_ = 0;
};

void load_levels(Input& in, L2::Side& levels, Side side, std::uint32_t count) {
    in.expect(count, sizeof(format::Level), "levels");
    Falling falling(side);
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto level = in.take<format::Level>();
        if (!falling(level.price)) in.damaged("levels must come best first", "price", level.price);
        if (level.size <= 0) in.damaged("a size must be above 0", "size", level.size);
        levels.set(level.price, level.size);
    }
}

void load_orders(Input& in, L3& l3, Side side, std::uint32_t count) {
    in.expect(count, sizeof(format::SavedLevel) + sizeof(format::SavedOrder), "levels");
    Falling falling(side);
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto level = in.take<format::SavedLevel>();
        if (!falling(level.price)) in.damaged("levels must come best first", "price", level.price);
        if (level.orders == 0) in.damaged("a level must have an order", "price", level.price);
        if (level.reserved != 0) in.damaged("must be 0", "reserved", level.reserved);
        in.expect(level.orders, sizeof(format::SavedOrder), "orders");
        for (std::uint32_t k = 0; k < level.orders; ++k) {
            const auto order = in.take<format::SavedOrder>();
            if (order.remaining <= 0)
                in.damaged("the remaining size of an order must be above 0", "id", order.id);
            const auto added = l3.add(order.id, side, level.price, order.remaining);
            if (added == L3::Added::known) in.damaged("duplicate order", "id", order.id);
            if (added == L3::Added::too_large)
                in.damaged("a level's sum must fit into 64 bits", "price", level.price);
        }
    }
}

void load_unpriced(Input& in, L3& l3, std::uint32_t count) {
    in.expect(count, sizeof(format::SavedUnpriced), "unpriced");
    for (std::uint32_t i = 0; i < count; ++i) {
        const auto order = in.take<format::SavedUnpriced>();
        if (order.remaining <= 0)
            in.damaged("the remaining size of an order must be above 0", "id", order.id);
        if (order.side < 1 || order.side > 2)
            in.damaged("a side must be 1 or 2", "side", order.side);
        if (l3.find(order.id) != L3::kNone) in.damaged("duplicate order", "id", order.id);
        l3.add_unpriced(order.id, static_cast<Side>(order.side), order.remaining);
    }
}

void check_same(const char* name, int saved, int wanted) {
    if (saved != wanted)
        throw Error(Errc::invalid_option, std::string("the saved book has other options: saved ") +
                                              name + "=" + std::to_string(saved) + ", " + name +
                                              "=" + std::to_string(wanted));
}

// The header, as far as it can be checked without the rest.
BookPayload checked_head(std::span<const std::byte> payload, Input& in) {
    const auto head = in.take<BookPayload>();
    const std::uint32_t crc =
        crc32c(payload.data() + sizeof head.crc, payload.size() - sizeof head.crc);
    if (crc != head.crc)
        throw Error(Errc::corrupt_metadata, "a saved book does not match its checksum: crc=" +
                                                hex(head.crc) + ", computed=" + hex(crc));
    if (head.version != format::kBookPayloadVersion)
        throw Error(Errc::unsupported_version,
                    "unknown version of a saved book: version=" + std::to_string(head.version) +
                        ", known=" + std::to_string(format::kBookPayloadVersion),
                    {}, -1, "rebuild it from the log, or upgrade Tapewire");
    if (head.book_mode > 1) in.damaged("a mode must be 0 or 1", "book_mode", head.book_mode);
    if (head.rules > static_cast<int>(kMaxRules))
        in.damaged("rules must be 0 to 3", "rules", head.rules);
    if (head.price_scale > format::kMaxScale)
        in.damaged("a scale must be at most 18", "price_scale", head.price_scale);
    if (head.size_scale > format::kMaxScale)
        in.damaged("a scale must be at most 18", "size_scale", head.size_scale);
    if (head.settling > 1) in.damaged("must be 0 or 1", "settling", head.settling);
    if (head.reserved != 0) in.damaged("must be 0", "reserved", head.reserved);
    return head;
}

// The part of a state after a book's payload: why the book is untrusted, and the diffs that it
// holds.
struct SavedTrust {
    std::uint32_t distrust;
    std::uint32_t quarantined;
    std::uint64_t waiting;
};

struct SavedDiff {  // followed by its bids, then its asks
    std::uint64_t update_first, update_last, update_prev, record_seq;
    std::uint32_t bid_count, ask_count;
    std::uint32_t price_scale, size_scale, delta, reserved;
};

market::BookEvent take_diff(Input& in, std::uint64_t& record_seq) {
    const auto saved = in.take<SavedDiff>();
    if (saved.price_scale > format::kMaxScale || saved.size_scale > format::kMaxScale)
        in.damaged("a scale must be at most 18", "price_scale", saved.price_scale);
    if (saved.delta > 1) in.damaged("must be 0 or 1", "delta", saved.delta);
    if (saved.reserved != 0) in.damaged("must be 0", "reserved", saved.reserved);
    if ((saved.update_prev | saved.update_last) == 0)
        in.damaged("buffered diffs must have ids", "record_seq", saved.record_seq);
    market::BookEvent diff;
    diff.head.event_type = static_cast<decltype(diff.head.event_type)>(format::EventType::diff);
    diff.price_scale = static_cast<std::uint8_t>(saved.price_scale);
    diff.size_scale = static_cast<std::uint8_t>(saved.size_scale);
    diff.delta = saved.delta != 0;
    diff.update_first = saved.update_first;
    diff.update_last = saved.update_last;
    diff.update_prev = saved.update_prev;
    diff.bid_count = saved.bid_count;
    diff.ask_count = saved.ask_count;
    diff.bids = in.take_bytes(std::uint64_t{saved.bid_count} * sizeof(format::Level)).data();
    diff.asks = in.take_bytes(std::uint64_t{saved.ask_count} * sizeof(format::Level)).data();
    record_seq = saved.record_seq;
    return diff;
}

}  // namespace

void Book::save(std::vector<std::byte>& out) const {
    if (!trusted())
        throw Error(Errc::invalid_option,
                    "an untrusted book must not be saved: " + distrust_reason(), {}, -1,
                    "save it while it is trusted");
    put_payload(out);
}

void Book::put_payload(std::vector<std::byte>& out) const {
    assert(consistent());
    const std::size_t start = out.size();
    Output to(out);
    BookPayload head{};
    head.version = format::kBookPayloadVersion;
    head.book_mode = static_cast<std::uint8_t>(options_.mode);
    head.rules = static_cast<std::uint8_t>(options_.rules);
    head.price_scale = options_.price_scale;
    head.size_scale = options_.size_scale;
    head.settling = settling_.on ? 1 : 0;
    head.phase = phase_;
    head.last_update = last_update_;
    head.last_seq = last_seq_;
    head.last_timestamp_ns = last_timestamp_ns_;
    head.last_exchange_ns = last_exchange_ns_;
    head.unknown_count = unknown_count_;
    head.settling_id = settling_.id;
    head.settling_price = settling_.price;
    head.bid_levels = static_cast<std::uint32_t>(level_count(Side::buy));
    head.ask_levels = static_cast<std::uint32_t>(level_count(Side::sell));
    head.unpriced = static_cast<std::uint32_t>(l3_.unpriced_count());
    to.put(head);
    for (const Side s : kSides) {
        if (options_.mode == BookMode::l2) {
            l2_.side(s).each(level_count(s), [&](std::int64_t price, std::int64_t size) {
                to.put(format::Level{price, size});
            });
            continue;
        }
        l3_.side(s).each(level_count(s), [&](std::int64_t price, std::uint32_t at) {
            to.put(format::SavedLevel{price, l3_.level(at).orders, 0});
            for (std::uint32_t i = l3_.level(at).head; i != L3::kNone; i = l3_.order(i).next)
                to.put(format::SavedOrder{l3_.order(i).id, l3_.order(i).remaining});
        });
    }
    l3_.each_unpriced([&](const L3::Order& o) {
        to.put(format::SavedUnpriced{o.id, o.remaining, static_cast<std::uint64_t>(o.side)});
    });
    const std::size_t checked = start + sizeof head.crc;
    const std::uint32_t crc = crc32c(out.data() + checked, out.size() - checked);
    std::memcpy(out.data() + start, &crc, sizeof crc);
}

Options Book::saved_options(std::span<const std::byte> payload) {
    Input in(payload);
    const BookPayload head = checked_head(payload, in);
    Options options;
    options.mode = static_cast<BookMode>(head.book_mode);
    options.rules = static_cast<Rules>(head.rules);
    options.price_scale = head.price_scale;
    options.size_scale = head.size_scale;
    return options;
}

Book Book::load(std::span<const std::byte> payload, const Options& options) {
    Input in(payload);
    const BookPayload head = checked_head(payload, in);
    check_same("book_mode", head.book_mode, static_cast<int>(options.mode));
    check_same("price_scale", head.price_scale, options.price_scale);
    check_same("size_scale", head.size_scale, options.size_scale);
    check_same("rules", head.rules, static_cast<int>(options.rules));
    const bool l2 = options.mode == BookMode::l2;
    if (l2 && (head.unpriced | head.settling) != 0)
        in.damaged("a book of levels has no orders", "unpriced", head.unpriced);

    Book book(options);
    for (const Side s : kSides) {
        const std::uint32_t count = s == Side::buy ? head.bid_levels : head.ask_levels;
        if (l2) {
            load_levels(in, book.l2_.side(s), s, count);
        } else {
            load_orders(in, book.l3_, s, count);
        }
    }
    load_unpriced(in, book.l3_, head.unpriced);
    in.end();
    if (head.settling != 0) {
        const std::uint32_t slot = book.l3_.find(head.settling_id);
        if (slot != L3::kNone && book.l3_.rests(slot))
            in.damaged("an order that waits for a price must not have one", "id", head.settling_id);
        book.settling_ = {true, head.settling_id, head.settling_price};
    }
    book.phase_ = head.phase;
    book.last_update_ = head.last_update;
    book.last_seq_ = head.last_seq;
    book.last_timestamp_ns_ = head.last_timestamp_ns;
    book.last_exchange_ns_ = head.last_exchange_ns;
    book.unknown_count_ = head.unknown_count;
    book.distrust_ = Distrust::none;
    assert(book.consistent());  // for any payload
    return book;
}

void Book::save_state(std::vector<std::byte>& out) const {
    std::vector<std::byte> payload;
    put_payload(payload);
    Output to(out);
    to.put(static_cast<std::uint64_t>(payload.size()));
    to.put_bytes(payload.data(), payload.size());
    to.put(
        SavedTrust{static_cast<std::uint32_t>(distrust_), quarantined_ ? 1U : 0U, waiting_.size()});
    waiting_.each([&](const market::BookEvent& diff, std::uint64_t record_seq) {
        to.put(SavedDiff{diff.update_first, diff.update_last, diff.update_prev, record_seq,
                         diff.bid_count, diff.ask_count, diff.price_scale, diff.size_scale,
                         diff.delta ? 1U : 0U, 0});
        to.put_bytes(diff.bids, diff.bid_count * sizeof(format::Level));
        to.put_bytes(diff.asks, diff.ask_count * sizeof(format::Level));
    });
}

Book Book::load_state(std::span<const std::byte> state, const Options& options) {
    Input in(state);
    const auto payload_bytes = in.take<std::uint64_t>();
    Book book = load(in.take_bytes(payload_bytes), options);
    const auto trust = in.take<SavedTrust>();
    if (trust.distrust > static_cast<std::uint32_t>(kMaxDistrust))
        in.damaged("unknown distrust", "distrust", trust.distrust);
    if (trust.quarantined > 1) in.damaged("must be 0 or 1", "quarantined", trust.quarantined);
    book.distrust_ = static_cast<Distrust>(trust.distrust);
    book.quarantined_ = trust.quarantined != 0;
    if (trust.waiting != 0 && (book.trusted() || options.mode != BookMode::l2))
        in.damaged("no diffs can be buffered in this book", "waiting", trust.waiting);
    in.expect(trust.waiting, sizeof(SavedDiff), "waiting");
    for (std::uint64_t i = 0; i < trust.waiting; ++i) {
        std::uint64_t record_seq = 0;
        const market::BookEvent diff = take_diff(in, record_seq);
        book.waiting_.push(diff, record_seq);
    }
    in.end();
    return book;
}

}  // namespace tapewire::book
