#include "tapewire/read_ahead.hpp"

#include <exception>
#include <utility>

namespace tapewire {

void ReadAhead::want(MappingRef map, std::uint64_t from, std::uint64_t to) noexcept {
    {
        std::lock_guard lock(mutex_);
        map_ = std::move(map);
        from_ = from;
        to_ = to;
    }
    start_or_poke();
}

void ReadAhead::drop(MappingRef map) noexcept {
    if (!started_ || !map) return;  // a log this short does not need a thread
    {
        std::lock_guard lock(mutex_);
        dropped_.swap(map);  // one that was not started yet is unmapped here
    }
    start_or_poke();
}

void ReadAhead::start_or_poke() noexcept {
    Service& thread = Services::get().read_ahead;
    if (started_) {
        thread.poke(this);
        return;
    }
    try {
        thread.add(this);
        started_ = true;
    } catch (const std::exception&) {
        // No thread available: then the reader maps its pages itself, as it reaches them.
    }
}

void ReadAhead::stop() noexcept {
    if (!std::exchange(started_, false)) return;
    Services::get().read_ahead.remove(this);
}

std::int64_t ReadAhead::run(std::int64_t) noexcept {
    MappingRef map;
    MappingRef dropped;
    std::uint64_t from = 0;
    std::uint64_t to = 0;
    {
        std::lock_guard lock(mutex_);
        map = std::move(map_);
        dropped.swap(dropped_);
        from = from_;
        to = to_;
    }
    if (map) map->populate(from, to - from);
    return kWhenPoked;
}

}  // namespace tapewire
