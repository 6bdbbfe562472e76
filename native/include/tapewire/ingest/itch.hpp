// Decodes NASDAQ TotalView-ITCH 5.0, a file of messages each preceded by a length of two bytes,
// into events of orders and trades.
//
// Executions name an order but not its price, and replacements name no side, so the decoder keeps
// all orders that rest in the market at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tapewire::ingest {

// Length of a message of this type, including the type byte; 0 = no such type in the specification.
std::size_t itch_length(char type) noexcept;

// How the end of a message is determined.
enum class ItchLengths : std::uint8_t {
    prefix,  // by the two bytes before it; a length that does not match the type is an error
    type,    // by its type; the two bytes are ignored: for files in which they are invalid
};

enum class ItchFault : std::uint8_t {
    none,
    unknown_type,
    wrong_length,
    cut_short,     // the file ends within the message
    bad_time,      // not within one day
    bad_side,      // neither B nor S
    bad_stock,     // not a name, or not the name this locate code had before
    out_of_range,  // more shares than are possible
    no_stock,      // a locate code without a name
    known_order,   // the order id belongs to another order that still rests
};

// One event for a log. Fields that the message does not have are 0. A replacement produces two.
struct ItchEvent {
    std::uint64_t time_ns;  // since midnight in New York
    std::uint64_t number;   // of the message in the file, from 1
    std::uint64_t order_id;
    std::uint64_t match;
    std::int64_t price;  // four decimals
    std::int64_t size;
    std::uint16_t locate;
    std::uint8_t message;  // the message's type
    std::uint8_t l3_type;  // format::L3Type, or 0: not an order event
    std::uint8_t side;     // format::Side, of the order
    std::uint8_t printed;  // 1: a printed trade
    std::uint8_t maker;    // TradeTick.is_buyer_maker
    std::uint8_t auction;  // 1: the stock is not in continuous trading, or that is unknown
};

static_assert(sizeof(ItchEvent) == 56);
static_assert(offsetof(ItchEvent, locate) == 48);

struct ItchBad {
    std::uint64_t number;
    std::uint64_t offset;
    std::uint64_t length;
    ItchFault fault;
};

class ItchDecoder {
  public:
    explicit ItchDecoder(ItchLengths lengths) : lengths_(lengths) {}

    // Decodes the complete messages in `bytes` (`last`: the file ends there), replacing events()
    // and bad(). Returns how many bytes they take. Throws corrupt_record if the next message cannot
    // be found.
    std::size_t decode(std::span<const std::byte> bytes, bool last);

    const std::vector<ItchEvent>& events() const noexcept { return events_; }
    const std::vector<ItchBad>& bad() const noexcept { return bad_; }
    std::uint64_t messages() const noexcept { return messages_; }  // valid and invalid ones
    std::uint64_t count(char type) const noexcept {
        return counts_[static_cast<unsigned char>(type)];
    }
    std::uint64_t unknown_orders() const noexcept { return unknown_orders_; }
    // The first message was the start of messages: no order rests before it.
    bool from_start() const noexcept { return from_start_; }
    // Of the last decode(), the messages whose time is before that of the message before them, and
    // executions with the match number of the one before them.
    const std::vector<std::uint64_t>& out_of_order() const noexcept { return out_of_order_; }
    // The stock of a locate code, without trailing blanks; empty if it has no name.
    std::string stock(std::uint16_t locate) const;

  private:
    struct Order {
        std::int64_t price;
        std::uint32_t size;
        std::uint8_t side;
        std::uint16_t locate;
    };

    // The length of the first message, or 0 if it is incomplete so far.
    std::size_t frame(std::span<const std::byte> bytes, bool last, ItchFault& fault) const;
    ItchFault decode_message(std::span<const std::byte> message);
    ItchFault judge(const std::byte* message, ItchEvent& event);
    void take(const std::byte* message, ItchEvent event);
    void replaced(const std::byte* message, ItchEvent event);
    ItchFault name_stock(std::uint16_t locate, const std::byte* name);
    void executed(ItchEvent event, std::uint32_t size, bool priced, bool printed);
    const Order* reduce(std::uint64_t order_id, std::uint32_t size);

    ItchLengths lengths_;
    std::vector<ItchEvent> events_;
    std::vector<ItchBad> bad_;
    std::unordered_map<std::uint64_t, Order> orders_;
    std::unordered_map<std::uint16_t, std::string> stocks_;
    std::unordered_map<std::string, std::uint16_t> codes_;  // of stocks: one a day
    std::unordered_map<std::uint16_t, bool> trading_;       // whether in continuous trading
    std::uint64_t counts_[256] = {};
    std::uint64_t messages_ = 0;
    std::uint64_t consumed_ = 0;
    std::uint64_t unknown_orders_ = 0;
    std::uint64_t latest_ns_ = 0;
    std::uint64_t last_match_ = ~std::uint64_t{0};
    std::vector<std::uint64_t> out_of_order_;
    bool from_start_ = false;
    Order reduced_{};
};

}  // namespace tapewire::ingest
