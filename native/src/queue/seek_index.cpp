#include "tapewire/queue/seek_index.hpp"

#include <fcntl.h>

#include <cassert>
#include <cstring>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/walk.hpp"

namespace tapewire::queue {

using format::SeekIndexEntry;
using format::SeekIndexHeader;
using format::SeekIndexTrailer;

namespace {

constexpr std::uint64_t kHeaderBytes = format::kSeekIndexHeaderBytes;

std::uint64_t most_entries(std::uint64_t segment_bytes, std::uint32_t stride) {
    assert(stride != 0 && segment_bytes > format::kSegmentDataOffset);
    const std::uint64_t records =
        (segment_bytes - format::kSegmentDataOffset) / format::kRecordAlign;
    return records / stride + 1;
}

// Complete and consistent, whatever wrote it; the segment is not checked yet.
bool header_is_right(const SeekIndexHeader& h, std::uint32_t id, std::uint64_t segment_bytes) {
    return std::memcmp(h.magic, format::kSeekIndexMagic, sizeof h.magic) == 0 &&
           h.version == format::kSeekIndexVersion && h.header_len == kHeaderBytes &&
           h.segment_id == id && h.segment_size == segment_bytes &&
           h.data_offset == format::kSegmentDataOffset && h.entry_stride != 0 &&
           h.entry_count <= most_entries(segment_bytes, h.entry_stride) &&
           (h.entry_count == 0 || (h.min_seq <= h.max_seq && h.min_ts_ns <= h.max_ts_ns));
}

bool entries_rise(std::span<const SeekIndexEntry> entries, std::uint64_t segment_bytes) {
    std::uint64_t last = 0;
    for (const SeekIndexEntry& e : entries) {
        if (e.offset <= last || e.offset % format::kRecordAlign != 0) return false;
        if (e.offset > segment_bytes - format::kRecordHeaderBytes) return false;
        last = e.offset;
    }
    return true;
}

// Starts from the state of the segment: the index of another queue does not pass.
std::uint32_t crc_in(HeaderSeed seed, const void* data, std::size_t bytes) noexcept {
    return crc32c(data, bytes, ~seed.of_segment());
}

std::optional<LoadedIndex> load_once(const File& file, std::uint32_t id,
                                     std::uint64_t segment_bytes, HeaderSeed seed) {
    SeekIndexHeader header;
    if (file.read_at(&header, sizeof header, 0) != sizeof header) return std::nullopt;
    if (!header_is_right(header, id, segment_bytes)) return std::nullopt;

    LoadedIndex index;
    if (file.size() < kHeaderBytes + header.entry_count * sizeof(SeekIndexEntry))
        return std::nullopt;
    index.entries.resize(header.entry_count);
    const std::size_t bytes = index.entries.size() * sizeof(SeekIndexEntry);
    if (file.read_at(index.entries.data(), bytes, kHeaderBytes) != bytes) return std::nullopt;
    if (!entries_rise(index.entries, segment_bytes)) return std::nullopt;

    index.running_max = (header.flags & format::kSeekIndexRunningMax) != 0;
    if (index.running_max) {
        SeekIndexTrailer trailer;
        if (file.read_at(&trailer, sizeof trailer, kHeaderBytes + bytes) != sizeof trailer ||
            std::memcmp(trailer.magic, format::kSeekIndexTrailerMagic, sizeof trailer.magic) != 0 ||
            trailer.header_crc != crc_in(seed, &header, sizeof header) ||
            trailer.entries_crc != crc_in(seed, index.entries.data(), bytes)) {
            return std::nullopt;
        }
    } else if (seed.keyed()) {
        return std::nullopt;  // an implementation that writes no checks writes no key either
    }
    index.complete = (header.flags & format::kSeekIndexPartial) == 0;
    index.max_seq = header.max_seq;
    index.stride = header.entry_stride;
    index.times = {header.min_ts_ns, header.max_ts_ns};
    return index;
}

}  // namespace

IndexBuilder::IndexBuilder(const Segment& segment, std::uint32_t stride)
    : segment_id_(segment.id()),
      segment_bytes_(segment.size()),
      seed_(segment.seed()),
      stride_(stride),
      capacity_(most_entries(segment.size(), stride)),
      entries_(std::make_unique_for_overwrite<SeekIndexEntry[]>(capacity_)) {}

void IndexBuilder::push(std::uint64_t seq, std::uint64_t offset) noexcept {
    until_entry_ = stride_;
    const std::uint64_t n = count_.load(std::memory_order_relaxed);
    if (n == capacity_) return;  // impossible: capacity_ is based on the smallest records
    entries_[n] = {seq, times_.max_ns, offset};
    published_min_ts_ns_.store(times_.min_ns, std::memory_order_relaxed);
    count_.store(n + 1, std::memory_order_release);
}

void IndexBuilder::resume(const LoadedIndex& loaded, std::uint64_t up_to_offset) {
    stride_ = loaded.stride;
    capacity_ = most_entries(segment_bytes_, stride_);
    entries_ = std::make_unique_for_overwrite<SeekIndexEntry[]>(capacity_);
    std::uint64_t n = 0;
    while (n < loaded.entries.size() && n < capacity_ && loaded.entries[n].offset <= up_to_offset) {
        entries_[n] = loaded.entries[n];
        ++n;
    }
    last_seq_ = n != 0 ? entries_[n - 1].seq : 0;
    times_.min_ns = loaded.times.min_ns;
    times_.max_ns = n != 0 ? entries_[n - 1].timestamp_ns : 0;
    published_min_ts_ns_.store(times_.min_ns, std::memory_order_relaxed);
    until_entry_ = n != 0 ? stride_ : 1;
    count_.store(n, std::memory_order_release);
}

void IndexBuilder::write(const Layout& layout, bool complete) {
    const std::uint64_t n = count_.load(std::memory_order_acquire);
    assert(n <= capacity_ && (written_ == ~std::uint64_t{0} || written_ <= n));
    if (!complete && n == written_) return;
    SeekIndexHeader header{};
    std::memcpy(header.magic, format::kSeekIndexMagic, sizeof header.magic);
    header.version = format::kSeekIndexVersion;
    header.header_len = format::kSeekIndexHeaderBytes;
    header.flags = format::kSeekIndexRunningMax | (complete ? 0 : format::kSeekIndexPartial);
    header.segment_id = segment_id_;
    header.segment_size = segment_bytes_;
    header.data_offset = format::kSegmentDataOffset;
    header.entry_stride = stride_;
    header.entry_count = n;
    if (n != 0) {
        // For a growing segment: the values up to the newest entry. The later ones belong to the
        // appending thread.
        header.min_seq = entries_[0].seq;
        header.max_seq = complete ? last_seq_ : entries_[n - 1].seq;
        header.min_ts_ns =
            complete ? times_.min_ns : published_min_ts_ns_.load(std::memory_order_relaxed);
        header.max_ts_ns = complete ? times_.max_ns : entries_[n - 1].timestamp_ns;
    }
    SeekIndexTrailer trailer{};
    std::memcpy(trailer.magic, format::kSeekIndexTrailerMagic, sizeof trailer.magic);
    trailer.header_crc = crc_in(seed_, &header, sizeof header);
    const std::uint64_t bytes = n * sizeof(SeekIndexEntry);
    trailer.entries_crc = crc_in(seed_, entries_.get(), bytes);

    File file(layout.index(segment_id_), O_RDWR | O_CREAT);
    const std::uint64_t from = written_ <= n ? written_ : 0;
    file.write_at(entries_.get() + from, (n - from) * sizeof(SeekIndexEntry),
                  kHeaderBytes + from * sizeof(SeekIndexEntry));
    file.write_at(&trailer, sizeof trailer, kHeaderBytes + bytes);
    file.write_at(&header, sizeof header, 0);
    if (complete || written_ == ~std::uint64_t{0})
        file.resize(kHeaderBytes + bytes + sizeof trailer);
    written_ = n;
}

static std::optional<LoadedIndex> load_index(const Layout& layout, std::uint32_t segment_id,
                                             std::uint64_t segment_bytes, HeaderSeed seed) {
    try {
        const std::optional<File> file = File::open_existing(layout.index(segment_id), O_RDONLY);
        if (!file) return std::nullopt;
        // For a growing segment the index thread may be in the middle of a write: try again.
        for (int tries = 0; tries < 3; ++tries) {
            if (auto index = load_once(*file, segment_id, segment_bytes, seed)) return index;
        }
    } catch (const Error&) {
        // A directory, a link or a pipe instead of the file, or a bad sector: the segment itself
        // takes precedence.
    }
    return std::nullopt;
}

std::optional<LoadedIndex> load_index(const Layout& layout, const Geometry& geometry,
                                      std::uint32_t segment_id) {
    return load_index(layout, segment_id, geometry.segment_bytes,
                      HeaderSeed(geometry.key, segment_id));
}

std::optional<LoadedIndex> load_index(const Layout& layout, const Segment& segment) {
    return load_index(layout, segment.id(), segment.size(), segment.seed());
}

bool entry_is_right(const Segment& segment, const SeekIndexEntry& entry) noexcept {
    const Commit commit = Commit::at(segment.data() + entry.offset);
    return commit &&
           check_record(commit, segment.seed(), entry.offset, segment.size()) == Fault::none &&
           commit.header().type_id != format::kPadType && commit.header().seq == entry.seq;
}

std::unique_ptr<IndexBuilder> scan_index(const Layout& layout, const Geometry& geometry,
                                         const Segment& segment, std::uint32_t stride) {
    auto builder = std::make_unique<IndexBuilder>(segment, stride);
    for (Walk walk = walk_from_start(layout, geometry, segment); walk.step();) {
        builder->add(walk.header().seq, walk.header().timestamp_ns, walk.offset());
    }
    return builder;
}

}  // namespace tapewire::queue
