#include "tapewire/queue/segment.hpp"

#include <fcntl.h>

#include <algorithm>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"
#include "tapewire/queue/record_check.hpp"

namespace tapewire::queue {

using format::SegmentHeader;

namespace {

std::uint32_t header_check(const SegmentHeader& header) noexcept {
    const std::uint32_t fixed = crc32c(&header, format::kSegmentCheckedBytes);
    if (header.version == format::kSegmentVersionUnkeyed) return fixed;
    const std::uint32_t flags = header.flags & ~format::kSegmentSealed;  // only this one changes
    return crc32c(&header.segment_units, format::kSegmentCheckedFixedBytes,
                  crc32c(&flags, sizeof flags, fixed));
}

std::uint32_t units_of(const Geometry& geometry) noexcept {
    return static_cast<std::uint32_t>(geometry.segment_bytes / format::kSegmentUnitBytes);
}

void check_header(const SegmentHeader& header, const Geometry& geometry, std::uint32_t id,
                  const std::string& path) {
    const auto corrupt = [&](const char* field, std::size_t offset, std::uint64_t value) -> Error {
        return Error(Errc::corrupt_metadata,
                     std::string("segment header is damaged: ") + field + "=" + hex(value), path,
                     static_cast<std::int64_t>(offset),
                     "`tapewire repair` rewrites it; skip_damaged() of a reader continues after "
                     "the segment");
    };
    if (header.magic != format::kSegmentMagic) {
        throw corrupt("magic", offsetof(SegmentHeader, magic), header.magic);
    }
    // The check goes first: a flipped bit in `version` is damage, not a newer release.
    if ((header.header_check != 0 || geometry.keyed()) &&
        header.header_check != header_check(header)) {
        throw corrupt("header_check", offsetof(SegmentHeader, header_check), header.header_check);
    }
    const std::uint32_t version =
        geometry.keyed() ? format::kSegmentVersion : format::kSegmentVersionUnkeyed;
    if (header.version != version) {
        throw Error(Errc::unsupported_version,
                    "the segment has a version that does not match the queue: version=" +
                        std::to_string(header.version) + ", supported=" + std::to_string(version),
                    path, offsetof(SegmentHeader, version), kVersionHint);
    }
    if (header.segment_id != id) {
        throw corrupt("segment_id", offsetof(SegmentHeader, segment_id), header.segment_id);
    }
    if (header.key != geometry.key && geometry.keyed()) {
        throw Error(Errc::corrupt_metadata,
                    "the segment belongs to another queue: key=" + hex(header.key), path,
                    offsetof(SegmentHeader, key),
                    "move the file back to its queue, or restore this one from a copy");
    }
    if (geometry.keyed() && header.segment_units != units_of(geometry)) {
        throw corrupt("segment_units", offsetof(SegmentHeader, segment_units),
                      header.segment_units);
    }
}

std::uint32_t end_check(const SegmentEnd& end, HeaderSeed seed) noexcept {
    // crc32c takes its seed as the initial state, inverted.
    return crc32c(&end, format::kSegmentEndCheckedBytes, ~seed.of_segment());
}
static_assert(sizeof(SegmentEnd) == format::kSegmentEndCheckedBytes);

}  // namespace

SegmentHeader new_segment_header(const Geometry& geometry, std::uint32_t id, bool sparse) noexcept {
    SegmentHeader header{};
    header.magic = format::kSegmentMagic;
    header.version = geometry.keyed() ? format::kSegmentVersion : format::kSegmentVersionUnkeyed;
    header.segment_id = id;
    header.flags = sparse ? format::kSegmentSparse : 0;
    if (geometry.keyed()) {
        header.segment_units = units_of(geometry);
        header.key = geometry.key;
        header.first_seq = geometry.first_seq;
    }
    header.header_check = header_check(header);
    return header;
}

std::optional<Geometry> geometry_of(const File& segment, std::uint32_t id) {
    SegmentHeader header;
    if (segment.read_at(&header, sizeof header, 0) != sizeof header) return std::nullopt;
    const bool keyed = header.version == format::kSegmentVersion && header.key != 0;
    if (!keyed && header.version != format::kSegmentVersionUnkeyed) return std::nullopt;
    Geometry geometry{segment.size(), 0, 0};
    if (keyed) {
        // Not from the length of the file: it may have been truncated.
        geometry = {std::uint64_t{header.segment_units} * format::kSegmentUnitBytes,
                    header.first_seq, header.key};
    }
    if (!geometry.is_possible()) return std::nullopt;
    try {
        check_header(header, geometry, id, segment.path());
    } catch (const Error&) {
        return std::nullopt;
    }
    return geometry;
}

std::optional<File> open_segment_file(const Layout& layout, std::uint32_t id, int flags) {
    try {
        return File::open_existing(layout.segment(id), flags);
    } catch (const Error& e) {
        // The errors of open() for a directory, a link, a pipe and a socket.
        const int code = e.os_errno;
        if (code != EISDIR && code != ELOOP && code != EINVAL && code != ENXIO) throw;
        throw Error(Errc::corrupt_metadata, "a segment is not a regular file: " + e.message,
                    layout.segment(id), -1, "restore the segment from a copy");
    }
}

std::optional<Segment> Segment::open(const Layout& layout, const Geometry& geometry,
                                     std::uint32_t id, Mapping::Access access) {
    const int flags = access == Mapping::Access::read_write ? O_RDWR : O_RDONLY;
    std::optional<File> file = open_segment_file(layout, id, flags);
    if (!file) return std::nullopt;
    if (const std::uint64_t size = file->size(); size != geometry.segment_bytes) {
        throw Error(Errc::corrupt_metadata,
                    "the segment file has an invalid length: size=" + std::to_string(size) +
                        ", segment_bytes=" + std::to_string(geometry.segment_bytes),
                    file->path(), -1,
                    size < geometry.segment_bytes
                        ? "the file was truncated; restore it from a copy"
                        : "control.meta or this file belongs to another queue");
    }
    Segment segment;
    segment.id_ = id;
    segment.seed_ = HeaderSeed(geometry.key, id);
    segment.map_ = std::make_shared<const Mapping>(*file, geometry.segment_bytes, access);
    segment.file_ = std::move(*file);
    check_header(segment.header(), geometry, id, segment.path());
    return segment;
}

Segment Segment::prepare(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                         bool sparse, bool allocated) {
    if (id > format::kSegmentIdMax) {
        throw Error(Errc::queue_full,
                    "no segment numbers are left: segment_id=" + std::to_string(id), layout.root,
                    -1, "start a new queue");
    }
    const std::string temp = layout.segment_temp(id);
    Segment segment;
    segment.id_ = id;
    segment.seed_ = HeaderSeed(geometry.key, id);
    segment.file_ = File(temp, O_RDWR | O_CREAT | O_TRUNC);
    try {
        if (allocated) {
            segment.file_.allocate(geometry.segment_bytes);
        } else {
            segment.file_.resize(geometry.segment_bytes);
        }
        const SegmentHeader header = new_segment_header(geometry, id, sparse);
        segment.file_.write_at(&header, sizeof header, 0);
        segment.map_ = std::make_shared<const Mapping>(
            segment.file_, geometry.segment_bytes, Mapping::Access::read_write, layout.segment(id));
    } catch (const Error&) {
        segment.file_.close();
        remove_file(temp);
        throw;
    }
    return segment;
}

static void set_end(SegmentHeader& header, SegmentEnd end, HeaderSeed seed) noexcept {
    if (!seed.keyed()) return;
    std::atomic_ref(header.end_offset).store(end.offset, std::memory_order_relaxed);
    std::atomic_ref(header.end_seq).store(end.next_seq, std::memory_order_relaxed);
    std::atomic_ref(header.end_check).store(end_check(end, seed), std::memory_order_release);
}

void place_empty_segment(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                         bool sparse) {
    const std::string temp = layout.segment_temp(id);
    {
        File file(temp, O_RDWR | O_CREAT | O_TRUNC);
        file.resize(geometry.segment_bytes);  // all holes: no process will write to it
        SegmentHeader header = new_segment_header(geometry, id, sparse);
        header.flags |= format::kSegmentSealed;
        set_end(header, {format::kSegmentDataOffset, 0}, HeaderSeed(geometry.key, id));
        file.write_at(&header, sizeof header, 0);
        file.sync_data();
    }
    rename_without_replacing(temp, layout.segment(id));
}

bool Segment::publish(const Layout& layout) {
    if (!rename_without_replacing(layout.segment_temp(id_), layout.segment(id_))) return false;
    file_.moved_to(layout.segment(id_));
    return true;
}

void Segment::lock_for_writing() {
    File again(path(), O_RDWR);
    if (!file_.is_still_at_its_path()) {
        throw Error(Errc::segment_missing,
                    "the segment was removed or replaced while it was opened", path(), -1,
                    "open the queue again");
    }
    file_ = std::move(again);
    (void)retry_lock();
}

// Three words that are not read atomically: if they change meanwhile, the check does not match.
std::optional<SegmentEnd> Segment::end() const noexcept {
    if (!seed_.keyed()) return std::nullopt;
    const SegmentEnd end{std::atomic_ref(header().end_offset).load(std::memory_order_acquire),
                         std::atomic_ref(header().end_seq).load(std::memory_order_acquire)};
    const std::uint32_t check = std::atomic_ref(header().end_check).load(std::memory_order_acquire);
    if (!is_record_boundary(end.offset, size()) || check != end_check(end, seed_)) {
        return std::nullopt;
    }
    return end;
}

void Segment::record_end(SegmentEnd end) noexcept { set_end(header(), end, seed_); }

void Segment::forget_end() noexcept {
    if (!seed_.keyed()) return;
    std::atomic_ref(header().end_check).store(0, std::memory_order_release);
    std::atomic_ref(header().end_offset).store(0, std::memory_order_release);
    std::atomic_ref(header().end_seq).store(0, std::memory_order_release);
}

// Skips holes by the extents of the file: in a file in memory, reading a hole allocates a page.
template <class Visit>
void Segment::for_each_written(std::uint64_t from, Visit visit) const {
    std::optional<File> opened;
    try {
        if (!file_) opened = File::open_existing(path(), O_RDONLY);
    } catch (const Error&) {
        // No descriptor available, or no permission any more: then all of it is visited.
    }
    const File& file = opened ? *opened : file_;
    const bool by_extents = file && file.shows_holes();
    while (from < size()) {
        const std::uint64_t begin = by_extents ? file.next_data(from) : from;
        if (begin >= size()) return;
        const std::uint64_t end = by_extents ? std::min(file.next_hole(begin), size()) : size();
        if (!visit(begin, end)) return;
        from = end;
    }
}

bool Segment::is_zero_from(std::uint64_t offset) const {
    const std::uint64_t page = std::min((offset + 4095) & ~std::uint64_t{4095}, size());
    bool zero = all_zero(data() + offset, page - offset);
    if (!zero) return false;
    for_each_written(page, [&](std::uint64_t begin, std::uint64_t end) {
        return zero = all_zero(data() + begin, end - begin);
    });
    return zero;
}

std::uint64_t Segment::written_end(std::uint64_t offset) const {
    std::uint64_t last = offset;
    for_each_written(offset, [&](std::uint64_t, std::uint64_t end) {
        last = end;
        return true;
    });
    return last;
}

}  // namespace tapewire::queue
