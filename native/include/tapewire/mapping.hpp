// A mapped file that outlives whatever happens to the file.
//
// A file truncated under a mapping makes the next touch a SIGBUS. Inside Tapewire's own mappings
// the handler puts a zero page under the address and marks the mapping lost; the call under way, or
// the next one, throws. Any other SIGBUS goes to the handler that was there before.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "tapewire/file.hpp"

namespace tapewire {

namespace detail {
extern std::atomic<std::uint32_t> mappings_lost;
}

// One load for hot paths: whether any mapping of this process was ever lost.
inline bool any_mapping_lost() noexcept {
    return detail::mappings_lost.load(std::memory_order_relaxed) != 0;
}

// Puts the SIGBUS handler back where some library, or faulthandler.enable(), has replaced it; what
// replaced it gets the signals that are not ours. Cheap: looks at most every 50 ms.
void guard_against_sigbus() noexcept;
void guard_against_sigbus_now() noexcept;

struct MappingSlot;  // an entry of the table that the SIGBUS handler searches

class Mapping {
  public:
    enum class Access { read_only, read_write };

    // `path` is what errors name; a file that is still being prepared gets its final name.
    Mapping(const File& file, std::size_t bytes, Access access, std::string path = {});
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    ~Mapping();

    std::byte* data() const noexcept { return data_; }
    std::size_t size() const noexcept { return size_; }
    const std::string& path() const noexcept { return path_; }
    bool writable() const noexcept { return writable_; }
    bool lost() const noexcept { return lost_->load(std::memory_order_relaxed); }
    void check_not_lost() const {
        if (lost()) throw_lost();
    }

    // Makes every page of [from, from + bytes) present. Of a writable mapping they are ready to be
    // written, and marked as written, though no byte changes: the next sync writes them.
    bool populate(std::size_t from, std::size_t bytes) const noexcept;
    // Each page once, as a load or, of a writable mapping, as a store that changes nothing.
    void touch(std::size_t begin, std::size_t end) const noexcept;
    bool lock_in_memory() const noexcept;

  private:
    [[noreturn]] void throw_lost() const;

    std::byte* data_ = nullptr;
    std::size_t size_ = 0;
    bool writable_ = false;
    MappingSlot* slot_ = nullptr;
    const std::atomic<bool>* lost_ = nullptr;
    std::string path_;
};

using MappingRef = std::shared_ptr<const Mapping>;

}  // namespace tapewire
