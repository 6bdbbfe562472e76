#include "tapewire/format/tail_checkpoint.hpp"

#include <fcntl.h>

#include <cassert>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/queue/recovery.hpp"

namespace tapewire::queue {

// A file of another queue, or of an earlier queue in the same directory, is ignored.
static std::uint32_t next_crc_of(const format::TailCheckpoint& stored, std::uint64_t key) noexcept {
    std::byte bytes[format::kTailCheckpointNextCheckedBytes + sizeof key];
    std::memcpy(bytes, &stored, format::kTailCheckpointNextCheckedBytes);
    std::memcpy(bytes + format::kTailCheckpointNextCheckedBytes, &key, sizeof key);
    return crc32(bytes, key != 0 ? sizeof bytes : format::kTailCheckpointNextCheckedBytes);
}

std::optional<TailCheckpoint> load_tail_checkpoint(const Layout& layout, std::uint64_t key) {
    format::TailCheckpoint stored{};
    std::size_t got = 0;
    try {
        const std::optional<File> file = File::open_existing(layout.tail_checkpoint(), O_RDONLY);
        if (file) got = file->read_at(&stored, sizeof stored, 0);
    } catch (const Error&) {
        return std::nullopt;  // not a readable file: without it the scan is longer
    }
    const bool checked = got >= format::kTailCheckpointShortBytes &&
                         stored.crc == crc32(&stored, format::kTailCheckpointCheckedBytes);
    const bool foreign = got == format::kTailCheckpointCheckedBytes;  // written without a CRC
    if (!checked && !foreign) return std::nullopt;
    TailCheckpoint checkpoint{{stored.segment_id, stored.offset}, 0, checked};
    if (got == sizeof stored && stored.next_crc == next_crc_of(stored, key)) {
        checkpoint.next_seq = stored.next_seq;
    } else if (key != 0) {
        return std::nullopt;
    }
    return checkpoint;
}

void store_tail_checkpoint(const File& file, const TailCheckpoint& checkpoint, std::uint64_t key) {
    assert(is_record_boundary(checkpoint.position.offset, format::kSegmentBytesMax));
    format::TailCheckpoint stored{};
    stored.segment_id = checkpoint.position.segment;
    stored.offset = checkpoint.position.offset;
    stored.crc = crc32(&stored, format::kTailCheckpointCheckedBytes);
    stored.next_seq = checkpoint.next_seq;
    stored.next_crc = next_crc_of(stored, key);
    file.write_at(&stored, sizeof stored, 0);
}

}  // namespace tapewire::queue
