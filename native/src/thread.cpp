#include "tapewire/thread.hpp"

#include <pthread.h>
#include <signal.h>

#include <string>
#include <system_error>

#include "tapewire/error.hpp"

namespace tapewire {

std::thread start_thread(const char* name, std::function<void()> body) {
    // Signals are for the user's threads: a Ctrl-C delivered here would interrupt no wait.
    sigset_t all, old;
    sigfillset(&all);
    // Faults belong to this thread: our mappings may raise SIGBUS here, and a bug must not be
    // hidden.
    for (int fault : {SIGBUS, SIGSEGV, SIGILL, SIGFPE, SIGABRT}) sigdelset(&all, fault);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    std::thread thread;
    try {
        thread = std::thread(std::move(body));
    } catch (const std::system_error& e) {
        pthread_sigmask(SIG_SETMASK, &old, nullptr);
        throw_os_error(e.code().value(), std::string("cannot start the thread ") + name, "");
    } catch (...) {  // out of memory
        pthread_sigmask(SIG_SETMASK, &old, nullptr);
        throw;
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace tapewire
