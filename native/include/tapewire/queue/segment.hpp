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

// Where the records of a segment end, as its writer recorded it when it sealed it or closed the queue.
struct SegmentEnd {
    std::uint64_t offset;
    std::uint64_t next_seq;
};

format::SegmentHeader new_segment_header(const Geometry& geometry, std::uint32_t id,
                                         bool sparse) noexcept;
// Publishes a sealed segment without a record, to be passed over; on disk but for its name.
void place_empty_segment(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                         bool sparse);
// What the header of a segment that belongs to no known queue says of it; empty when it is damaged.
std::optional<Geometry> geometry_of(const File& segment, std::uint32_t id);

class Segment {
  public:
    // Opens and checks size, magic, version, number, key and header check. Empty when there is no file.
    static std::optional<Segment> open(const Layout& layout, const Geometry& geometry,
                                       std::uint32_t id, Mapping::Access access);
    // The place of a segment that is not open: it has a number and nothing else.
    static Segment unopened(std::uint32_t id) {
        Segment segment;
        segment.id_ = id;
        return segment;
    }
    // Makes NNNNNNNNN.q.tmp with its header and its length; no process sees it before `publish`.
    // `allocated`: its blocks, too, else the caller allocates them as they are needed.
    static Segment prepare(const Layout& layout, const Geometry& geometry, std::uint32_t id,
                           bool sparse, bool allocated = true);
    // Gives a prepared segment its name. False when that name is taken.
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

    // The recorded end. Empty without one: a writer is in the segment, was killed in it, or the queue is
    // of a format that records none.
    std::optional<SegmentEnd> end() const noexcept;
    void record_end(SegmentEnd end) noexcept;
    void forget_end() noexcept;

    // Whether nothing was ever written from `offset` on. The file system is asked first: to read a hole
    // through the mapping takes memory for each page of it, and an archive's log is mostly hole.
    bool is_zero_from(std::uint64_t offset) const;
    // All bytes from here on are a hole, as far as the file system shows them; `offset` at least.
    std::uint64_t written_end(std::uint64_t offset) const;

    // The same mapping once more, without the descriptor.
    Segment share() const {
        Segment copy;
        copy.id_ = id_;
        copy.seed_ = seed_;
        copy.map_ = map_;
        return copy;
    }

    // The writer's lock, by which a second writer learns of it where control.meta is gone. The file is opened
    // again for it: the mapping keeps its open file description, and so would keep the lock in a forked
    // child. A process that may only read can keep it from being taken: `retry_lock` returns whether it is.
    void lock_for_writing();
    bool retry_lock() const noexcept { return file_.try_write_lock(); }
    void unlock() const noexcept { file_.unlock(); }

    // Only a writer keeps the descriptor (for syncing and its lock); a reader's mapping needs none.
    void close_file() noexcept { file_.close(); }

  private:
    template <class Visit>  // of the beginning and the end of a span; false: no more
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

// Empty: there is none. What is no regular file is damage of the log, like a damaged header (corrupt_metadata),
// and not a failure of the operating system.
std::optional<File> open_segment_file(const Layout& layout, std::uint32_t id, int flags);

}  // namespace tapewire::queue
