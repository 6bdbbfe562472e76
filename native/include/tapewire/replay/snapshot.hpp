// The bytes of a book snapshot: made of a book, and a book made of them. The files, and which of
// them to believe, are in src/tapewire/replay/snapshots.py.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "tapewire/book/book.hpp"
#include "tapewire/format/book_snapshot.hpp"

namespace tapewire::replay {

// Where a book was so.
struct SnapshotPlace {
    std::uint16_t venue_id = 0;
    std::uint32_t market_id = 0;
    std::uint64_t seq = 0;          // of the record
    std::int64_t timestamp_ns = 0;  // its time
};

// invalid_option for a book that is not to be trusted.
std::vector<std::byte> encode_snapshot(const book::Book& book, const SnapshotPlace& place);

// The header of a file of `file_bytes` bytes, checked by itself. corrupt_metadata or
// unsupported_version.
format::BookSnapshotHeader decode_snapshot_header(std::span<const std::byte> header,
                                                  std::uint64_t file_bytes);

struct LoadedSnapshot {
    format::BookSnapshotHeader header;
    book::Book book;
};
// Header and book, which has the hash that the header says. `options`: what the book must be, by
// its instrument; its policies count in any case, and its scales and rules when `as_instrument`.
LoadedSnapshot decode_snapshot(std::span<const std::byte> file, const book::Options& options,
                               bool as_instrument);

}  // namespace tapewire::replay
