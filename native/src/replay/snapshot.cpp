#include "tapewire/replay/snapshot.hpp"

#include <cstring>
#include <string>
#include <utility>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"

namespace tapewire::replay {

namespace {

using format::BookSnapshotHeader;
using format::kSnapshotHeaderBytes;

constexpr const char* kRemedy = "remove the file: an older snapshot or the log is used instead";

[[noreturn]] void throw_corrupt(const std::string& what, std::size_t offset) {
    throw Error(Errc::corrupt_metadata, what, {}, static_cast<std::int64_t>(offset), kRemedy);
}

std::uint32_t header_check(BookSnapshotHeader header) noexcept {
    header.flags = 0;
    return crc32c(&header, sizeof header);
}

std::string text(std::uint64_t value) { return std::to_string(value); }

}  // namespace

std::vector<std::byte> encode_snapshot(const book::Book& book, const SnapshotPlace& place) {
    std::vector<std::byte> payload;
    book.save(payload);
    BookSnapshotHeader header{};
    std::memcpy(header.magic, format::kSnapshotMagic, sizeof header.magic);
    header.schema_version = format::kSnapshotVersion;
    header.header_len = kSnapshotHeaderBytes;
    header.book_mode = static_cast<std::uint16_t>(book.options().mode);
    header.venue_id = place.venue_id;
    header.market_id = place.market_id;
    header.seq_num = place.seq;
    header.ingest_ts_ns_start = static_cast<std::uint64_t>(book.last_timestamp_ns());
    header.ingest_ts_ns_end = static_cast<std::uint64_t>(place.timestamp_ns);
    header.exchange_ts_ns_start = book.last_exchange_ns();
    header.exchange_ts_ns_end = book.last_exchange_ns();
    const Hash128 hash = book.hash();
    header.book_hash_low = hash.low;
    header.book_hash_high = hash.high;
    header.payload_len = payload.size();
    header.flags = format::kSnapshotHasCheck |
                   (std::uint64_t{header_check(header)} << format::kSnapshotCheckShift);
    std::vector<std::byte> file(sizeof header + payload.size());
    std::memcpy(file.data(), &header, sizeof header);
    if (!payload.empty()) std::memcpy(file.data() + sizeof header, payload.data(), payload.size());
    return file;
}

BookSnapshotHeader decode_snapshot_header(std::span<const std::byte> bytes,
                                          std::uint64_t file_bytes) {
    if (bytes.size() < kSnapshotHeaderBytes || file_bytes < kSnapshotHeaderBytes) {
        throw_corrupt("the file is shorter than a snapshot header: bytes=" + text(file_bytes), 0);
    }
    BookSnapshotHeader header;
    std::memcpy(&header, bytes.data(), sizeof header);
    if (std::memcmp(header.magic, format::kSnapshotMagic, sizeof header.magic) != 0) {
        throw_corrupt("not a book snapshot: it does not begin with CHRSNAP1",
                      offsetof(BookSnapshotHeader, magic));
    }
    if (header.schema_version > format::kSnapshotVersion) {
        throw Error(Errc::unsupported_version,
                    "a later release wrote this snapshot: schema_version=" +
                        text(header.schema_version) + ", known=" + text(format::kSnapshotVersion),
                    {}, offsetof(BookSnapshotHeader, schema_version),
                    "read it with that release, or upgrade Tapewire");
    }
    if (header.schema_version != format::kSnapshotVersion) {
        throw_corrupt("invalid version: schema_version=" + text(header.schema_version),
                      offsetof(BookSnapshotHeader, schema_version));
    }
    if (header.header_len != kSnapshotHeaderBytes) {
        throw_corrupt("header_len must be " + text(kSnapshotHeaderBytes) +
                          ": header_len=" + text(header.header_len),
                      offsetof(BookSnapshotHeader, header_len));
    }
    if (header.endianness != 0) {
        throw_corrupt("endianness must be 0 (little): endianness=" + text(header.endianness),
                      offsetof(BookSnapshotHeader, endianness));
    }
    if ((header.flags & format::kSnapshotFlagBits & ~format::kSnapshotHasCheck) != 0) {
        throw Error(Errc::unsupported_version,
                    "the snapshot has flags of a later release: flags=" + hex(header.flags), {},
                    offsetof(BookSnapshotHeader, flags),
                    "read it with that release, or upgrade Tapewire");
    }
    if ((header.flags & format::kSnapshotHasCheck) != 0 &&
        header_check(header) != header.flags >> format::kSnapshotCheckShift) {
        throw_corrupt("the header does not match its checksum: flags=" + hex(header.flags),
                      offsetof(BookSnapshotHeader, flags));
    }
    if (header.book_mode > 1) {
        throw_corrupt("book_mode must be 0 or 1: book_mode=" + text(header.book_mode),
                      offsetof(BookSnapshotHeader, book_mode));
    }
    if (header.venue_id > 0xFFFF) {
        throw_corrupt("venue_id must be below 65536: venue_id=" + text(header.venue_id),
                      offsetof(BookSnapshotHeader, venue_id));
    }
    if (header.payload_len != file_bytes - kSnapshotHeaderBytes) {
        throw_corrupt("payload_len must be the size after the header: payload_len=" +
                          text(header.payload_len) +
                          ", bytes=" + text(file_bytes - kSnapshotHeaderBytes),
                      offsetof(BookSnapshotHeader, payload_len));
    }
    for (const std::uint8_t byte : header.reserved) {
        if (byte != 0)
            throw_corrupt("reserved bytes must be zero", offsetof(BookSnapshotHeader, reserved));
    }
    return header;
}

LoadedSnapshot decode_snapshot(std::span<const std::byte> file, const book::Options& options,
                               bool as_instrument) {
    const BookSnapshotHeader header = decode_snapshot_header(file, file.size());
    const auto payload = file.subspan(kSnapshotHeaderBytes);
    book::Options wanted = options;
    if (!as_instrument) {
        const book::Options saved = book::Book::saved_options(payload);
        wanted.price_scale = saved.price_scale;
        wanted.size_scale = saved.size_scale;
        wanted.rules = saved.rules;
    }
    wanted.mode = format::BookMode{static_cast<std::uint8_t>(header.book_mode)};
    LoadedSnapshot loaded{header, book::Book::load(payload, wanted)};
    const Hash128 hash = loaded.book.hash();
    if (hash != Hash128{header.book_hash_low, header.book_hash_high}) {
        throw_corrupt("the book does not match the hash in the header: book_hash=" +
                          hex(header.book_hash_high) + hex(header.book_hash_low),
                      offsetof(BookSnapshotHeader, book_hash_low));
    }
    return loaded;
}

}  // namespace tapewire::replay
