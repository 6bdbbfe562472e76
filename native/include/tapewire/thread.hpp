// A thread of the core's own: no signal of the user's is delivered to it, and tools show its name.
#pragma once

#include <functional>
#include <thread>

namespace tapewire {

std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace tapewire
