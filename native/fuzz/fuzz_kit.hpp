// What the fuzz targets share: claims that end the process when they do not hold, a directory for
// the files of one input, and reading a queue to its end while checking everything about each
// record that can be checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "../tests/queue_kit.hpp"
#include "tapewire/queue/reader_meta.hpp"

namespace fuzz {

using kit::Layout;
using kit::Reader;
using kit::ReaderOptions;
using kit::Writer;
using kit::WriterOptions;
using tapewire::Errc;
using tapewire::Error;
using tapewire::RecordView;
using tapewire::queue::Position;

// Ends the process with the text: for libFuzzer a crash, which keeps the input.
[[noreturn]] void broken(const char* claim, const char* file, int line, const std::string& detail);

#define REQUIRE(claim, detail)                                                         \
    do {                                                                               \
        if (!(claim)) ::fuzz::broken(#claim, __FILE__, __LINE__, std::string(detail)); \
    } while (false)

// An empty directory for one input, always at the same path, in memory if possible.
Layout fresh_queue();

void put_file(const std::string& path, const void* bytes, std::size_t n);
std::string get_file(const std::string& path);

// Writes the control.meta of a queue that is ready, with the given hints.
void put_control(const Layout& layout, const tapewire::queue::Geometry& geometry,
                 std::uint32_t current_segment = 0, std::uint64_t write_offset = 64);

// The same in every run, so that inputs are reproducible.
inline constexpr std::uint64_t kKey = 0x5eed0f7a9e3179e5;

struct Shown {
    Position at;  // of the header
    std::uint64_t seq;
    std::int64_t timestamp_ns;
    std::uint16_t type_id;
    std::uint16_t flags;
    bool foreign;  // without a header check
    std::string payload;

    bool same_record(const Shown& other) const {
        return at.segment == other.at.segment && at.offset == other.at.offset && seq == other.seq &&
               timestamp_ns == other.timestamp_ns && type_id == other.type_id &&
               flags == other.flags && payload == other.payload;
    }
};

// What a reader showed, from its position to the end, skipping damage.
struct Tape {
    std::vector<Shown> shown;
    std::vector<std::uint64_t> numbers;  // of these, and of damaged records with a valid header
    bool damaged = false;                // some record was refused
    bool gaps = false;                   // sequence numbers were missing
    bool stopped = false;  // by an error that cannot be skipped: a segment is gone or is not one
    Position end;          // where reading ended
    // What no claim covers. A refused header without a check of its own may contain anything. An
    // uncommitted word inside a skipped range is the end of the log to a reader that arrives by
    // another path. After the highest sequence numbers there is no next one.
    bool unchecked_damage = false;
    bool hole_skipped = false;
    bool last_numbers = false;

    bool has(const Shown& record) const;
    // If sequence numbers decrease, which records belong to the log depends on where a reader
    // starts.
    bool numbers_rise() const;
    void note_number(std::uint64_t seq) {
        numbers.push_back(seq);
        last_numbers = last_numbers || seq >= ~std::uint64_t{1};
    }
};

ReaderOptions anonymous();
std::string place(Position at);
// `most`: how many records; `segments`: how many there are, to detect a read that never ends.
constexpr std::size_t kAll = ~std::size_t{0};
Tape read_on(Reader& reader, std::uint64_t segments, std::size_t most = kAll);
// Reads from the start; empty if the queue cannot be opened.
std::optional<Tape> read_all(const Layout& layout);

// Checks that every seek ends where it must according to a linear read of the queue; if that read
// met damage, never past a record that it showed. `seq` and `ns` are sought in addition to the
// values of the log.
void check_seeks(const Layout& layout, const Tape& tape, std::uint64_t seq, std::uint64_t ns);
// The same, by sequence number only: a seek index may have false times and valid checksums.
void check_seeks_by_number(const Layout& layout, const Tape& tape, std::uint64_t seq);

// Requires a code with which opening a reader or a writer may refuse what is on disk.
void require_refusal(const Error& error);

}  // namespace fuzz
