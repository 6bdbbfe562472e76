// A thread of the core: it blocks all signals except faults, and tools show its name.
#pragma once

#include <functional>
#include <thread>

namespace tapewire {

std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tapewire
