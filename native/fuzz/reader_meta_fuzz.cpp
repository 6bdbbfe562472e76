// readers/NAME.meta: of the two slots, the valid one with the higher generation counts; a store
// always makes the other slot the one that counts, whatever was there before.
#include <algorithm>
#include <cstring>

#include "fuzz_kit.hpp"
#include "mutate.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/format/reader_meta.hpp"
#include "tapewire/queue/reader_meta.hpp"
#include "tapewire/queue/segment.hpp"

namespace {

using namespace fuzz;
namespace format = tapewire::format;
using tapewire::queue::read_reader_state;
using tapewire::queue::ReaderState;
using tapewire::queue::Segment;

constexpr std::uint64_t kSegmentBytes = 512;

void put_log(const Layout& layout) {
    static const std::vector<std::string> files = [&] {
        const tapewire::queue::Geometry geometry{kSegmentBytes, 0, kKey};
        Segment::prepare(layout, geometry, 0, false).publish(layout);
        tapewire::queue::Control::create(layout, geometry);
        WriterOptions options;
        options.preallocate = false;
        {
            Writer writer(layout.root, options);
            for (int i = 0; i < 5; ++i) kit::append(writer, std::string(30, 'r'));
        }
        return std::vector{get_file(layout.control()), get_file(layout.segment(0)),
                           get_file(layout.segment(1))};
    }();
    put_file(layout.control(), files[0].data(), files[0].size());
    put_file(layout.segment(0), files[1].data(), files[1].size());
    put_file(layout.segment(1), files[2].data(), files[2].size());
}

// As the format specifies, with the portable checksum.
std::optional<format::ReaderMetaSlot> counting_slot(const std::uint8_t* data, std::size_t size) {
    format::ReaderMeta meta{};
    if (size != 0) std::memcpy(&meta, data, std::min(size, sizeof meta));
    std::optional<format::ReaderMetaSlot> best;
    for (std::uint64_t i : {0, 1}) {
        const format::ReaderMetaSlot& slot = meta.slots[i];
        const bool right = slot.generation != 0 && slot.generation < format::kReaderGenerationEnd &&
                           slot.generation % 2 == i &&
                           slot.crc == tapewire::crc32_portable(&slot, 32);
        if (right && (!best || slot.generation > best->generation)) best = slot;
    }
    return best;
}

bool same(Position a, Position b) { return a.segment == b.segment && a.offset == b.offset; }

void check_state(const std::string& path, const std::optional<format::ReaderMetaSlot>& slot) {
    const std::optional<ReaderState> state = read_reader_state(path);
    REQUIRE(state.has_value(), path);
    REQUIRE(state->generation == (slot ? slot->generation : 0), path);
    if (!slot) return;
    REQUIRE(same(state->position, {slot->segment_id, slot->offset}), place(state->position));
    REQUIRE(state->heartbeat_ns == slot->last_heartbeat_ns && !state->damaged, path);
    REQUIRE(state->pinned == (slot->flags != 0), "pinned differs from flags != 0");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const Layout layout = fresh_queue();
    put_log(layout);
    const std::string path = layout.reader_meta("r");
    put_file(path, data, size);
    const auto slot = counting_slot(data, size);
    check_state(path, slot);

    ReaderOptions options = anonymous();
    options.name = "r";
    options.pinned = size % 2 != 0;
    Reader reader(layout.root, options);
    try {
        const bool resumed = reader.resume_committed();
        REQUIRE(resumed == slot.has_value(),
                "resumed without a committed position, or not from it");
        if (resumed) {
            const Position at = reader.position();
            REQUIRE(at.segment < slot->segment_id ||
                        (at.segment == slot->segment_id && at.offset <= slot->offset),
                    place(at) + " is past the committed position");
            REQUIRE(at.offset >= 64 && at.offset % 64 == 0 && at.offset <= kSegmentBytes,
                    place(at));
        }
    } catch (const Error& error) {
        require_refusal(error);
    }
    read_on(reader, 2);

    reader.seek_start();
    RecordView record;
    REQUIRE(reader.next(record), "the log has no next record");
    reader.register_position();
    reader.commit();
    const Position at = reader.position();
    REQUIRE(get_file(path).size() == format::kReaderMetaBytes, path);
    const std::optional<ReaderState> stored = read_reader_state(path);
    REQUIRE(stored && same(stored->position, at) && !stored->damaged, place(stored->position));
    REQUIRE(stored->pinned == options.pinned, "pinned differs from the option");
    REQUIRE(!slot || stored->generation > slot->generation || size > format::kReaderMetaBytes,
            "the generation did not rise");
    reader.close(false);
    Reader again(layout.root, options);
    REQUIRE(again.resume_committed() && same(again.position(), at), place(again.position()));
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    format::ReaderMeta meta{};
    if (seed % 4 == 0 || size < sizeof meta) return size;
    std::memcpy(&meta, data, sizeof meta);
    format::ReaderMetaSlot& slot = meta.slots[seed / 4 % 2];
    switch (seed / 8 % 6) {
        case 0:
            slot.generation = seed / 64 % 16;
            break;
        case 1:
            slot.segment_id = seed / 64 % 4;
            slot.offset = 64 * (seed / 256 % 10);
            break;
        case 2:
            slot = meta.slots[1 - seed / 4 % 2];
            ++slot.generation;
            break;
        case 3:
            slot = {};
            break;
        default:
            break;
    }
    if (slot.generation % 2 != seed / 4 % 2) ++slot.generation;
    slot.crc = tapewire::crc32(&slot, format::kReaderMetaCheckedBytes);
    std::memcpy(data, &meta, sizeof meta);
    return size;
}
