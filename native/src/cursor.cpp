#include "tapewire/cursor.hpp"

#include <cstring>

namespace tapewire {

namespace {

template <class T>
void regrow(std::unique_ptr<T[]>& column, std::size_t used, std::size_t capacity) {
    auto grown = std::make_unique_for_overwrite<T[]>(capacity);
    if (used != 0) std::memcpy(grown.get(), column.get(), used * sizeof(T));
    column = std::move(grown);
}

}  // namespace

void BatchColumns::grow() {
    const std::size_t capacity = capacity_ == 0 ? 256 : capacity_ * 4;
    regrow(seq, size_, capacity);
    regrow(timestamp_ns, size_, capacity);
    regrow(type_id, size_, capacity);
    regrow(flags, size_, capacity);
    regrow(payload, size_, capacity);
    regrow(payload_len, size_, capacity);
    capacity_ = capacity;
}

}  // namespace tapewire
