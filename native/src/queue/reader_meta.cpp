#include "tapewire/queue/reader_meta.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <cassert>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"
#include "tapewire/queue/writer_lock.hpp"

namespace tapewire::queue {

using format::ReaderMetaSlot;

namespace {

bool slot_is_right(const ReaderMetaSlot& slot, unsigned index) {
    return slot.generation != 0 && slot.generation < format::kReaderGenerationEnd &&
           slot.generation % 2 == index &&
           slot.crc == crc32(&slot, format::kReaderMetaCheckedBytes);
}

ReaderState judge(const format::ReaderMeta& meta, std::size_t bytes) {
    ReaderState state;
    for (unsigned i = 0; i < 2; ++i) {
        const ReaderMetaSlot& slot = meta.slots[i];
        if (slot.flags != 0) state.pinned = true;  // if in doubt, keep data
        if (!slot_is_right(slot, i) || slot.generation <= state.generation) continue;
        state.position = {slot.segment_id, slot.offset};
        state.heartbeat_ns = slot.last_heartbeat_ns;
        state.generation = slot.generation;
    }
    if (state.generation != 0) {
        state.pinned = meta.slots[state.generation % 2].flags != 0;
    } else {
        // Slot 1 is written first. While slot 0 was never written, the file holds at most the
        // registration of a new name, and an interrupted store has lost nothing.
        const auto* raw = reinterpret_cast<const unsigned char*>(&meta.slots[0]);
        for (std::size_t i = 0; i < sizeof meta.slots[0] && i < bytes; ++i) {
            state.damaged = state.damaged || raw[i] != 0;
        }
    }
    return state;
}

}  // namespace

std::optional<ReaderState> read_reader_state(const std::string& path) {
    const std::optional<File> file = File::open_existing(path, O_RDONLY);
    if (!file) return std::nullopt;
    ReaderState state;
    // The reader may be storing at this moment, and a half-written slot is invalid: try again.
    for (int tries = 0; tries < 3; ++tries) {
        format::ReaderMeta meta{};
        const std::size_t got = file->read_at(&meta, sizeof meta, 0);
        state = judge(meta, got);
        if (!state.damaged) break;
    }
    return state;
}

ReaderMeta::ReaderMeta(const Layout& layout, const std::string& name, Open how) {
    const std::string path = layout.reader_meta(name);
    for (;;) {
        file_ = File(path, how == Open::or_create ? O_RDWR | O_CREAT : O_RDWR);
        if (!lock_patiently(file_)) {
            throw Error(Errc::reader_already_active,
                        "this reader name is in use: name='" + name + "'", path, -1,
                        "close the other reader, or choose another name");
        }
        // The file may have been removed between open and lock: the lock would protect nothing.
        if (file_.is_still_at_its_path()) break;
    }
    format::ReaderMeta meta{};
    const std::uint64_t size = file_.size();
    const std::size_t got = file_.read_at(&meta, sizeof meta, 0);
    state_ = judge(meta, got);
    if (size > format::kReaderMetaBytes) state_.damaged = true;
    if (state_.damaged) return;
    file_.extend_with_zeros(format::kReaderMetaBytes);
    map();
}

// Uses a descriptor of its own: a mapping keeps the descriptor it was made with open, and so its
// lock, also in a forked child, which has no other way to release it.
void ReaderMeta::map() {
    const File again(file_.path(), O_RDWR);
    if (!file_.is_still_at_its_path()) {
        throw Error(Errc::reader_already_active, "the reader's file was removed or replaced",
                    file_.path(), -1, "open the reader again");
    }
    map_ = std::make_unique<Mapping>(again, format::kReaderMetaBytes, Mapping::Access::read_write);
}

// Unlocked before it is closed: a copy of the descriptor in a child must not keep the name.
ReaderMeta::~ReaderMeta() { file_.unlock(); }

void ReaderMeta::commit(Position position, bool pinned) {
    std::lock_guard lock(mutex_);
    if (!map_) {  // damaged, and the user chose a start position: begin from scratch
        file_.resize(0);
        file_.extend_with_zeros(format::kReaderMetaBytes);
        map();
        state_ = {};
    }
    write(position, pinned);
    map_->check_not_lost();
}

void ReaderMeta::beat() noexcept {
    std::lock_guard lock(mutex_);
    if (map_ && state_.generation != 0) write(state_.position, state_.pinned);
}

void ReaderMeta::write(Position position, bool pinned) noexcept {
    assert(map_ && state_.generation < format::kReaderGenerationEnd);
    std::uint64_t now = static_cast<std::uint64_t>(wall_ns());
    if (now == state_.heartbeat_ns) ++now;  // observers watch for a change of the value
    ReaderMetaSlot slot{};
    slot.segment_id = position.segment;
    slot.offset = position.offset;
    slot.last_heartbeat_ns = now;
    slot.generation = state_.generation + 1;
    slot.crc = crc32(&slot, format::kReaderMetaCheckedBytes);
    slot.flags = pinned ? format::kReaderPinned : 0;
    auto* slots = reinterpret_cast<ReaderMetaSlot*>(map_->data());
    std::memcpy(&slots[slot.generation % 2], &slot, sizeof slot);
    state_ = {position, now, slot.generation, pinned, false};
}

}  // namespace tapewire::queue
