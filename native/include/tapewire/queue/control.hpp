// control.meta, mapped: the words that the processes of a queue share.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "tapewire/format/control.hpp"
#include "tapewire/mapping.hpp"
#include "tapewire/queue/geometry.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

class Control {
  public:
    // Created under a temporary name and renamed once every field is valid. `epoch` is not 0 if the
    // file of an existing queue is rebuilt.
    static void create(const Layout& layout, const Geometry& geometry, std::uint64_t epoch = 0);
    // Read-write, or read-only if the file system or the permissions allow no more.
    static Control open(const Layout& layout, bool must_write);

    const Geometry& geometry() const noexcept { return geometry_; }
    std::uint64_t segment_bytes() const noexcept { return geometry_.segment_bytes; }
    std::uint64_t first_seq() const noexcept { return geometry_.first_seq; }
    std::uint32_t version() const noexcept { return version_; }
    const File& file() const noexcept { return file_; }
    bool writable() const noexcept { return map_->writable(); }
    const Mapping& map() const noexcept { return *map_; }
    MappingRef shared_map() const noexcept { return map_; }

    std::uint64_t writer_epoch() const noexcept { return word(block_->writer_epoch).load(); }
    void set_writer_epoch(std::uint64_t epoch) noexcept { word(block_->writer_epoch).store(epoch); }
    std::uint64_t heartbeat_ns() const noexcept {
        return word(block_->writer_heartbeat_ns).load(std::memory_order_relaxed);
    }
    void beat(std::uint64_t now_ns) noexcept;

    // errno of a failed sync of a writer: the kernel may have dropped what it could not write.
    // Remains until a later writer has written everything since the checkpoint again.
    int sync_errno() const noexcept {
        return static_cast<int>(word(block_->sync_errno).load(std::memory_order_relaxed));
    }
    void set_sync_errno(int err) noexcept {
        word(block_->sync_errno).store(static_cast<std::uint32_t>(err), std::memory_order_relaxed);
    }
    // Identity of the writer's host and container, to interpret its pid from elsewhere or after a
    // reboot.
    void set_writer_origin() noexcept;
    bool written_in_this_boot() const noexcept;
    bool written_in_earlier_boot() const noexcept;  // false where no boot is recorded
    std::uint64_t writer_pid_namespace() const noexcept { return block_->pid_namespace; }

    // Called by the writer: publishes a consistent (segment, offset).
    void publish_position(std::uint32_t segment, std::uint64_t offset) noexcept;
    // Empty during a roll, if a writer was killed in the middle of one, and if it is damaged.
    std::optional<std::pair<std::uint32_t, std::uint64_t>> position() const noexcept;
    std::uint32_t current_segment() const noexcept {
        return word(block_->current_segment).load(std::memory_order_acquire);
    }
    const std::uint32_t* current_segment_address() const noexcept {
        return &block_->current_segment;
    }
    std::uint64_t write_offset() const noexcept {
        return word(block_->write_offset).load(std::memory_order_acquire);
    }
    // The mask that write_check is xored with, for each segment.
    std::uint64_t position_mask(std::uint32_t segment) const noexcept {
        return mix_key(geometry_.key, segment);
    }
    format::ControlBlock* block() const noexcept { return block_; }  // for the writer's hot path

    std::uint32_t* notify_word() const noexcept { return &block_->notify_seq; }
    std::uint32_t* waiters_word() const noexcept { return &block_->waiters_pending; }
    // Clears the flag, then rings, then wakes: another order loses wake-ups.
    void wake_waiters() noexcept;

  private:
    template <class T>
    static std::atomic_ref<T> word(T& field) noexcept {
        return std::atomic_ref<T>(field);
    }

    File file_;
    std::shared_ptr<Mapping> map_;
    format::ControlBlock* block_ = nullptr;
    Geometry geometry_;
    std::uint32_t version_ = 0;
};

}  // namespace tapewire::queue
