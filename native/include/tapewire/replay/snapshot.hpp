// Converts a book to the bytes of a snapshot and back. The files, and which of them can be trusted,
// are in src/tapewire/replay/snapshots.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/format/book_snapshot.hpp"

namespace tapewire::replay {

// The record and time at which the book had this state.
struct SnapshotPlace {
    std::uint16_t venue_id = 0;
    std::uint32_t market_id = 0;
    std::uint64_t seq = 0;          // of the record
    std::int64_t timestamp_ns = 0;  // its time
};

// Throws invalid_option for an untrusted book.
std::vector<std::byte> encode_snapshot(const book::Book& book, const SnapshotPlace& place);

// Checks the header of a file of `file_bytes` bytes by itself. Throws corrupt_metadata or
// unsupported_version.
format::BookSnapshotHeader decode_snapshot_header(std::span<const std::byte> header,
                                                  std::uint64_t file_bytes);

struct LoadedSnapshot {
    format::BookSnapshotHeader header;
    book::Book book;
};
// Decodes header and book and checks the book's hash against the header. `options`: what the
// instrument requires of the book; its policies always apply, its scales and rules if
// `as_instrument`.
LoadedSnapshot decode_snapshot(std::span<const std::byte> file, const book::Options& options,
                               bool as_instrument);

}  // namespace tapewire::replay
