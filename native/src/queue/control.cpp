#include "tapewire/queue/control.hpp"

#include <fcntl.h>

#include <cassert>
#include <cerrno>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/futex.hpp"
#include "tapewire/process.hpp"

namespace tapewire::queue {

using format::ControlBlock;

namespace {

std::uint32_t fixed_check(const ControlBlock& block) noexcept {
    return crc32c(&block.segment_size, format::kControlCheckedFixedBytes,
                  crc32c(&block, format::kControlCheckedBytes));
}

constexpr const char* kRebuildHint =
    "`tapewire repair` rebuilds it from the segments, which are not changed";

}  // namespace

void Control::create(const Layout& layout, const Geometry& geometry, std::uint64_t epoch) {
    const std::string temp = layout.control() + ".tmp";
    ControlBlock block{};
    block.magic = format::kControlMagic;
    block.version = geometry.keyed() ? format::kControlVersion : format::kControlVersionUnkeyed;
    block.init_state = format::kControlReady;
    block.writer_epoch = epoch;
    block.segment_size = geometry.segment_bytes;
    block.first_seq = geometry.first_seq;
    block.key = geometry.key;
    if (geometry.keyed()) block.check = fixed_check(block);
    block.write_offset = format::kSegmentDataOffset;
    block.write_check = block.write_offset ^ mix_key(geometry.key, block.current_segment);
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
                    "control.meta must be " + std::to_string(format::kControlBytes) +
                        " bytes: size=" + std::to_string(size),
                    path, 0, kRebuildHint);
    }
    control.map_ = std::make_shared<Mapping>(
        control.file_, format::kControlBytes,
        writable ? Mapping::Access::read_write : Mapping::Access::read_only);
    control.block_ = reinterpret_cast<ControlBlock*>(control.map_->data());

    ControlBlock& block = *control.block_;
    const auto corrupt = [&](const char* field, std::size_t offset, std::uint64_t value) -> Error {
        return Error(Errc::corrupt_metadata,
                     std::string("control.meta is damaged: ") + field + "=" + hex(value), path,
                     static_cast<std::int64_t>(offset), kRebuildHint);
    };
    // init_state is 2 before the file has its name; any other value is damage.
    if (const auto state = word(block.init_state).load(); state != format::kControlReady) {
        throw corrupt("init_state", offsetof(ControlBlock, init_state), state);
    }
    if (block.magic != format::kControlMagic) {
        throw corrupt("magic", offsetof(ControlBlock, magic), block.magic);
    }
    // The check goes first: a flipped bit in `version` is damage, not a newer release. Version 3
    // has no check; a key where there must be zeros shows that a bit of a later version's was
    // flipped.
    const bool checked = block.check != 0 && block.check == fixed_check(block);
    if (!checked && (block.version == format::kControlVersion || block.check != 0)) {
        throw corrupt("check", offsetof(ControlBlock, check), block.check);
    }
    if (block.version != format::kControlVersion &&
        block.version != format::kControlVersionUnkeyed) {
        throw Error(Errc::unsupported_version,
                    "control.meta has a version that this release cannot read: version=" +
                        std::to_string(block.version) +
                        ", supported=" + std::to_string(format::kControlVersionUnkeyed) + " and " +
                        std::to_string(format::kControlVersion),
                    path, offsetof(ControlBlock, version), kVersionHint);
    }
    control.geometry_ = {block.segment_size, block.first_seq, block.key};
    if (!control.geometry_.is_possible()) {
        throw corrupt("segment_size", offsetof(ControlBlock, segment_size), block.segment_size);
    }
    const bool keyed = block.version == format::kControlVersion;
    if (keyed != (block.key != 0)) throw corrupt("key", offsetof(ControlBlock, key), block.key);
    control.version_ = block.version;
    return control;
}

void Control::set_writer_origin() noexcept {
    block_->pid_namespace = pid_namespace();
    const BootId boot = boot_id();
    std::memcpy(block_->boot_id, boot.data(), boot.size());
}

bool Control::written_in_this_boot() const noexcept {
    const BootId boot = boot_id();
    return boot != BootId{} && std::memcmp(block_->boot_id, boot.data(), boot.size()) == 0;
}

bool Control::written_in_earlier_boot() const noexcept {
    constexpr BootId kNone{};
    return std::memcmp(block_->boot_id, kNone.data(), kNone.size()) != 0 && !written_in_this_boot();
}

void Control::beat(std::uint64_t now_ns) noexcept {
    auto heartbeat = word(block_->writer_heartbeat_ns);
    // Observers watch for a change of the value, so it must change even if the wall clock does not.
    const std::uint64_t before = heartbeat.load(std::memory_order_relaxed);
    heartbeat.store(now_ns == before ? now_ns + 1 : now_ns, std::memory_order_relaxed);
}

void Control::publish_position(std::uint32_t segment, std::uint64_t offset) noexcept {
    assert(writable());
    auto gen = word(block_->segment_gen);
    // A writer killed between the two stores left it odd: continue from the next even number.
    const std::uint32_t odd = gen.load(std::memory_order_relaxed) | 1u;
    gen.store(odd, std::memory_order_seq_cst);
    word(block_->current_segment).store(segment, std::memory_order_release);
    word(block_->write_offset).store(offset, std::memory_order_release);
    word(block_->write_check).store(offset ^ position_mask(segment), std::memory_order_release);
    gen.store(odd + 1, std::memory_order_seq_cst);
}

std::optional<std::pair<std::uint32_t, std::uint64_t>> Control::position() const noexcept {
    std::uint64_t seen = 0;
    for (int tries = 0; tries < 1000; ++tries) {
        const std::uint32_t before = word(block_->segment_gen).load(std::memory_order_acquire);
        const std::uint32_t segment = word(block_->current_segment).load(std::memory_order_acquire);
        const std::uint64_t offset = write_offset();
        const std::uint64_t check = word(block_->write_check).load(std::memory_order_acquire);
        const std::uint32_t after = word(block_->segment_gen).load(std::memory_order_acquire);
        if (before == after && before % 2 == 0) {
            if (!geometry_.keyed() || check == (offset ^ position_mask(segment)))
                return std::pair{segment, offset};
            // The writer is between its two stores; or, if nothing changes, they are damaged.
            if (tries != 0 && seen == offset) return std::nullopt;
            seen = offset;
        }
        cpu_relax();
    }
    return std::nullopt;
}

void Control::wake_waiters() noexcept {
    word(block_->waiters_pending).store(0, std::memory_order_seq_cst);
    futex_ring(&block_->notify_seq);
}

}  // namespace tapewire::queue
