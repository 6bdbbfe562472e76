#include "tapewire/queue/control.hpp"

#include <fcntl.h>

#include <cerrno>
#include <cstring>

#include "tapewire/error.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/futex.hpp"

namespace tapewire::queue {

using format::ControlBlock;

void Control::create(const Layout& layout, const Geometry& geometry) {
    const std::string temp = layout.control() + ".tmp";
    ControlBlock block{};
    block.magic = format::kControlMagic;
    block.version = format::kControlVersion;
    block.init_state = format::kControlReady;
    block.segment_size = geometry.segment_bytes;
    block.first_seq = geometry.first_seq;
    block.write_offset = format::kSegmentDataOffset;
    {
        File file(temp, O_RDWR | O_CREAT | O_TRUNC);
        file.write_at(&block, sizeof block, 0);
        file.sync_data();
    }
    rename_over(temp, layout.control());
    sync_directory(layout.root);
}

Control Control::open(const Layout& layout, bool must_write) {
    Control control;
    bool writable = true;
    try {
        control.file_ = File(layout.control(), O_RDWR);
    } catch (const Error& e) {
        const bool denied = e.os_errno == EACCES || e.os_errno == EROFS || e.os_errno == EPERM;
        if (must_write || !denied) throw;
        control.file_ = File(layout.control(), O_RDONLY);
        writable = false;
    }
    const std::string& path = control.file_.path();
    const std::uint64_t size = control.file_.size();
    if (size != format::kControlBytes) {
        throw Error(Errc::corrupt_metadata,
                    "control.meta must be 512 bytes: size=" + std::to_string(size), path, 0,
                    "restore control.meta from a copy; the segments beside it are untouched");
    }
    control.map_ = std::make_shared<Mapping>(
        control.file_, format::kControlBytes,
        writable ? Mapping::Access::read_write : Mapping::Access::read_only);
    control.block_ = reinterpret_cast<ControlBlock*>(control.map_->data());

    ControlBlock& block = *control.block_;
    const auto corrupt = [&](const char* field, std::size_t offset, std::uint64_t value) -> Error {
        return Error(Errc::corrupt_metadata,
                     std::string("control.meta is damaged: ") + field + "=" + hex(value), path,
                     static_cast<std::int64_t>(offset),
                     "restore control.meta from a copy; the segments beside it are untouched");
    };
    // init_state is 2 before the file has its name; anything else was written by damage.
    if (const auto state = word(block.init_state).load(); state != format::kControlReady) {
        throw corrupt("init_state", offsetof(ControlBlock, init_state), state);
    }
    if (block.magic != format::kControlMagic) {
        throw corrupt("magic", offsetof(ControlBlock, magic), block.magic);
    }
    if (block.version != format::kControlVersion) {
        throw Error(Errc::unsupported_version,
                    "control.meta has a version this release cannot read: version=" +
                        std::to_string(block.version) + ", supported=3",
                    path, offsetof(ControlBlock, version), kVersionHint);
    }
    const std::uint64_t bytes = block.segment_size;
    if (bytes < format::kSegmentBytesReadableMin || bytes > format::kSegmentBytesMax ||
        bytes % 64 != 0) {
        throw corrupt("segment_size", offsetof(ControlBlock, segment_size), bytes);
    }
    control.segment_bytes_ = bytes;
    control.first_seq_ = block.first_seq;
    return control;
}

void Control::beat(std::uint64_t now_ns) noexcept {
    auto heartbeat = word(block_->writer_heartbeat_ns);
    // Watchers look for a change of the value, so it must change even when the wall clock stands still.
    const std::uint64_t before = heartbeat.load(std::memory_order_relaxed);
    heartbeat.store(now_ns == before ? now_ns + 1 : now_ns, std::memory_order_relaxed);
}

void Control::publish_position(std::uint32_t segment, std::uint64_t offset) noexcept {
    auto gen = word(block_->segment_gen);
    // A writer killed between the two stores left it odd: go on from the next even number.
    const std::uint32_t odd = gen.load(std::memory_order_relaxed) | 1u;
    gen.store(odd, std::memory_order_seq_cst);
    word(block_->current_segment).store(segment, std::memory_order_release);
    word(block_->write_offset).store(offset, std::memory_order_release);
    gen.store(odd + 1, std::memory_order_seq_cst);
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> Control::position() const noexcept {
    for (int tries = 0; tries < 1000; ++tries) {
        const std::uint32_t before = word(block_->segment_gen).load(std::memory_order_acquire);
        const std::uint32_t segment = word(block_->current_segment).load(std::memory_order_acquire);
        const std::uint64_t offset = word(block_->write_offset).load(std::memory_order_acquire);
        const std::uint32_t after = word(block_->segment_gen).load(std::memory_order_acquire);
        if (before == after && before % 2 == 0) return std::pair{segment, offset};
        cpu_relax();
    }
    return std::nullopt;
}

void Control::wake_waiters() noexcept {
    word(block_->waiters_pending).store(0, std::memory_order_seq_cst);
    futex_ring(&block_->notify_seq);
}

}  // namespace tapewire::queue
