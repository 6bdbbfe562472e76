#include "queue_image.hpp"

#include <algorithm>
#include <cstring>

namespace fuzz {

QueueImage::QueueImage(std::span<const std::uint8_t> input) {
    std::memset(&head, 0, sizeof head);
    if (!input.empty()) std::memcpy(&head, input.data(), std::min(sizeof head, input.size()));
    input = input.subspan(std::min(sizeof head, input.size()));
    for (std::size_t i = 0; i < segment_count(); ++i) {
        std::vector<std::byte> segment(segment_bytes());
        const std::size_t n = std::min(input.size(), segment.size());
        if (n != 0) std::memcpy(segment.data(), input.data(), n);
        input = input.subspan(n);
        segments.push_back(std::move(segment));
    }
}

void QueueImage::write_to(const Layout& layout) const {
    put_control(layout, geometry(), head.current_segment, head.write_offset);
    for (std::uint32_t id = 0; id < segments.size(); ++id) {
        if ((head.missing >> id & 1) != 0) continue;
        put_file(layout.segment(id), segments[id].data(), segments[id].size());
    }
    if (const std::size_t n = head.checkpoint_bytes % (sizeof head.checkpoint + 1); n != 0)
        put_file(layout.tail_checkpoint(), &head.checkpoint, n);
}

std::vector<std::uint8_t> QueueImage::bytes() const {
    std::vector<std::uint8_t> all(sizeof head);
    std::memcpy(all.data(), &head, sizeof head);
    for (const auto& segment : segments) {
        for (std::byte b : segment) all.push_back(static_cast<std::uint8_t>(b));
    }
    while (!all.empty() && all.back() == 0) all.pop_back();
    return all;
}

}  // namespace fuzz
