// NASDAQ TotalView-ITCH 5.0: a file of messages, each behind its length in two bytes, to events of
// orders and trades.
//
// Executions name an order, not its price, and a replacement names no side: the decoder remembers
// the orders that rest, as many as the market has at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace tapewire::ingest {

// Bytes of a message of this type, its type included; 0 = the specification has no such type.
std::size_t itch_length(char type) noexcept;

// Where a message ends.
enum class ItchLengths : std::uint8_t {
    prefix,  // the two bytes before it say so; a message of another length than its type's is bad
    type,    // its type says so, and the two bytes are passed over: for files that have them wrong
};

enum class ItchFault : std::uint8_t {
    none,
    unknown_type,
    wrong_length,
    cut_short,     // the file ends within the message
    bad_time,      // not within a day
    bad_side,      // neither B nor S
    bad_stock,     // not a name, or another one than this locate code had
    out_of_range,  // more shares than there can be
    no_stock,      // a locate code that nothing has named
    known_order,   // an order's number that another one, still resting, has
};

// One event for a log. What a message does not say is 0. A replacement makes two.
struct ItchEvent {
    std::uint64_t time_ns;  // since midnight in New York
    std::uint64_t number;   // of the message in the file, from 1
    std::uint64_t order_id;
    std::uint64_t match;
    std::int64_t price;  // four decimals
    std::int64_t size;
    std::uint16_t locate;
    std::uint8_t message;  // the message's type
    std::uint8_t l3_type;  // format::L3Type, or 0: no event of an order
    std::uint8_t side;     // format::Side, of the order
    std::uint8_t printed;  // 1: a trade of the tape
    std::uint8_t maker;    // TradeTick.is_buyer_maker
    std::uint8_t reserved;
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

    // Decodes the whole messages in `bytes` (`last`: the file ends with them), replacing events()
    // and bad(). Returns how many bytes they are. Throws corrupt_record where no next message can
    // be found.
    std::size_t decode(std::span<const std::byte> bytes, bool last);

    const std::vector<ItchEvent>& events() const noexcept { return events_; }
    const std::vector<ItchBad>& bad() const noexcept { return bad_; }
    std::uint64_t messages() const noexcept { return messages_; }  // good and bad ones
    std::uint64_t count(char type) const noexcept {
        return counts_[static_cast<unsigned char>(type)];
    }
    std::uint64_t unknown_orders() const noexcept { return unknown_orders_; }
    // The stock of a locate code, without the blanks behind it; empty where nothing named it.
    std::string stock(std::uint16_t locate) const;

  private:
    struct Order {
        std::int64_t price;
        std::uint32_t size;
        std::uint8_t side;
    };

    // The length of the message at the front, or 0 when it is not all there yet.
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
    std::uint64_t counts_[256] = {};
    std::uint64_t messages_ = 0;
    std::uint64_t consumed_ = 0;
    std::uint64_t unknown_orders_ = 0;
    Order reduced_{};
};

}  // namespace tapewire::ingest
