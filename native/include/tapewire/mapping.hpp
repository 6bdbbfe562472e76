// A mapped file that stays accessible whatever happens to the file.
//
// If a file is truncated under a mapping, the next access raises SIGBUS. In Tapewire's own mappings
// the handler puts a zero page at the address and marks the mapping lost; the current call, or the
// next one, throws. Any other SIGBUS goes to the previous handler.
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

// Reinstalls the SIGBUS handler if a library, or faulthandler.enable(), has replaced it; the
// replacement receives the signals that are not ours. Cheap: checks at most every 50 ms.
void guard_against_sigbus() noexcept;
void guard_against_sigbus_now() noexcept;

struct MappingSlot;  // an entry of the table that the SIGBUS handler searches

class Mapping {
  public:
    enum class Access { read_only, read_write };

    // `path` appears in errors; a file that is still being prepared gets its final name.
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

    // Makes every page of [from, from + bytes) present. In a writable mapping they are also made
    // writable and become dirty, though no byte changes: the next sync writes them.
    bool populate(std::size_t from, std::size_t bytes) const noexcept;
    // Accesses each page once: a load or, in a writable mapping, a store that changes nothing.
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
