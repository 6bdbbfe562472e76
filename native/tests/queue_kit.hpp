// What the tests of the queue share: a scratch directory, appending and reading in one call each, a
// crash image of a live queue, and waiting for another thread to catch up.
#pragma once

#include <sys/stat.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tapewire/error.hpp"
#include "tapewire/queue/layout.hpp"
#include "tapewire/queue/reader.hpp"
#include "tapewire/queue/writer.hpp"

namespace kit {

namespace fs = std::filesystem;
using tapewire::Errc;
using tapewire::Error;
using tapewire::RecordView;
using tapewire::queue::Layout;
using tapewire::queue::Reader;
using tapewire::queue::ReaderOptions;
using tapewire::queue::Writer;
using tapewire::queue::WriterOptions;

constexpr std::uint64_t kSmallest = 8192;  // segment_bytes: 127 units of 64 bytes for records

// A directory that is removed with its scope; in memory if possible.
class Scratch {
  public:
    Scratch() {
        struct stat st;
        std::string name =
            ::stat("/dev/shm", &st) == 0 ? "/dev/shm" : fs::temp_directory_path().string();
        name += "/tapewire-test-XXXXXX";
        if (::mkdtemp(name.data()) == nullptr) std::abort();
        path_ = name;
    }
    ~Scratch() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    Scratch(const Scratch&) = delete;
    Scratch& operator=(const Scratch&) = delete;
    std::string operator/(const char* name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

struct Seen {
    std::uint64_t seq;
    std::string payload;
    bool operator==(const Seen&) const = default;
};

inline WriterOptions small() {
    WriterOptions options;
    options.segment_bytes = kSmallest;
    return options;
}

inline ReaderOptions named(const std::string& name) {
    ReaderOptions options;
    options.name = name;
    return options;
}

// As the bindings do it: try, make room, try again.
inline std::uint64_t append(Writer& writer, const std::string& payload,
                            std::uint64_t timestamp_ns = 1) {
    for (;;) {
        const std::uint64_t seq = writer.next_seq();
        if (seq != Writer::kNoSeq &&
            writer.try_append(7, 0, seq, timestamp_ns, payload.data(), payload.size())) {
            return seq;
        }
        if (!writer.make_room(payload.size())) writer.throw_full();
        writer.resume();
    }
}

inline Seen seen(const RecordView& record) {
    return {record.seq,
            std::string(reinterpret_cast<const char*>(record.payload), record.payload_len)};
}

inline std::vector<Seen> drain(Reader& reader) {
    std::vector<Seen> records;
    RecordView record;
    while (reader.next(record)) records.push_back(seen(record));
    return records;
}

inline std::vector<Seen> read_all(const std::string& root) {
    Reader reader(root, ReaderOptions{});
    return drain(reader);
}

inline std::vector<std::uint64_t> numbers(const std::vector<Seen>& records) {
    std::vector<std::uint64_t> result;
    for (const Seen& record : records) result.push_back(record.seq);
    return result;
}

// What a kill at this moment would leave: the files as they are now, nothing closed.
inline std::string crash_image(const std::string& root) {
    const std::string image = root + ".image";
    fs::remove_all(image);
    fs::create_directories(image + "/readers");
    for (const auto& entry : fs::recursive_directory_iterator(root)) {
        // A worker may rename its temporary file at any time; a kill leaves either name.
        std::error_code gone;
        if (entry.is_regular_file(gone)) {
            fs::copy_file(entry.path(), image / entry.path().lexically_relative(root), gone);
        }
    }
    return image;
}

inline void poke_file(const std::string& path, std::uint64_t offset, const void* bytes,
                      std::size_t n) {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(offset));
    file.write(static_cast<const char*>(bytes), static_cast<std::streamsize>(n));
}

inline std::string peek_file(const std::string& path, std::uint64_t offset, std::size_t n) {
    std::string bytes(n, '\0');
    std::ifstream file(path, std::ios::binary);
    file.seekg(static_cast<std::streamoff>(offset));
    file.read(bytes.data(), static_cast<std::streamsize>(n));
    return bytes;
}

template <class Call>
bool throws(Errc code, Call&& call) {
    try {
        call();
    } catch (const Error& e) {
        return e.code == code;
    }
    return false;
}

// Polls until another thread has caught up; returns false after longer than any healthy run needs.
template <class Predicate>
bool eventually(Predicate&& predicate) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!predicate()) {
        if (std::chrono::steady_clock::now() > deadline) return false;
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    }
    return true;
}

inline std::uint64_t stat(const Writer& writer, tapewire::format::Stat which) {
    return writer.stats()[static_cast<std::size_t>(which)];
}

}  // namespace kit
