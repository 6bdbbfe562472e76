// What the fuzz targets share: claims that end the process when they do not hold, a folder for the
// files of one input, and reading a queue to its end while checking all that can be checked of each
// record.
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

// Ends the process with the text: for libFuzzer a crash, with the input kept.
[[noreturn]] void broken(const char* claim, const char* file, int line, const std::string& detail);

#define REQUIRE(claim, detail)                                                         \
    do {                                                                               \
        if (!(claim)) ::fuzz::broken(#claim, __FILE__, __LINE__, std::string(detail)); \
    } while (false)

// An empty folder for one input, always at the same path, in memory where there is such a place.
Layout fresh_queue();

void put_file(const std::string& path, const void* bytes, std::size_t n);
std::string get_file(const std::string& path);

// control.meta of a queue that is ready, its hints as given.
void put_control(const Layout& layout, const tapewire::queue::Geometry& geometry,
                 std::uint32_t current_segment = 0, std::uint64_t write_offset = 64);

// The same in every run, so that inputs can be repeated.
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

// What a reader showed, from where it stood to the end, damage skipped.
struct Tape {
    std::vector<Shown> shown;
    std::vector<std::uint64_t> numbers;  // of those, and of damaged records whose header is right
    bool damaged = false;                // some record was refused
    bool gaps = false;                   // numbers were missing
    bool stopped = false;  // by an error that cannot be skipped: a segment is gone or is not one
    Position end;          // where reading ended
    // What no claim is made about. A refused header without a check of its own may say anything. An
    // uncommitted word inside of what was skipped is the log's end to everybody who comes by
    // another way. Behind the highest numbers there is no next one.
    bool unchecked_damage = false;
    bool hole_skipped = false;
    bool last_numbers = false;

    bool has(const Shown& record) const;
    // Where numbers fall, it depends on where one begins which of the records are the log's.
    bool numbers_rise() const;
    void note_number(std::uint64_t seq) {
        numbers.push_back(seq);
        last_numbers = last_numbers || seq >= ~std::uint64_t{1};
    }
};

ReaderOptions anonymous();
std::string place(Position at);
// `most`: how many records; `segments`: how many there are, so that an endless reading is seen.
constexpr std::size_t kAll = ~std::size_t{0};
Tape read_on(Reader& reader, std::uint64_t segments, std::size_t most = kAll);
// From the start; empty when the queue cannot be opened.
std::optional<Tape> read_all(const Layout& layout);

// Every seek ends where a linear reading of the whole queue says it must; where that reading met
// damage, never behind a record that it showed. `seq` and `ns` are looked for beside what the tape
// holds.
void check_seeks(const Layout& layout, const Tape& tape, std::uint64_t seq, std::uint64_t ns);
// The same, by number alone: a seek index may lie about times with checksums that are right.
void check_seeks_by_number(const Layout& layout, const Tape& tape, std::uint64_t seq);

// Codes with which opening a reader or a writer may refuse what is on disk.
void require_refusal(const Error& error);

}  // namespace fuzz
