// Small queues whose payloads contain complete records of this queue and of others, as images to be
// mutated: closed cleanly, or copied while the writer was open.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <span>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/checksum.hpp"
#include "tapewire/format/tail_checkpoint.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/segment.hpp"

namespace mutants {

using namespace kit;
using tapewire::queue::Control;
using tapewire::queue::Geometry;
using tapewire::queue::HeaderSeed;
using tapewire::queue::Position;
using tapewire::queue::RecoveredTail;
using tapewire::queue::RecoveryOptions;
using tapewire::queue::Segment;
namespace format = tapewire::format;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr std::uint64_t kMutantsDefault = 1'000;
#else
constexpr std::uint64_t kMutantsDefault = 10'000;
#endif
constexpr std::uint64_t kMutantsOfImage = 200;
constexpr int kMostFailures = 20;
constexpr Position kEverywhere{~std::uint64_t{0}, 0};

class Random {
  public:
    Random(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
        std::seed_seq seeds{a, a >> 32, b, b >> 32, c, c >> 32};
        engine_.seed(seeds);
    }
    std::uint64_t bits() { return engine_(); }
    std::uint64_t below(std::uint64_t n) { return engine_() % n; }
    std::uint64_t from_to(std::uint64_t low, std::uint64_t high) {
        return low + below(high - low + 1);
    }
    bool one_in(std::uint64_t n) { return below(n) == 0; }
    template <class T>
    const T& of(const std::vector<T>& all) {
        return all[below(all.size())];
    }

  private:
    std::mt19937_64 engine_;
};

// ---- files --------------------------------------------------------------------------------------

using Files = std::map<std::string, std::string>;  // by name, in the directory of the queue

inline void put(const std::string& path, const std::string& bytes) {
    const tapewire::File file(path, O_RDWR | O_CREAT);
    if (file.size() != bytes.size()) file.resize(bytes.size());
    if (!bytes.empty()) file.write_at(bytes.data(), bytes.size(), 0);
}

inline std::string get(const std::string& path) {
    const tapewire::File file(path, O_RDONLY);
    std::string bytes(file.size(), '\0');
    file.read_at(bytes.data(), bytes.size(), 0);
    return bytes;
}

inline std::string segment_name(std::uint64_t id) {
    return Layout{""}.segment(static_cast<std::uint32_t>(id)).substr(1);
}
inline std::string index_name(std::uint64_t id) {
    return Layout{""}.index(static_cast<std::uint32_t>(id)).substr(1);
}

// Makes the directory contain exactly these files.
inline void restore(const std::string& root, const Files& files) {
    for (const std::string& name : tapewire::list_directory(root)) {
        if (name[0] != '.' && name != "readers" && !files.contains(name))
            tapewire::remove_file(root + "/" + name);
    }
    for (const auto& [name, bytes] : files) put(root + "/" + name, bytes);
}

inline Files segments_of(const std::string& root) {
    Files files;
    for (std::uint32_t id : Layout{root}.segments())
        files[segment_name(id)] = get(Layout{root}.segment(id));
    return files;
}

// ---- images -------------------------------------------------------------------------------------

struct Original {
    Position at;
    std::uint64_t seq;
    std::int64_t timestamp_ns;
    std::uint16_t type_id;
    std::uint16_t flags;
    std::string payload;

    std::uint64_t end() const { return at.offset + format::record_bytes(payload.size()); }
    bool operator==(const Original&) const = default;
};

struct Image {
    Files files;
    Geometry geometry;
    std::vector<Original> originals;
    bool sparse = false;
    bool killed = false;
    bool restarted = false;  // the machine, since the kill
    bool leftover = false;   // bytes of an unfinished append follow the last record
    Position synced;         // by index.meta
    std::uint64_t last_segment = 0;
    std::string text;
};

// The record that was just read, with its position.
inline Original original(const Reader& reader, const RecordView& record) {
    const auto offset = static_cast<std::uint64_t>(record.payload - (*record.owner)->data()) -
                        format::kRecordHeaderBytes;
    return {{reader.position().segment, offset},
            record.seq,
            record.timestamp_ns,
            record.type_id,
            record.flags,
            seen(record).payload};
}

inline std::string raw_bytes(const RecordView& record) {
    return std::string(reinterpret_cast<const char*>(record.payload - format::kRecordHeaderBytes),
                       format::record_bytes(record.payload_len));
}

// With a key from the generator, so that runs are reproducible; a Writer chooses a random one.
inline void create_queue(const std::string& root, const Geometry& geometry, bool sparse) {
    const Layout layout{root};
    fs::remove_all(root);
    fs::create_directories(layout.readers());
    Segment::prepare(layout, geometry, 0, sparse, false).publish(layout);
    tapewire::queue::store_tail_checkpoint(
        tapewire::File(layout.tail_checkpoint(), O_RDWR | O_CREAT),
        {{0, format::kSegmentDataOffset}, geometry.first_seq}, geometry.key);
    Control::create(layout, geometry);
}

inline WriterOptions quiet_options(std::uint32_t stride) {
    WriterOptions options;
    options.preallocate = false;
    options.index_stride = stride;
    return options;
}

class ImageBuilder {
  public:
    ImageBuilder(const Scratch& scratch, Random& random)
        : scratch_(scratch), random_(random), here_(scratch / "build") {}

    Image build() {
        make_foreign_records();
        image_.sparse = random_.one_in(2);
        image_.geometry = {kSmallest, random_.one_in(3) ? random_.below(1000) : 0,
                           random_.bits() | 1};
        create_queue(here_, image_.geometry, image_.sparse);
        remember_checkpoint();
        stride_ = static_cast<std::uint32_t>(random_.of<std::uint64_t>({1, 2, 7, 4096}));
        most_bytes_ = random_.of<std::uint64_t>({100, 700, 3000});
        const std::uint64_t sessions = random_.from_to(1, 3);
        for (std::uint64_t i = 0; i < sessions; ++i) write_session();
        image_.files = files_here(image_.killed);
        if (image_.restarted) {
            std::string& control = image_.files["control.meta"];
            control.replace(offsetof(format::ControlBlock, boot_id), 16, 16, '\0');
        }
        read_originals();
        image_.text = std::string(image_.sparse ? "sparse" : "dense") +
                      (image_.killed ? ", killed" : ", closed") +
                      (image_.restarted ? ", restarted" : "") +
                      (image_.leftover ? ", leftover" : "");
        return std::move(image_);
    }

  private:
    // Makes records of another queue with a key, and of one without.
    void make_foreign_records() {
        for (const std::uint64_t key : {random_.bits() | 1, std::uint64_t{0}}) {
            create_queue(scratch_ / "stranger", {kSmallest, 0, key}, false);
            Writer writer(scratch_ / "stranger", quiet_options(4096));
            Reader reader(scratch_ / "stranger", ReaderOptions{});
            for (int i = 0; i < 20; ++i) {
                append(writer, text(random_.below(200)), 1 + random_.below(1000));
                RecordView record;
                if (reader.next(record)) embeddable_.push_back(raw_bytes(record));
            }
        }
    }

    std::string text(std::uint64_t bytes) {
        std::string result(bytes, '\0');
        for (char& c : result) c = static_cast<char>('a' + random_.below(26));
        return result;
    }

    // Random bytes, or consecutive records, at offsets where a search looks for them.
    std::string payload() {
        const std::uint64_t bytes = random_.one_in(8) ? 0 : random_.below(most_bytes_);
        if (random_.one_in(3)) return text(bytes);
        std::string result;
        while (result.size() < bytes) {
            if (random_.one_in(6)) {
                result += text(64);
            } else if (random_.one_in(6)) {
                result += std::string(64, '\0');
            } else {
                result += random_.of(embeddable_);
            }
        }
        result.resize(random_.one_in(2) ? std::min<std::uint64_t>(result.size(), 7000) : bytes);
        return result;
    }

    void write_session() {
        const std::uint64_t records = random_.from_to(0, most_bytes_ > 1000 ? 15 : 60);
        Writer writer(here_, quiet_options(stride_));
        Reader reader(here_, ReaderOptions{});
        if (seen_) reader.seek_seq(*seen_ + 1);
        std::uint64_t time = seen_.value_or(0) + 1'000'000;
        for (std::uint64_t i = 0; i < records; ++i) {
            append_one(writer, time += random_.below(3));
            if (random_.one_in(25)) {
                writer.flush_sync();
                remember_checkpoint();
            }
            follow(reader);
        }
        image_.killed = random_.one_in(2);
        image_.leftover = false;
        image_.restarted = image_.killed && random_.one_in(3);
        if (!image_.killed) {
            writer.close();
            remember_checkpoint();
            remember_indexes();
            return;
        }
        if (random_.one_in(2)) leave_unfinished(writer);
        // The next session, if any, finds what a kill leaves.
        const Files left = files_here(true);
        writer.close();
        restore(here_, left);
    }

    void append_one(Writer& writer, std::uint64_t time) {
        const std::string bytes = payload();
        const auto type = static_cast<std::uint16_t>(random_.below(100));
        for (;;) {
            const std::uint64_t seq =
                writer.next_seq() + (image_.sparse && random_.one_in(4) ? random_.below(50) : 0);
            if (writer.try_append_numbered(type, 0x0100, seq, time, bytes.data(), bytes.size()))
                return;
            if (!writer.make_room(bytes.size())) writer.throw_full();
            writer.resume();
        }
    }

    // Leaves a reservation that is filled and not committed.
    void leave_unfinished(Writer& writer) {
        const std::string bytes = random_.of(embeddable_) + random_.of(embeddable_);
        const auto at = Control::open(Layout{here_}, false).position();
        if (at->second + format::record_bytes(bytes.size()) > kSmallest) return;
        std::memcpy(writer.reserve(bytes.size()), bytes.data(), bytes.size());
        image_.leftover = true;
    }

    void follow(Reader& reader) {
        RecordView record;
        for (;;) {
            try {
                if (!reader.next(record)) return;
            } catch (const Error& e) {
                if (e.code != Errc::gap_detected) throw;
                continue;
            }
            embeddable_.push_back(raw_bytes(record));
            seen_ = record.seq;
        }
    }

    // Workers write these two kinds of files asynchronously; an image contains what was certainly
    // there.
    void remember_checkpoint() { checkpoint_ = get(Layout{here_}.tail_checkpoint()); }
    void remember_indexes() {
        indexes_.clear();
        for (std::uint32_t id : Layout{here_}.indexes())
            indexes_[index_name(id)] = get(Layout{here_}.index(id));
    }

    Files files_here(bool killed) {
        Files files = segments_of(here_);
        files["control.meta"] = get(Layout{here_}.control());
        files["index.meta"] = checkpoint_;
        for (const auto& [name, bytes] : indexes_) {
            if (!killed || files.contains(name.substr(0, 9) + ".q")) files[name] = bytes;
        }
        return files;
    }

    void read_originals() {
        restore(here_, image_.files);
        Reader reader(here_, ReaderOptions{});
        RecordView record;
        for (;;) {
            try {
                if (!reader.next(record)) break;
            } catch (const Error& e) {
                // Sequence numbers that a kill lost, after a close that recorded them.
                if (e.code != Errc::gap_detected) throw;
                continue;
            }
            image_.originals.push_back(original(reader, record));
        }
        image_.last_segment = Layout{here_}.segments().back();
        const auto checkpoint =
            load_tail_checkpoint(Layout{here_}, Control::open(Layout{here_}, false).geometry().key);
        image_.synced = checkpoint->position;
    }

    const Scratch& scratch_;
    Random& random_;
    std::string here_;
    Image image_;
    std::vector<std::string> embeddable_;
    std::optional<std::uint64_t> seen_;
    std::string checkpoint_;
    Files indexes_;
    std::uint32_t stride_ = 1;
    std::uint64_t most_bytes_ = 0;
};

}  // namespace mutants
