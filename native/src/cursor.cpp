#include "tapewire/cursor.hpp"

#include <algorithm>
#include <cstring>

#include "tapewire/clock.hpp"

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
    if (source_names) regrow(source, size_, capacity);
    capacity_ = capacity;
}

Walked for_each_record(Cursor& cursor, RecordCallback callback, void* data, std::size_t max_records,
                       std::int64_t slice_ns) {
    Walked walked;
    std::int64_t looked = mono_ns();
    const std::int64_t until = looked + slice_ns;
    // The clock is read rarely while the callback is fast, after each record if it is slow.
    constexpr std::size_t kLongestStride = 16;
    constexpr std::int64_t kSlowNs = 1'000'000;
    std::size_t stride = 1;
    std::size_t next_look = 1;
    RecordView record;
    while (walked.records < max_records) {
        if (!cursor.next(record)) {
            walked.at_end = true;
            break;
        }
        ++walked.records;
        if (!callback(record.seq, record.timestamp_ns, record.type_id, record.flags, record.payload,
                      record.payload_len, data)) {
            walked.refused = true;
            break;
        }
        if (walked.records < next_look) continue;
        const std::int64_t now = mono_ns();
        if (now >= until) break;
        stride = now - looked > kSlowNs ? 1 : std::min(2 * stride, kLongestStride);
        next_look = walked.records + stride;
        looked = now;
    }
    return walked;
}

}  // namespace tapewire
