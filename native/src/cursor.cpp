#include "tapewire/cursor.hpp"

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
    capacity_ = capacity;
}

Walked for_each_record(Cursor& cursor, RecordCallback callback, void* data, std::size_t max_records,
                       std::int64_t slice_ns) {
    constexpr std::size_t kRecordsPerLookAtTheClock = 16;
    Walked walked;
    const std::int64_t until = mono_ns() + slice_ns;
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
        if (walked.records % kRecordsPerLookAtTheClock == 0 && mono_ns() >= until) break;
    }
    return walked;
}

}  // namespace tapewire
