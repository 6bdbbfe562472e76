#include "tapewire/ingest/itch.hpp"

#include <cstring>

#include "tapewire/error.hpp"
#include "tapewire/format/market.hpp"

namespace tapewire::ingest {

namespace {

using format::L3Type;
using format::Side;

constexpr std::uint64_t kDayNs = 86'400'000'000'000;
constexpr std::uint64_t kMaxShares = std::uint64_t{1} << 33;  // fits 64 bits with nine decimals
constexpr std::size_t kPrefixBytes = 2;
constexpr std::size_t kStockBytes = 8;

template <std::size_t Bytes>
std::uint64_t big_endian(const std::byte* p) noexcept {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < Bytes; ++i)
        value = value << 8 | std::to_integer<std::uint64_t>(p[i]);
    return value;
}

char letter(const std::byte* p) noexcept { return static_cast<char>(*p); }

std::uint8_t side_of(char indicator) noexcept {
    if (indicator == 'B') return static_cast<std::uint8_t>(Side::buy);
    if (indicator == 'S') return static_cast<std::uint8_t>(Side::sell);
    return static_cast<std::uint8_t>(Side::unknown);
}

// The resting order is the maker.
std::uint8_t maker_of(std::uint8_t resting_side) noexcept {
    if (resting_side == 0) return format::kMakerUnknown;
    return resting_side == static_cast<std::uint8_t>(Side::buy);
}

// Offset of the stock's name in the messages that have one, else 0.
std::size_t stock_offset(char type) noexcept {
    switch (type) {
        case 'R':
        case 'H':
        case 'Y':
        case 'J':
        case 'h':
        case 'I':
        case 'N':
        case 'K':
        case 'O':
            return type == 'I' ? 28 : 11;
        case 'L':
            return 15;
        case 'A':
        case 'F':
        case 'P':
            return 24;
        case 'Q':
            return 19;
        default:
            return 0;
    }
}

// Offset of the id of the order that a message creates, else 0.
std::size_t new_order_offset(char type) noexcept {
    if (type == 'A' || type == 'F') return 11;
    return type == 'U' ? 19 : 0;
}

}  // namespace

std::size_t itch_length(char type) noexcept {
    switch (type) {
        case 'S':
            return 12;  // system event
        case 'R':
            return 39;  // stock directory
        case 'H':
            return 25;  // trading action
        case 'Y':
            return 20;  // Reg SHO restriction
        case 'L':
            return 26;  // market participant position
        case 'V':
            return 35;  // circuit breaker levels
        case 'W':
            return 12;  // circuit breaker breached
        case 'K':
            return 28;  // IPO quotation
        case 'J':
            return 35;  // LULD auction collar
        case 'h':
            return 21;  // operational halt
        case 'A':
            return 36;  // add
        case 'F':
            return 40;  // add, with its participant
        case 'E':
            return 31;  // executed
        case 'C':
            return 36;  // executed at another price
        case 'X':
            return 23;  // cancelled in part
        case 'D':
            return 19;  // deleted
        case 'U':
            return 35;  // replaced
        case 'P':
            return 44;  // trade of a hidden order
        case 'Q':
            return 40;  // cross
        case 'B':
            return 19;  // trade broken
        case 'I':
            return 50;  // imbalance before a cross
        case 'N':
            return 20;  // retail interest
        case 'O':
            return 48;  // direct listing
        default:
            return 0;
    }
}

std::string ItchDecoder::stock(std::uint16_t locate) const {
    const auto found = stocks_.find(locate);
    return found == stocks_.end() ? std::string() : found->second;
}

std::size_t ItchDecoder::frame(std::span<const std::byte> bytes, bool last,
                               ItchFault& fault) const {
    fault = ItchFault::none;
    if (bytes.size() < kPrefixBytes + 1) {
        if (last) fault = ItchFault::cut_short;
        return last ? bytes.size() : 0;
    }
    const char type = letter(bytes.data() + kPrefixBytes);
    const std::size_t right = itch_length(type);
    std::size_t length = right;
    if (lengths_ == ItchLengths::prefix) {
        length = big_endian<2>(bytes.data());
        if (length == 0)
            throw Error(
                Errc::corrupt_record,
                "a message must not be empty: length=0, message=" + std::to_string(messages_ + 1),
                "", -1,
                "if only the lengths in the file are invalid, import it with lengths=\"type\"");
        if (right == 0)
            fault = ItchFault::unknown_type;
        else if (length != right)
            fault = ItchFault::wrong_length;
    } else if (right == 0) {
        throw Error(Errc::corrupt_record,
                    "unknown message type, so the next message cannot be located: type=" +
                        hex(static_cast<unsigned char>(type)) +
                        ", message=" + std::to_string(messages_ + 1),
                    "", -1,
                    "if the lengths in the file are valid, import it with lengths=\"prefix\"");
    }
    if (kPrefixBytes + length > bytes.size()) {
        if (!last) return 0;
        fault = ItchFault::cut_short;
        return bytes.size();
    }
    return kPrefixBytes + length;
}

std::size_t ItchDecoder::decode(std::span<const std::byte> bytes, bool last) {
    events_.clear();
    bad_.clear();
    out_of_order_.clear();
    std::size_t at = 0;
    while (at < bytes.size()) {
        const auto rest = bytes.subspan(at);
        // A length of 0 at the end of the file ends the session.
        if (last && rest.size() == kPrefixBytes && big_endian<2>(rest.data()) == 0) {
            at = bytes.size();
            break;
        }
        ItchFault fault;
        std::size_t length;
        try {
            length = frame(rest, last, fault);
        } catch (Error& error) {
            if (at != 0) break;  // return the earlier messages first; the next call comes back here
            error.offset = static_cast<std::int64_t>(consumed_);
            throw;
        }
        if (length == 0) break;
        ++messages_;
        if (fault == ItchFault::none)
            fault = decode_message(rest.subspan(kPrefixBytes, length - kPrefixBytes));
        if (fault != ItchFault::none) bad_.push_back({messages_, at, length, fault});
        at += length;
    }
    consumed_ += at;
    return at;
}

ItchFault ItchDecoder::name_stock(std::uint16_t locate, const std::byte* name) {
    const std::string_view padded(reinterpret_cast<const char*>(name), kStockBytes);
    const std::size_t end = padded.find_last_not_of(' ');
    if (end == std::string_view::npos) return ItchFault::bad_stock;
    const std::string_view stock = padded.substr(0, end + 1);
    for (const char c : stock) {
        if (c <= ' ' || c > '~') return ItchFault::bad_stock;
    }
    const auto [found, added] = stocks_.try_emplace(locate, stock);
    if (!added) return found->second == stock ? ItchFault::none : ItchFault::bad_stock;
    if (codes_.try_emplace(found->second, locate).second) return ItchFault::none;
    stocks_.erase(found);  // it has another code
    return ItchFault::bad_stock;
}

// Returns the order as it was before; removes it with its last share.
const ItchDecoder::Order* ItchDecoder::reduce(std::uint64_t order_id, std::uint32_t size) {
    const auto found = orders_.find(order_id);
    if (found == orders_.end()) {
        ++unknown_orders_;
        return nullptr;
    }
    reduced_ = found->second;
    if (size >= found->second.size)
        orders_.erase(found);
    else
        found->second.size -= size;
    return &reduced_;
}

void ItchDecoder::executed(ItchEvent event, std::uint32_t size, bool priced, bool printed) {
    event.l3_type = static_cast<std::uint8_t>(L3Type::trade);
    event.size = size;
    const Order* order = reduce(event.order_id, size);
    if (order != nullptr) {
        event.side = order->side;
        if (!priced) event.price = order->price;
    }
    event.maker = maker_of(event.side);
    event.printed = printed && (priced || order != nullptr);  // without a price it is no trade
    events_.push_back(event);
}

ItchFault ItchDecoder::decode_message(std::span<const std::byte> message) {
    const std::byte* const p = message.data();
    ItchEvent event{};
    // Before any state is changed: an invalid message leaves no trace.
    if (const ItchFault fault = judge(p, event); fault != ItchFault::none) return fault;
    const char type = letter(p);
    ++counts_[static_cast<unsigned char>(type)];
    if (messages_ == 1) from_start_ = type == 'S' && letter(p + 11) == 'O';
    if (event.time_ns < latest_ns_) out_of_order_.push_back(messages_);
    latest_ns_ = event.time_ns;
    if (type == 'E' || type == 'C') {
        const std::uint64_t match = big_endian<8>(p + 23);
        if (match == last_match_) out_of_order_.push_back(messages_);  // it is unique in a day
        last_match_ = match;
    }
    if (type == 'H') trading_[event.locate] = letter(p + 19) == 'T';
    if (type == 'h') trading_[event.locate] = letter(p + 20) == 'T';
    const auto trading = trading_.find(event.locate);
    event.auction = trading == trading_.end() || !trading->second;
    take(p, event);
    return ItchFault::none;
}

// Records the stock that a message names.
ItchFault ItchDecoder::judge(const std::byte* p, ItchEvent& event) {
    const char type = letter(p);
    event.locate = static_cast<std::uint16_t>(big_endian<2>(p + 1));
    event.time_ns = big_endian<6>(p + 5);
    event.number = messages_;
    event.message = static_cast<std::uint8_t>(type);
    if (event.time_ns >= kDayNs) return ItchFault::bad_time;
    if (type == 'A' || type == 'F' || type == 'P') {
        event.side = side_of(letter(p + 19));
        if (event.side == 0) return ItchFault::bad_side;
    }
    if (type == 'Q' && big_endian<8>(p + 11) > kMaxShares) return ItchFault::out_of_range;
    if (const std::size_t at = stock_offset(type); at != 0) {
        const ItchFault fault = name_stock(event.locate, p + at);
        if (fault != ItchFault::none) return fault;
    }
    const bool of_an_order = std::strchr("EXCDU", type) != nullptr;
    if (of_an_order) {
        if (!stocks_.contains(event.locate)) return ItchFault::no_stock;
        const auto order = orders_.find(big_endian<8>(p + 11));
        if (order != orders_.end() && order->second.locate != event.locate)
            return ItchFault::bad_stock;
    }
    if (const std::size_t at = new_order_offset(type); at != 0) {
        const std::uint64_t made = big_endian<8>(p + at);
        const bool replaces_itself = type == 'U' && made == big_endian<8>(p + 11);
        if (!replaces_itself && orders_.contains(made)) return ItchFault::known_order;
    }
    if (of_an_order || type == 'A' || type == 'F') event.order_id = big_endian<8>(p + 11);
    return ItchFault::none;
}

void ItchDecoder::replaced(const std::byte* p, ItchEvent event) {
    const Order* order = reduce(event.order_id, ~std::uint32_t{0});
    event.l3_type = static_cast<std::uint8_t>(L3Type::cancel);
    event.side = order == nullptr ? std::uint8_t{0} : order->side;
    events_.push_back(event);
    if (order == nullptr) return;  // and so without a side
    const auto size = static_cast<std::uint32_t>(big_endian<4>(p + 27));
    event.l3_type = static_cast<std::uint8_t>(L3Type::add);
    event.order_id = big_endian<8>(p + 19);
    event.size = size;
    event.price = static_cast<std::int64_t>(big_endian<4>(p + 31));
    orders_[event.order_id] = {event.price, size, event.side, event.locate};
    events_.push_back(event);
}

void ItchDecoder::take(const std::byte* p, ItchEvent event) {
    const char type = letter(p);
    switch (type) {
        case 'A':
        case 'F': {
            const auto size = static_cast<std::uint32_t>(big_endian<4>(p + 20));
            event.l3_type = static_cast<std::uint8_t>(L3Type::add);
            event.size = size;
            event.price = static_cast<std::int64_t>(big_endian<4>(p + 32));
            orders_[event.order_id] = {event.price, size, event.side, event.locate};
            events_.push_back(event);
            break;
        }
        case 'E':
            event.match = big_endian<8>(p + 23);
            executed(event, static_cast<std::uint32_t>(big_endian<4>(p + 19)), false, true);
            break;
        case 'C':
            event.match = big_endian<8>(p + 23);
            event.price = static_cast<std::int64_t>(big_endian<4>(p + 32));
            // Executions that are not printable are part of a cross, whose message counts them.
            executed(event, static_cast<std::uint32_t>(big_endian<4>(p + 19)), true,
                     letter(p + 31) == 'Y');
            break;
        case 'X':
        case 'D': {
            const auto size =
                type == 'X' ? static_cast<std::uint32_t>(big_endian<4>(p + 19)) : ~std::uint32_t{0};
            const Order* order = reduce(event.order_id, size);
            event.l3_type = static_cast<std::uint8_t>(L3Type::cancel);
            event.side = order == nullptr ? std::uint8_t{0} : order->side;
            event.size = type == 'X' ? size : 0;  // 0: the entire rest
            // A reduction by 0 is no event: an L3 cancel of 0 would remove everything.
            if (type == 'D' || size != 0) events_.push_back(event);
            break;
        }
        case 'U':
            replaced(p, event);
            break;
        case 'P':
            event.size = static_cast<std::int64_t>(big_endian<4>(p + 20));
            event.price = static_cast<std::int64_t>(big_endian<4>(p + 32));
            event.match = big_endian<8>(p + 36);
            event.maker = maker_of(event.side);
            event.printed = 1;
            events_.push_back(event);
            break;
        case 'Q': {
            const std::uint64_t size = big_endian<8>(p + 11);
            if (size == 0) break;  // a cross in which nothing traded
            event.size = static_cast<std::int64_t>(size);
            event.price = static_cast<std::int64_t>(big_endian<4>(p + 27));
            event.match = big_endian<8>(p + 31);
            event.maker = format::kMakerUnknown;
            event.printed = 1;
            events_.push_back(event);
            break;
        }
        default:
            break;
    }
}

}  // namespace tapewire::ingest
