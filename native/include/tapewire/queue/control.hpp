// control.meta, mapped: the words that the processes of a queue share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "tapewire/format/control.hpp"
#include "tapewire/mapping.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

class Control {
  public:
    struct Geometry {
        std::uint64_t segment_bytes;
        std::uint64_t first_seq;
    };

    // Made under a temporary name and renamed when every field is right.
    static void create(const Layout& layout, const Geometry& geometry);
    // Read-write, or read-only where the filesystem or the rights allow no more.
    static Control open(const Layout& layout, bool must_write);

    std::uint64_t segment_bytes() const noexcept { return segment_bytes_; }
    std::uint64_t first_seq() const noexcept { return first_seq_; }
    bool writable() const noexcept { return map_->writable(); }
    const Mapping& map() const noexcept { return *map_; }
    MappingRef shared_map() const noexcept { return map_; }
    void sync() const { file_.sync_data(); }

    std::uint64_t writer_epoch() const noexcept { return word(block_->writer_epoch).load(); }
    void set_writer_epoch(std::uint64_t epoch) noexcept { word(block_->writer_epoch).store(epoch); }
    std::uint64_t heartbeat_ns() const noexcept {
        return word(block_->writer_heartbeat_ns).load(std::memory_order_relaxed);
    }
    void beat(std::uint64_t now_ns) noexcept;

    // Writer: a consistent (segment, offset) for those who look.
    void publish_position(std::uint32_t segment, std::uint64_t offset) noexcept;
    // Empty while a roll is under way, or when a writer was killed in the middle of one.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> position() const noexcept;
    std::uint32_t current_segment() const noexcept {
        return word(block_->current_segment).load(std::memory_order_acquire);
    }
    const std::uint32_t* current_segment_address() const noexcept {
        return &block_->current_segment;
    }
    std::uint64_t* write_offset_word() const noexcept { return &block_->write_offset; }

    std::uint32_t* notify_word() const noexcept { return &block_->notify_seq; }
    std::uint32_t* waiters_word() const noexcept { return &block_->waiters_pending; }
    // Clears the flag, then rings, then wakes: the other order loses wake-ups.
    void wake_waiters() noexcept;

  private:
    template <class T>
    static std::atomic_ref<T> word(T& field) noexcept {
        return std::atomic_ref<T>(field);
    }

    File file_;
    std::shared_ptr<Mapping> map_;
    format::ControlBlock* block_ = nullptr;
    std::uint64_t segment_bytes_ = 0;
    std::uint64_t first_seq_ = 0;
};

}  // namespace tapewire::queue
