// A segment file, open and mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "tapewire/file.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/mapping.hpp"
#include "tapewire/queue/geometry.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

// The end of the records of a segment, recorded by its writer when it sealed it or closed the
// queue.
struct SegmentEnd {
    std::uint64_t offset;
    std::uint64_t next_seq;
};

format::SegmentHeader new_segment_header(const Geometry& geometry, std::uint32_t id,
                                         bool sparse) noexcept;
// Publishes a sealed segment without a record, which readers skip; synced except for its name.
void place_empty_segment(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                         bool sparse);
// The geometry in the header of a segment of an unknown queue; empty if the header is damaged.
std::optional<Geometry> geometry_of(const File& segment, std::uint32_t id);

class Segment {
  public:
    // Opens and checks size, magic, version, number, key and header check. Empty if there is no
    // file.
    static std::optional<Segment> open(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id, Mapping::Access access);
    // A segment that is not open: it has only a number.
    static Segment unopened(std::uint32_t id) {
        Segment segment;
        segment.id_ = id;
        return segment;
    }
    // Creates NNNNNNNNN.q.tmp with its header and its length; other processes see it after
    // `publish`. `allocated`: with its blocks; else the caller allocates them as needed.
    static Segment prepare(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                           bool sparse, bool allocated = true);
    // Gives a prepared segment its name. False if that name exists.
    bool publish(const Layout& layout);

    std::uint32_t id() const noexcept { return id_; }
    std::byte* data() const noexcept { return map_->data(); }
    std::uint64_t size() const noexcept { return map_->size(); }
    const HeaderSeed& seed() const noexcept { return seed_; }
    const std::shared_ptr<const Mapping>& map() const noexcept { return map_; }
    const File& file() const noexcept { return file_; }
    const std::string& path() const noexcept { return map_->path(); }

    std::uint32_t flags(std::memory_order order = std::memory_order_acquire) const noexcept {
        return flags_word().load(order);  // SYNC seal: pairs with seal()
    }
    bool sealed(std::memory_order order = std::memory_order_acquire) const noexcept {
        return (flags(order) & format::kSegmentSealed) != 0;
    }
    const std::uint32_t* flags_address() const noexcept { return &header().flags; }
    bool sparse() const noexcept { return (flags() & format::kSegmentSparse) != 0; }
    void seal() noexcept {
        flags_word().fetch_or(format::kSegmentSealed, std::memory_order_seq_cst);
    }

    // The recorded end. Empty if a writer uses the segment or was killed in it, or if the format of
    // the queue records none.
    std::optional<SegmentEnd> end() const noexcept;
    void record_end(SegmentEnd end) noexcept;
    void forget_end() noexcept;

    // Whether all bytes from `offset` on are zero. Uses the holes of the file first: reading a hole
    // through the mapping takes memory for each page, and an archive log is mostly holes.
    bool is_zero_from(std::uint64_t offset) const;
    // The offset from which on the file is a hole, according to the file system; at least `offset`.
    std::uint64_t written_end(std::uint64_t offset) const;

    // A copy with the same mapping, without the descriptor.
    Segment share() const {
        Segment copy;
        copy.id_ = id_;
        copy.seed_ = seed_;
        copy.map_ = map_;
        return copy;
    }

    // The writer's lock, which a second writer detects even if control.meta was removed. The file
    // is opened again for it: the mapping keeps its open file description, and so would keep the
    // lock in a forked child. A process with read permission can prevent it: `retry_lock` returns
    // whether it is held.
    void lock_for_writing();
    bool retry_lock() const noexcept { return file_.try_write_lock(); }
    void unlock() const noexcept { file_.unlock(); }

    // Only a writer keeps the descriptor, for syncing and its lock; a reader's mapping needs none.
    void close_file() noexcept { file_.close(); }

  private:
    template <class Visit>  // called with the begin and end of a span; false ends the loop
    void for_each_written(std::uint64_t from, Visit visit) const;
    format::SegmentHeader& header() const noexcept {
        return *reinterpret_cast<format::SegmentHeader*>(data());
    }
    std::atomic_ref<std::uint32_t> flags_word() const noexcept {
        return std::atomic_ref(header().flags);
    }

    std::uint32_t id_ = 0;
    HeaderSeed seed_;
    File file_;
    std::shared_ptr<const Mapping> map_;
};

// Empty if it does not exist. Anything but a regular file counts as damage of the log
// (corrupt_metadata), not as a failure of the operating system.
std::optional<File> open_segment_file(const Layout& layout, std::uint32_t id, int flags);

}  // namespace tapewire::queue
