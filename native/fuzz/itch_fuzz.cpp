// ITCH: whatever the bytes are, every message is counted once, as good or bad; the file split into
// two pieces anywhere gives the same events; and so does the file without its length fields.
#include <cstring>

#include "fuzz_kit.hpp"
#include "tapewire/ingest/itch.hpp"

namespace {

using namespace fuzz;
using namespace tapewire::ingest;

struct Decoded {
    std::vector<ItchEvent> events;
    std::vector<std::uint64_t> bad;
    bool refused = false;

    bool operator==(const Decoded& other) const {
        return refused == other.refused && bad == other.bad &&
               events.size() == other.events.size() &&
               (events.empty() || std::memcmp(events.data(), other.events.data(),
                                              events.size() * sizeof(ItchEvent)) == 0);
    }
};

// As the importer does it: incomplete messages are passed again with the bytes that follow.
void decode(ItchDecoder& decoder, std::vector<std::byte>& waiting, bool last, Decoded& into) {
    while (!waiting.empty() && !into.refused) {
        std::size_t used = 0;
        try {
            used = decoder.decode(waiting, last);
        } catch (const Error& error) {
            REQUIRE(error.code == Errc::corrupt_record && !error.hint.empty(), error.message);
            into.refused = true;
            return;
        }
        REQUIRE(used <= waiting.size() && (used != 0 || !last), "the end was not read");
        for (const ItchEvent& event : decoder.events()) {
            REQUIRE(event.number <= decoder.messages() && event.side <= 2 && event.l3_type <= 4,
                    "");
            REQUIRE(!decoder.stock(event.locate).empty(), "an event without a stock");
            into.events.push_back(event);
        }
        for (const ItchBad& bad : decoder.bad()) {
            REQUIRE(bad.offset + bad.length <= waiting.size(), "a bad message outside the bytes");
            into.bad.push_back(bad.number);
        }
        waiting.erase(waiting.begin(), waiting.begin() + static_cast<std::ptrdiff_t>(used));
        if (used == 0) return;
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const auto lengths = (data[0] & 1) != 0 ? ItchLengths::type : ItchLengths::prefix;
    const auto* first = reinterpret_cast<const std::byte*>(data) + 1;
    const std::size_t n = size - 1;
    const std::size_t cut = data[0] * n / 256;

    Decoded whole;
    ItchDecoder one(lengths);
    std::vector<std::byte> waiting(first, first + n);
    decode(one, waiting, true, whole);

    Decoded pieces;
    ItchDecoder two(lengths);
    waiting.assign(first, first + cut);
    decode(two, waiting, false, pieces);
    waiting.insert(waiting.end(), first + cut, first + n);
    decode(two, waiting, true, pieces);
    REQUIRE(whole == pieces, "splitting the bytes changes the events");

    if (lengths == ItchLengths::prefix && !whole.refused && whole.bad.empty()) {
        Decoded by_type;
        ItchDecoder three(ItchLengths::type);
        waiting.assign(first, first + n);
        decode(three, waiting, true, by_type);
        REQUIRE(whole == by_type, "lengths and types give different events");
    }
    return 0;
}

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned /*seed*/) {
    return LLVMFuzzerMutate(data, size, max_size);
}
