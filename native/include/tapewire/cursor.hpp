// The native interface of a reader of any kind of log. Record, Batch and the Python readers are
// built on it; fan-in, filters and replay use it independently of the kind.
//
// A cursor belongs to one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tapewire/mapping.hpp"

namespace tapewire {

// One record, in place. Valid while a copy of *owner exists.
struct RecordView {
    const std::byte* payload = nullptr;
    std::uint32_t payload_len = 0;
    std::uint16_t type_id = 0;
    std::uint16_t flags = 0;
    std::uint64_t seq = 0;
    std::int64_t timestamp_ns = 0;
    const MappingRef* owner = nullptr;
};

// Columns of many records; payloads stay in place. Grows as it is filled, so that a request for
// 65,536 records that returns 3 costs 3.
class BatchColumns {
  public:
    std::unique_ptr<std::uint64_t[]> seq;
    std::unique_ptr<std::int64_t[]> timestamp_ns;
    std::unique_ptr<std::uint16_t[]> type_id;
    std::unique_ptr<std::uint16_t[]> flags;
    std::unique_ptr<const std::byte*[]> payload;
    std::unique_ptr<std::uint32_t[]> payload_len;
    std::vector<MappingRef> owners;  // every mapping that a payload points into
    // In a fan-in, the index of the source's name for each record. Otherwise null.
    std::unique_ptr<std::uint16_t[]> source;
    std::shared_ptr<const std::vector<std::string>> source_names;

    std::size_t size() const noexcept { return size_; }

    void push(const RecordView& r) {
        if (size_ == capacity_) grow();
        seq[size_] = r.seq;
        timestamp_ns[size_] = r.timestamp_ns;
        type_id[size_] = r.type_id;
        flags[size_] = r.flags;
        payload[size_] = r.payload;
        payload_len[size_] = r.payload_len;
        ++size_;
    }
    // `source_names` must be set before the first call.
    void push(const RecordView& r, std::uint16_t from) {
        push(r);
        source[size_ - 1] = from;
    }

  private:
    void grow();
    std::size_t size_ = 0;
    std::size_t capacity_ = 0;
};

// The type ids to return, one bit each.
class TypeFilter {
  public:
    void want(std::uint16_t type) noexcept { words_[type >> 6] |= std::uint64_t{1} << (type & 63); }
    bool wants(std::uint16_t type) const noexcept { return (words_[type >> 6] >> (type & 63)) & 1; }

  private:
    std::array<std::uint64_t, 1024> words_{};
};

enum class WaitKind { busy_spin, spin_then_park, sleep };
enum class WaitOutcome { ready, not_yet, interrupted };

// A futex word whose value changes from `heard` when there is something to read.
struct Bell {
    std::uint32_t* word = nullptr;  // null: it cannot be rung, poll instead
    std::uint32_t heard = 0;
};

// What skip_damaged skipped.
struct Skipped {
    std::uint64_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    bool numbers_known = false;  // first_seq..last_seq are lost (none if last < first)
    std::uint64_t first_seq = 0;
    std::uint64_t last_seq = 0;
};

class Cursor {
  public:
    virtual ~Cursor() = default;

    // False at the end; never blocks. Throws where the log is damaged, again on every call.
    virtual bool next(RecordView& out) = 0;
    virtual std::size_t read_batch(BatchColumns& out, std::size_t max_records) = 0;
    // peek() returns the record that next() would return, without consuming it; pass() consumes the
    // record just shown. That record stays in place until the next look.
    virtual bool peek(RecordView& out) = 0;
    virtual void pass(const RecordView& shown) noexcept = 0;
    // Waits for a record for at most `max_ns`, in one slice: the caller handles signals.
    virtual WaitOutcome wait(std::int64_t max_ns) = 0;
    // A descriptor that is readable until next() or read_batch() has reached the end, and again
    // when there is more. Owned by the cursor and closed with it.
    virtual int ready_fd() = 0;
    // Prepares a wait on several cursors. False: there may be a record, read first.
    virtual bool prepare_to_sleep(Bell& bell) = 0;
    // Whether a writer may append. False: the end is final for now.
    virtual bool has_writer() = 0;
    virtual bool seek_seq(std::uint64_t seq) = 0;
    virtual bool seek_time(std::int64_t timestamp_ns) = 0;
    virtual bool seek_start() = 0;
    virtual void seek_end() = 0;
    virtual Skipped skip_damaged() = 0;

    // The rest is for cursors that merge several (FanIn); a single log is source 0.

    // The source of the record returned last. Not virtual: called for each record.
    std::uint16_t source() const noexcept { return source_; }
    // The source of the last error, until skip_damaged() or a seek; negative: none.
    virtual int failed() const noexcept { return -1; }
    // Whether no more records will follow, whatever is appended.
    virtual bool is_over() const noexcept { return false; }
    virtual bool merges() const noexcept { return false; }
    // While following, next() waits for every source that has a writer.
    virtual void follow(bool) noexcept {}

  protected:
    std::uint16_t source_ = 0;
};

// The signature of a user's compiled callback, called without the GIL. False ends the walk.
using RecordCallback = bool (*)(std::uint64_t seq, std::int64_t timestamp_ns, std::uint16_t type_id,
                                std::uint16_t flags, const std::byte* payload, std::uint32_t size,
                                void* data);

struct Walked {
    std::size_t records = 0;
    bool refused = false;  // the callback returned false
    bool at_end = false;   // no more records; if neither is set, `slice_ns` have passed
};

// Calls the callback for each record, for at most `max_records` records and about `slice_ns`.
Walked for_each_record(Cursor& cursor, RecordCallback callback, void* data, std::size_t max_records,
                       std::int64_t slice_ns);

}  // namespace tapewire
