#include "tapewire/clock.hpp"

namespace tapewire::detail {
std::atomic<std::int64_t> wall_shift_ns{0};
}
