// The frame of every call that applies an event.
#pragma once

#include "tapewire/book/book.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

template <typename F>
Applied Book::guarded(F&& take) {
    Applied applied;
    try {
        applied = take();
    } catch (const Error&) {
        throw;  // thrown by a rule, before anything was changed
    } catch (...) {
        // Out of memory somewhere within the event. No gap is recorded: that would take memory.
        if (trusted()) distrust_ = Distrust::interrupted;
        to_raise_ = false;
        throw;
    }
    if (to_raise_) [[unlikely]]
        throw_if_raised();
    return applied;
}

}  // namespace tapewire::book
