// Segments, records and the tail checkpoint: reading, seeking and recovery of whatever is on disk.
#include <map>

#include "queue_image.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/recovery.hpp"

namespace {

using namespace fuzz;
using tapewire::queue::Control;
using tapewire::queue::RecoveredTail;

std::map<std::uint32_t, std::string> segment_files(const Layout& layout) {
    std::map<std::uint32_t, std::string> files;
    for (std::uint32_t id : layout.segments()) files[id] = get_file(layout.segment(id));
    return files;
}

std::optional<RecoveredTail> recovered(const Layout& layout) {
    try {
        Control control = Control::open(layout, true);
        tapewire::queue::RecoveryOptions options;
        options.index_stride = 2;
        return recover(layout, control, options);
    } catch (const Error& error) {
        require_refusal(error);
        return std::nullopt;
    }
}

std::string lines(const RecoveredTail& tail) {
    std::string all;
    for (const std::string& line : tail.report) all += line + "\n    ";
    return all;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const QueueImage image({data, size});
    const Layout layout = fresh_queue();
    image.write_to(layout);
    const std::optional<Tape> before = read_all(layout);
    if (before) check_seeks(layout, *before, image.head.seek_seq, image.head.seek_ns);

    const std::optional<RecoveredTail> first = recovered(layout);
    if (!first) return 0;
    REQUIRE(first->segment.has_value(), "a recovered log has no segment to append to");
    const auto files = segment_files(layout);
    for (const auto& [id, bytes] : files)
        REQUIRE(bytes.size() == image.segment_bytes(), layout.segment(id));

    const std::optional<Tape> after = read_all(layout);
    const bool ordered = after && after->numbers_rise() &&
                         (after->shown.empty() || after->shown.front().seq >= image.head.first_seq);
    if (before && !before->last_numbers && (ordered || !before->damaged)) {
        for (const Shown& record : before->shown)
            REQUIRE(after && after->has(record),
                    place(record.at) + " was shown before recovery\n    " + lines(*first));
    }
    if (after) check_seeks(layout, *after, image.head.seek_seq, image.head.seek_ns);

    // A second recovery changes nothing.
    const std::optional<RecoveredTail> second = recovered(layout);
    REQUIRE(second.has_value(), "the recovered log cannot be recovered again");
    REQUIRE(segment_files(layout) == files, lines(*second));
    REQUIRE(second->segment->id() == first->segment->id() && second->offset == first->offset,
            place({second->segment->id(), second->offset}) + " instead of " +
                place({first->segment->id(), first->offset}));
    REQUIRE((second->next_seq == first->next_seq || !ordered) && second->sparse == first->sparse,
            std::to_string(second->next_seq) + " instead of " + std::to_string(first->next_seq));
    REQUIRE(second->damaged_spans == 0 && second->pads == 0, lines(*second));
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    return fuzz::mutate_image(data, size, max_size, seed);
}
