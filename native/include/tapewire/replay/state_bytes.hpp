// Converts values to bytes and back: the format of saved feature state. Little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "tapewire/error.hpp"

namespace tapewire::replay {

class StateWriter {
  public:
    explicit StateWriter(std::vector<std::byte>& out) : out_(out) {}

    template <typename T>
    void put(const T& value) {
        static_assert(std::has_unique_object_representations_v<T>, "padding is not written");
        bytes(std::as_bytes(std::span(&value, 1)));
    }
    // Preceded by its length.
    void block(std::span<const std::byte> data) {
        put(static_cast<std::uint64_t>(data.size()));
        bytes(data);
    }
    void text(const std::string& value) { block(std::as_bytes(std::span(value))); }
    void bytes(std::span<const std::byte> data) {
        out_.insert(out_.end(), data.begin(), data.end());
    }

  private:
    std::vector<std::byte>& out_;
};

// Throws corrupt_metadata if bytes are missing.
class StateReader {
  public:
    explicit StateReader(std::span<const std::byte> in) : in_(in) {}

    template <typename T>
    T get() {
        static_assert(std::has_unique_object_representations_v<T>);
        T value;
        std::memcpy(&value, take(sizeof value).data(), sizeof value);
        return value;
    }
    bool flag() {
        const auto value = get<std::uint8_t>();
        if (value > 1) refuse("a flag must be 0 or 1: flag=" + std::to_string(value));
        return value == 1;
    }
    std::span<const std::byte> block() {
        const auto size = get<std::uint64_t>();
        if (size > in_.size()) refuse("the state ends too early: bytes=" + std::to_string(size));
        return take(size);
    }
    std::string text() {
        const auto data = block();
        return {reinterpret_cast<const char*>(data.data()), data.size()};
    }
    // The number of items of `each` bytes that follow.
    std::size_t count(std::size_t each) {
        const auto n = get<std::uint64_t>();
        if (n > in_.size() / each) refuse("the state ends too early: count=" + std::to_string(n));
        return n;
    }
    void end() const {
        if (!in_.empty()) refuse("bytes follow the state: bytes=" + std::to_string(in_.size()));
    }
    [[noreturn]] static void refuse(const std::string& what) {
        throw Error(Errc::corrupt_metadata, "not a state of features: " + what, {}, -1,
                    "use an older one, or start without");
    }

  private:
    std::span<const std::byte> take(std::size_t n) {
        if (n > in_.size()) refuse("the state ends too early: bytes=" + std::to_string(in_.size()));
        const auto data = in_.first(n);
        in_ = in_.subspan(n);
        return data;
    }
    std::span<const std::byte> in_;
};

}  // namespace tapewire::replay
