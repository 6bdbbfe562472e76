#include "tapewire/queue/upkeep.hpp"

#include <time.h>

#include "tapewire/error.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/reader_meta.hpp"
#include "tapewire/queue/seek_index.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

namespace {

// A writer's thread may be rewriting it, and may have been preempted there.
std::optional<LoadedIndex> load_index_patiently(const Layout& layout, const Segment& segment) {
    for (int tries = 0; tries < 20; ++tries) {
        if (auto index = load_index(layout, segment)) return index;
        const timespec pause{0, 5'000'000};
        ::nanosleep(&pause, nullptr);
    }
    return std::nullopt;
}

}  // namespace

Upkeep::Upkeep(std::string root) : layout_{std::move(root)}, lock_(layout_) {
    try {
        control_ = Control::open(layout_, true);
    } catch (const Error&) {
        return;  // no writer can open the queue either
    }
    lock_.bind(*control_);
}

std::vector<std::string> Upkeep::remove_temporary_files() const {
    std::vector<std::string> removed;
    for (const std::string& path : layout_.temporary_files()) {
        if (remove_file(path)) removed.push_back(path);
    }
    return removed;
}

bool remove_reader(const std::string& root, const std::string& name,
                   std::optional<std::uint64_t> heartbeat_ns) {
    const Layout layout{root};
    check_reader_name(name);
    const ReaderMeta meta(layout, name, ReaderMeta::Open::existing);
    if (heartbeat_ns && meta.state().heartbeat_ns != *heartbeat_ns) return false;
    return remove_file(meta.path());  // while the name is still locked
}

std::vector<std::string> wrong_indexes(const std::string& root) {
    const Layout layout{root};
    const Geometry geometry = Control::open(layout, false).geometry();
    std::vector<std::string> lines;
    for (std::uint32_t id : layout.indexes()) {
        const auto segment = open_or_nothing(layout, geometry, id);
        if (!segment) continue;  // deleted or itself damaged, which is reported elsewhere
        const auto index = load_index_patiently(layout, *segment);
        if (!index) {
            if (!file_exists(layout.index(id))) continue;  // deleted with its segment
            lines.push_back("seek index is damaged [" + layout.index(id) + "]");
            continue;
        }
        for (const auto& entry : index->entries) {
            if (entry_is_right(*segment, entry)) continue;
            lines.push_back(
                "seek index does not match its segment: seq=" + std::to_string(entry.seq) +
                ", offset=" + std::to_string(entry.offset) + " [" + layout.index(id) + "]");
            break;
        }
    }
    return lines;
}

}  // namespace tapewire::queue
