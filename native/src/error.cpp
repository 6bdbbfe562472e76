#include "tapewire/error.hpp"

#include <cerrno>
#include <cstdio>
#include <cstring>

namespace tapewire {

void throw_errno(const std::string& what, const std::string& path) {
    throw_os_error(errno, what, path);
}

void throw_os_error(int err, const std::string& what, const std::string& path) {
    const bool full = err == ENOSPC || err == EDQUOT;
    Error e(full ? Errc::disk_full : Errc::os_error, what + ": " + std::strerror(err), path);
    e.os_errno = err;
    if (full)
        e.hint = "free space on this filesystem and append again; no partial record was written";
    throw e;
}

std::string hex(std::uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llX", static_cast<unsigned long long>(value));
    return text;
}

}  // namespace tapewire
