// control.meta: whatever it contains, it is refused with a typed error, or the complete log
// can be read. Its hints never decide whether a record exists.
#include <cstring>

#include "fuzz_kit.hpp"
#include "mutate.hpp"
#include "tapewire/format/control.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/segment.hpp"

namespace {

using namespace fuzz;
namespace format = tapewire::format;
using tapewire::queue::Control;
using tapewire::queue::Segment;

constexpr std::uint64_t kSegmentBytes = 512;

// Three segments, the last one open, written once by the engine and restored for each input.
const std::vector<std::string>& log_files() {
    static const std::vector<std::string> files = [] {
        const Layout layout = fresh_queue();
        const tapewire::queue::Geometry geometry{kSegmentBytes, 0, 0};
        Segment::prepare(layout, geometry, 0, false).publish(layout);
        Control::create(layout, geometry);
        WriterOptions options;
        options.preallocate = false;
        {
            Writer writer(layout.root, options);
            for (int i = 0; i < 7; ++i) kit::append(writer, std::string(40, 'c'));
        }
        std::vector<std::string> made;
        for (std::uint32_t id : layout.segments()) made.push_back(get_file(layout.segment(id)));
        return made;
    }();
    return files;
}

void check_fields(const Control& control, const std::string& bytes) {
    format::ControlBlock block;
    REQUIRE(bytes.size() == sizeof block, "a control.meta of another size was opened");
    std::memcpy(&block, bytes.data(), sizeof block);
    REQUIRE(block.magic == format::kControlMagic &&
                (block.version == format::kControlVersion) == control.geometry().keyed() &&
                block.init_state == format::kControlReady,
            "an invalid control.meta was opened");
    REQUIRE(control.segment_bytes() == block.segment_size && block.segment_size >= 128 &&
                block.segment_size <= format::kSegmentBytesMax && block.segment_size % 64 == 0,
            std::to_string(control.segment_bytes()));
    const auto at = control.position();
    REQUIRE(at.has_value() == (block.segment_gen % 2 == 0), "a position with an odd generation");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::vector<std::string>& files = log_files();
    const Layout layout = fresh_queue();
    for (std::uint32_t id = 0; id < files.size(); ++id)
        put_file(layout.segment(id), files[id].data(), files[id].size());
    put_file(layout.control(), data, size);

    std::uint64_t first_seq = 0;
    try {
        const Control control = Control::open(layout, false);
        check_fields(control, {reinterpret_cast<const char*>(data), size});
        if (control.segment_bytes() != kSegmentBytes) {
            const std::optional<Tape> tape = read_all(layout);
            REQUIRE(!tape || (tape->stopped && tape->shown.empty()),
                    "a segment of an invalid length was read");
            return 0;
        }
        first_seq = control.first_seq();
    } catch (const Error& error) {
        require_refusal(error);
        REQUIRE(
            get_file(layout.control()) == std::string(reinterpret_cast<const char*>(data), size),
            "a refused file was changed");
        return 0;
    }
    const std::optional<Tape> tape = read_all(layout);
    REQUIRE(tape && tape->shown.size() == 7, "records are missing");
    REQUIRE(!tape->gaps, "sequence numbers are missing between the records");
    check_seeks(layout, *tape, first_seq, 1);

    Control control = Control::open(layout, true);
    const auto tail = recover(layout, control, {});
    REQUIRE(tail.next_seq == 7 && tail.segment->id() + 1 == files.size(),
            place({tail.segment->id(), tail.offset}));
    REQUIRE(tail.report.empty(), tail.report.front());
    return 0;
}

// Sets one field of the block to a value near another one that matters.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    static_assert(sizeof(format::ControlBlock) == 512);
    if (seed % 4 != 0 || size != sizeof(format::ControlBlock))
        return LLVMFuzzerMutate(data, size, max_size);
    format::ControlBlock block;
    std::memcpy(&block, data, sizeof block);
    const std::uint64_t near = seed / 64 % 8 - 4;
    switch (seed / 4 % 6) {
        case 0:
            block.segment_size = (seed / 512 % 2 == 0 ? kSegmentBytes : 128) + 64 * near;
            break;
        case 1:
            block.current_segment = static_cast<std::uint32_t>(1 + near);
            break;
        case 2:
            block.write_offset = 64 + 64 * near;
            break;
        case 3:
            block.first_seq = near;
            break;
        case 4:
            ++block.segment_gen;
            break;
        default:
            block.segment_size = kSegmentBytes;
            block.magic = format::kControlMagic;
            block.version = format::kControlVersionUnkeyed;
            block.init_state = format::kControlReady;
    }
    std::memcpy(data, &block, sizeof block);
    return size;
}
