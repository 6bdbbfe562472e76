#include "tapewire/queue/segment.hpp"

#include <fcntl.h>

#include "tapewire/checksum.hpp"
#include "tapewire/error.hpp"

namespace tapewire::queue {

using format::SegmentHeader;

namespace {

void check_header(const SegmentHeader& header, std::uint32_t id, const std::string& path) {
    const auto corrupt = [&](const char* field, std::size_t offset, std::uint64_t value) -> Error {
        return Error(Errc::corrupt_metadata,
                     std::string("segment header is damaged: ") + field + "=" + hex(value), path,
                     static_cast<std::int64_t>(offset),
                     "restore the file from a copy; skip_damaged() of a reader goes on behind it");
    };
    if (header.magic != format::kSegmentMagic) {
        throw corrupt("magic", offsetof(SegmentHeader, magic), header.magic);
    }
    // The check goes first: a flipped bit in `version` is damage, not a release from the future.
    if (header.header_check != 0 &&
        header.header_check != crc32c(&header, format::kSegmentCheckedBytes)) {
        throw corrupt("header_check", offsetof(SegmentHeader, header_check), header.header_check);
    }
    if (header.version != format::kSegmentVersion) {
        throw Error(Errc::unsupported_version,
                    "segment has a version this release cannot read: version=" +
                        std::to_string(header.version) + ", supported=2",
                    path, offsetof(SegmentHeader, version), kVersionHint);
    }
    if (header.segment_id != id) {
        throw corrupt("segment_id", offsetof(SegmentHeader, segment_id), header.segment_id);
    }
}

}  // namespace

SegmentHeader new_segment_header(std::uint32_t id, bool sparse) noexcept {
    SegmentHeader header{};
    header.magic = format::kSegmentMagic;
    header.version = format::kSegmentVersion;
    header.segment_id = id;
    header.flags = sparse ? format::kSegmentSparse : 0;
    header.header_check = crc32c(&header, format::kSegmentCheckedBytes);
    return header;
}

std::optional<Segment> Segment::open(const Layout& layout, std::uint32_t id,
                                     std::uint64_t segment_bytes, Mapping::Access access) {
    const int flags = access == Mapping::Access::read_write ? O_RDWR : O_RDONLY;
    std::optional<File> file = File::open_existing(layout.segment(id), flags);
    if (!file) return std::nullopt;
    if (const std::uint64_t size = file->size(); size != segment_bytes) {
        throw Error(Errc::corrupt_metadata,
                    "segment file has the wrong length: size=" + std::to_string(size) +
                        ", segment_bytes=" + std::to_string(segment_bytes),
                    file->path(), -1,
                    size < segment_bytes ? "the file was cut short; restore it from a copy"
                                         : "control.meta or this file belongs to another queue");
    }
    Segment segment;
    segment.id_ = id;
    segment.map_ = std::make_shared<const Mapping>(*file, segment_bytes, access);
    segment.file_ = std::move(*file);
    check_header(*reinterpret_cast<const SegmentHeader*>(segment.data()), id, segment.path());
    return segment;
}

Segment Segment::prepare(const Layout& layout, std::uint32_t id, std::uint64_t segment_bytes,
                         bool sparse) {
    if (id > format::kSegmentIdMax) {
        throw Error(Errc::queue_full,
                    "segment numbers are used up: segment_id=" + std::to_string(id), layout.root,
                    -1, "start a new queue");
    }
    const std::string temp = layout.segment_temp(id);
    Segment segment;
    segment.id_ = id;
    segment.file_ = File(temp, O_RDWR | O_CREAT | O_TRUNC);
    try {
        segment.file_.allocate(segment_bytes);
        const SegmentHeader header = new_segment_header(id, sparse);
        segment.file_.write_at(&header, sizeof header, 0);
        segment.map_ = std::make_shared<const Mapping>(
            segment.file_, segment_bytes, Mapping::Access::read_write, layout.segment(id));
    } catch (const Error&) {
        segment.file_.close();
        remove_file(temp);
        throw;
    }
    return segment;
}

void place_empty_segment(const Layout& layout, std::uint32_t id, std::uint64_t segment_bytes,
                         bool sparse) {
    const std::string temp = layout.segment_temp(id);
    {
        File file(temp, O_RDWR | O_CREAT | O_TRUNC);
        file.resize(segment_bytes);  // all holes: nobody will write to it
        SegmentHeader header = new_segment_header(id, sparse);
        header.flags |= format::kSegmentSealed;
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

}  // namespace tapewire::queue
