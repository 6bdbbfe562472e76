// readers/NAME.meta: a reader's committed position and heartbeat.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "tapewire/file.hpp"
#include "tapewire/format/reader_meta.hpp"
#include "tapewire/mapping.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

struct Position {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    auto operator<=>(const Position&) const = default;
};

struct ReaderState {
    Position position;
    std::uint64_t heartbeat_ns = 0;
    std::uint64_t generation = 0;  // 0 = the reader has written nothing yet
    bool pinned = false;
    bool damaged = false;  // not empty, but no slot is valid
};

// The content of the file, for outside observers (retention, tools). Empty: no such file.
std::optional<ReaderState> read_reader_state(const std::string& path);

// Access by the reader itself: a flock on the file for as long as the reader lives.
class ReaderMeta {
  public:
    enum class Open { or_create, existing };

    // Throws reader_already_active if another process holds the name.
    ReaderMeta(const Layout& layout, const std::string& name, Open how = Open::or_create);
    ReaderMeta(const ReaderMeta&) = delete;
    ReaderMeta& operator=(const ReaderMeta&) = delete;
    ~ReaderMeta();

    ReaderState state() const {
        std::lock_guard lock(mutex_);
        return state_;
    }
    void commit(Position position, bool pinned);  // the user's thread
    void beat() noexcept;                         // the heartbeat thread
    void sync() const { file_.sync_data(); }
    const std::string& path() const noexcept { return file_.path(); }

  private:
    void write(Position position, bool pinned) noexcept;
    void map();

    File file_;
    std::unique_ptr<Mapping> map_;
    mutable std::mutex mutex_;
    ReaderState state_;
};

}  // namespace tapewire::queue
