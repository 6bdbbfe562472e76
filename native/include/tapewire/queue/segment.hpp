// A segment file, open and mapped.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "tapewire/file.hpp"
#include "tapewire/format/segment.hpp"
#include "tapewire/mapping.hpp"
#include "tapewire/queue/layout.hpp"

namespace tapewire::queue {

format::SegmentHeader new_segment_header(std::uint32_t id, bool sparse) noexcept;
// Publishes a sealed segment without a record, to be passed over; on disk but for its name.
void place_empty_segment(const Layout& layout, std::uint32_t id, std::uint64_t segment_bytes,
                         bool sparse);

class Segment {
  public:
    // Opens and checks size, magic, version, number and header check. Empty when there is no file.
    static std::optional<Segment> open(const Layout& layout, std::uint32_t id,
                                       std::uint64_t segment_bytes, Mapping::Access access);
    // The place of a segment that is not open: it has a number and nothing else.
    static Segment unopened(std::uint32_t id) {
        Segment segment;
        segment.id_ = id;
        return segment;
    }
    // Allocates and prepares NNNNNNNNN.q.tmp; nobody sees it before `publish`.
    static Segment prepare(const Layout& layout, std::uint32_t id, std::uint64_t segment_bytes,
                           bool sparse);
    // Gives a prepared segment its name. False when that name is taken.
    bool publish(const Layout& layout);

    std::uint32_t id() const noexcept { return id_; }
    std::byte* data() const noexcept { return map_->data(); }
    std::uint64_t size() const noexcept { return map_->size(); }
    const std::shared_ptr<const Mapping>& map() const noexcept { return map_; }
    const File& file() const noexcept { return file_; }
    const std::string& path() const noexcept { return map_->path(); }

    std::uint32_t flags(std::memory_order order = std::memory_order_acquire) const noexcept {
        return flags_word().load(order);  // SYNC seal: pairs with seal()
    }
    bool sealed(std::memory_order order = std::memory_order_acquire) const noexcept {
        return (flags(order) & format::kSegmentSealed) != 0;
    }
    const std::uint32_t* flags_address() const noexcept {
        return &reinterpret_cast<const format::SegmentHeader*>(data())->flags;
    }
    bool sparse() const noexcept { return (flags() & format::kSegmentSparse) != 0; }
    void seal() noexcept {
        flags_word().fetch_or(format::kSegmentSealed, std::memory_order_seq_cst);
    }

    // The same mapping once more, without the descriptor.
    Segment share() const {
        Segment copy;
        copy.id_ = id_;
        copy.map_ = map_;
        return copy;
    }

    // Only a writer keeps the descriptor (for syncing); a reader's mapping needs none.
    void close_file() noexcept { file_.close(); }

  private:
    std::atomic_ref<std::uint32_t> flags_word() const noexcept {
        return std::atomic_ref(reinterpret_cast<format::SegmentHeader*>(data())->flags);
    }

    std::uint32_t id_ = 0;
    File file_;
    std::shared_ptr<const Mapping> map_;
};

}  // namespace tapewire::queue
