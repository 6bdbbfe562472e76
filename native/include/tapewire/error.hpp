// The only exception type of the core. The bindings convert it to the class of tapewire.errors with
// the same name as `code`. The text states the broken constraint, then name=value; path, offset and
// hint are separate, so that each layer can format them.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <utility>

namespace tapewire {

enum class Errc : int {
    os_error = 1,  // errno in `os_errno`
    disk_full,
    payload_too_large,
    queue_full,
    writer_already_active,
    reader_already_active,
    unsupported_version,
    corrupt_metadata,
    corrupt_record,
    checksum_mismatch,
    segment_missing,
    invalid_type_id,
    invalid_option,
    invalid_name,
    gap_detected,
    not_a_log,
    forked_handle,
    closed_handle,
    reservation_open,
    segment_not_ready,
    sequence_not_rising,
    mapping_lost,
    unknown_order,
    lock_lost,
    concurrent_use,
};

struct Error : std::exception {
    Errc code;
    std::string message;
    std::string path;
    std::int64_t offset = -1;
    std::string hint;
    int os_errno = 0;
    // Values of some errors: gap_detected (first, last); segment_missing (committed segment,
    // committed offset, first available sequence number); 0 in others.
    std::uint64_t numbers[3] = {0, 0, 0};

    Error(Errc c, std::string m) : code(c), message(std::move(m)) {}
    Error(Errc c, std::string m, std::string p, std::int64_t o = -1, std::string h = {})
        : code(c), message(std::move(m)), path(std::move(p)), offset(o), hint(std::move(h)) {}

    const char* what() const noexcept override { return message.c_str(); }

    Error&& with(std::uint64_t a, std::uint64_t b = 0, std::uint64_t c = 0) && {
        numbers[0] = a;
        numbers[1] = b;
        numbers[2] = c;
        return std::move(*this);
    }
};

// Throws os_error for the current errno, or disk_full for ENOSPC and EDQUOT.
[[noreturn]] void throw_errno(const std::string& what, const std::string& path);
[[noreturn]] void throw_os_error(int err, const std::string& what, const std::string& path);

std::string hex(std::uint64_t value);

// The remedy for a version newer than this release.
inline constexpr const char* kVersionHint =
    "open the queue with the release that wrote it, or upgrade Tapewire";

}  // namespace tapewire
