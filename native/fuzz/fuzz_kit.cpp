#include "fuzz_kit.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tapewire/checksum.hpp"
#include "tapewire/format/control.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/service.hpp"

namespace fuzz {

namespace fs = std::filesystem;
namespace format = tapewire::format;

void broken(const char* claim, const char* file, int line, const std::string& detail) {
    std::fprintf(stderr, "%s:%d: this does not hold: %s\n    %s\n", file, line, claim,
                 detail.c_str());
    std::abort();
}

std::string place(Position at) {
    return "segment " + std::to_string(at.segment) + ", offset " + std::to_string(at.offset);
}

namespace {

// Keeps the service threads alive between inputs: starting and joining them costs more than
// everything else.
class Resident final : public tapewire::Service::Client {
    std::int64_t run(std::int64_t) noexcept override { return tapewire::kWhenPoked; }
};

struct Home {
    kit::Scratch scratch;
    Layout layout{scratch / "q"};

    Home() {
        auto& services = tapewire::Services::get();
        for (auto* service : {&services.heartbeat, &services.seal, &services.index})
            service->add(new Resident);  // for the lifetime of the process
    }
};

void remove_files_in(const std::string& directory) {
    for (const std::string& name : tapewire::list_directory(directory)) {
        if (name == "." || name == "..") continue;
        const std::string path = directory + "/" + name;
        if (!tapewire::is_directory(path)) tapewire::remove_file(path);
    }
}

bool before(Position a, Position b) {
    return a.segment != b.segment ? a.segment < b.segment : a.offset < b.offset;
}

// Everything that a reader may show, checked here by the portable checksums on the bytes it points
// to.
Shown checked(const Reader& reader, const RecordView& record) {
    const tapewire::Mapping& map = **record.owner;
    const std::byte* const begin = map.data() + format::kSegmentDataOffset;
    const std::byte* const at = record.payload - format::kRecordHeaderBytes;
    const std::uint64_t offset = static_cast<std::uint64_t>(at - map.data());
    const Shown shown{
        {reader.position().segment, offset},
        record.seq,
        record.timestamp_ns,
        record.type_id,
        record.flags,
        !reader.geometry().keyed() && tapewire::queue::Commit::at(at).header().header_check == 0,
        kit::seen(record).payload};
    const std::string where = place(shown.at);
    REQUIRE(at >= begin && record.payload + record.payload_len <= map.data() + map.size(), where);
    REQUIRE(offset % format::kRecordAlign == 0, where);
    format::RecordHeader header;
    std::memcpy(&header, at, sizeof header);
    REQUIRE(header.commit_len == record.payload_len + 1, where);
    REQUIRE(header.version == format::kRecordVersion, where);
    REQUIRE(header.type_id != format::kPadType && header.type_id == record.type_id, where);
    REQUIRE(header.seq == record.seq && header.flags == record.flags, where);
    const tapewire::queue::HeaderSeed seed(reader.geometry().key,
                                           static_cast<std::uint32_t>(shown.at.segment));
    REQUIRE((header.header_check == 0 && !seed.keyed()) ||
                header.header_check == tapewire::crc32c_portable(
                                           &header, format::kHeaderCheckedBytes, ~seed.at(offset)),
            where);
    REQUIRE((header.flags & format::kFlagNoChecksum) != 0 ||
                header.payload_crc == tapewire::crc32_portable(record.payload, record.payload_len),
            where);
    return shown;
}

bool is_damage(Errc code) {
    return code == Errc::corrupt_record || code == Errc::checksum_mismatch ||
           code == Errc::unsupported_version;
}

bool has_no_check(const std::string& segment, std::uint64_t at) {
    format::RecordHeader header;
    if (at + sizeof header > segment.size()) return false;
    std::memcpy(&header, segment.data() + at, sizeof header);
    return header.commit_len != 0 && header.header_check == 0;
}

// Whether a commit word in the range is 0: to a reader that arrives by another path, the log ends
// there.
bool has_hole(const std::string& segment, std::uint64_t from, std::uint64_t to) {
    const auto* bytes = reinterpret_cast<const std::byte*>(segment.data());
    for (std::uint64_t at = from; at < to; at += format::kRecordAlign) {
        if (!tapewire::queue::Commit::at(bytes + at)) return true;
    }
    return false;
}

// Counts the sequence numbers of records that are not shown because their payload is damaged.
void note_valid_headers(Tape& tape, const std::string& segment,
                        const tapewire::queue::HeaderSeed& seed, std::uint64_t from,
                        std::uint64_t to) {
    using namespace tapewire::queue;
    const auto* bytes = reinterpret_cast<const std::byte*>(segment.data());
    for (std::uint64_t at = from; at + format::kRecordHeaderBytes <= to;
         at += format::kRecordAlign) {
        const Commit commit = Commit::at(bytes + at);
        if (commit && check_header(commit, seed, at, segment.size()) == Fault::none) {
            tape.note_number(commit.header().seq);
        }
    }
}

// Checks that a reader at a damaged record throws each time, without moving, until the damage is
// skipped. Returns whether the skip made progress.
bool skip(Reader& reader, const Error& error, bool waiting) {
    const Position at = reader.position();
    if (!waiting) {
        RecordView record;
        try {
            reader.next(record);
            broken("a fault is raised again until it is skipped", __FILE__, __LINE__, place(at));
        } catch (const Error& again) {
            REQUIRE(again.code == error.code, again.message);
        }
    }
    const tapewire::Skipped skipped = reader.skip_damaged();
    const Position now = reader.position();
    REQUIRE(skipped.segment == at.segment && skipped.offset == at.offset, place(at));
    REQUIRE(now.segment == at.segment && now.offset == at.offset + skipped.bytes, place(now));
    REQUIRE(skipped.bytes % format::kRecordAlign == 0, place(now));
    return skipped.bytes != 0;
}

}  // namespace

Layout fresh_queue() {
    static Home home;
    const Layout& layout = home.layout;
    if (tapewire::is_directory(layout.root)) {
        remove_files_in(layout.root);
        remove_files_in(layout.readers());
    } else {
        fs::create_directories(layout.readers());
    }
    return layout;
}

void put_file(const std::string& path, const void* bytes, std::size_t n) {
    const tapewire::File file(path, O_RDWR | O_CREAT | O_TRUNC);
    file.write_at(bytes, n, 0);
}

std::string get_file(const std::string& path) {
    const tapewire::File file(path, O_RDONLY);
    std::string bytes(file.size(), '\0');
    REQUIRE(file.read_at(bytes.data(), bytes.size(), 0) == bytes.size(), path);
    return bytes;
}

void put_control(const Layout& layout, const tapewire::queue::Geometry& geometry,
                 std::uint32_t current_segment, std::uint64_t write_offset) {
    format::ControlBlock block{};
    block.magic = format::kControlMagic;
    block.version = geometry.keyed() ? format::kControlVersion : format::kControlVersionUnkeyed;
    block.init_state = format::kControlReady;
    block.segment_size = geometry.segment_bytes;
    block.first_seq = geometry.first_seq;
    block.key = geometry.key;
    if (geometry.keyed()) {
        block.check = tapewire::crc32c(&block.segment_size, format::kControlCheckedFixedBytes,
                                       tapewire::crc32c(&block, format::kControlCheckedBytes));
    }
    block.current_segment = current_segment;
    block.write_offset = write_offset;
    put_file(layout.control(), &block, sizeof block);
}

void require_refusal(const Error& error) {
    REQUIRE(error.code == Errc::corrupt_metadata || error.code == Errc::segment_missing ||
                error.code == Errc::unsupported_version,
            "code " + std::to_string(static_cast<int>(error.code)) + ": " + error.message);
}

ReaderOptions anonymous() {
    ReaderOptions options;
    options.wait = tapewire::WaitKind::busy_spin;
    return options;
}

bool Tape::numbers_rise() const {
    return std::adjacent_find(numbers.begin(), numbers.end(), std::greater_equal<>()) ==
           numbers.end();
}

bool Tape::has(const Shown& record) const {
    return std::any_of(shown.begin(), shown.end(),
                       [&](const Shown& other) { return other.same_record(record); });
}

Tape read_on(Reader& reader, std::uint64_t segments, std::size_t most) {
    Tape tape;
    // Each turn passes a record of at least 64 bytes, a gap before one or damage, or ends.
    const std::uint64_t most_turns =
        (segments + 1) * (reader.segment_bytes() / format::kRecordAlign + 1) * 3;
    std::optional<std::uint64_t> after_gap;
    Position last = reader.position();
    bool waiting = false;
    for (std::uint64_t turns = 0; tape.shown.size() < most; ++turns) {
        REQUIRE(turns <= most_turns, "reading does not end");
        try {
            RecordView record;
            waiting = false;
            if (!reader.next(record)) {
                waiting = true;  // also looks for a record whose commit word was lost
                if (reader.wait(0) == tapewire::WaitOutcome::ready) continue;
                break;
            }
            tape.shown.push_back(checked(reader, record));
            const Shown& shown = tape.shown.back();
            REQUIRE(!before(shown.at, last), place(shown.at));
            REQUIRE(!after_gap || shown.seq == *after_gap, place(shown.at));
            after_gap.reset();
            tape.note_number(shown.seq);
            last = reader.position();
            REQUIRE(last.segment == shown.at.segment && shown.at.offset < last.offset, place(last));
        } catch (const Error& error) {
            if (error.code == Errc::gap_detected) {
                REQUIRE(!after_gap, "a gap is reported more than once");
                REQUIRE(error.numbers[0] <= error.numbers[1], error.message);
                after_gap = error.numbers[1] + 1;
                tape.gaps = true;
                continue;
            }
            after_gap.reset();
            if (is_damage(error.code) && error.offset >= 64) {
                tape.damaged = true;
                const std::string segment = get_file(error.path);
                const std::uint64_t from = reader.position().offset;
                tape.unchecked_damage = tape.unchecked_damage ||
                                        (!reader.geometry().keyed() && has_no_check(segment, from));
                const Position damaged = reader.position();
                const bool skipped = skip(reader, error, waiting);
                const bool inside = skipped && reader.position().segment == damaged.segment;
                const tapewire::queue::HeaderSeed seed(reader.geometry().key,
                                                       static_cast<std::uint32_t>(damaged.segment));
                note_valid_headers(tape, segment, seed, from,
                                   inside ? reader.position().offset : segment.size());
                if (!skipped) break;
                tape.hole_skipped =
                    tape.hole_skipped || has_hole(segment, from, reader.position().offset);
                continue;
            }
            require_refusal(error);
            tape.stopped = true;
            break;
        }
    }
    tape.end = reader.position();
    return tape;
}

std::optional<Tape> read_all(const Layout& layout) {
    try {
        Reader reader(layout.root, anonymous());
        return read_on(reader, layout.segments().size());
    } catch (const Error& error) {
        require_refusal(error);
        return std::nullopt;
    }
}

}  // namespace fuzz
