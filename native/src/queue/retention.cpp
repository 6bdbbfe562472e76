#include "tapewire/queue/retention.hpp"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cassert>

#include "tapewire/clock.hpp"
#include "tapewire/file.hpp"

namespace tapewire::queue {

namespace {

// Passes are at most a second apart, plus the delays of a slow disk.
constexpr std::int64_t kLongestPauseNs = 2'000'000'000;
constexpr std::int64_t kLongestPassNs = 100'000'000;

std::uint64_t lag_bytes(Position head, Position at, std::uint64_t segment_bytes) {
    if (at.segment > head.segment) return 0;
    const std::uint64_t ahead = (head.segment - at.segment) * segment_bytes + head.offset;
    return ahead > at.offset ? ahead - at.offset : 0;
}

}  // namespace

RetentionResult RetentionWatch::pass(const Layout& layout, std::uint64_t segment_bytes,
                                     Position head, std::uint64_t keep_from,
                                     std::int64_t now_mono_ns,
                                     const std::function<void()>& sync_queue_directory) {
    RetentionResult result;
    if (!is_directory(layout.readers())) return result;
    // SYNC registration: a reader that is choosing its position is not in the list yet. Try the
    // next pass.
    const DirectoryLock quiet(layout.readers(), LOCK_EX, 0);
    if (quiet) {
        kept_out_since_ns_ = 0;
    } else {
        // A process that was stopped in the middle of registering counts no longer than a stale
        // reader.
        if (kept_out_since_ns_ == 0) kept_out_since_ns_ = now_mono_ns;
        const std::int64_t patience = std::max(rules_.reader_ttl_ns, kLongestPauseNs);
        if (now_mono_ns - kept_out_since_ns_ <= patience) return result;
        result.ignored.push_back(
            "a reader has been registering for too long: retention no longer waits for it");
    }
    const std::vector<std::string> names = layout.reader_names();
    if (names.empty()) return result;  // no reader ever existed: nothing is known to be unneeded

    // This process was stopped (a paused machine, a frozen group): no heartbeat could be observed.
    const bool frozen = last_pass_ns_ != 0 &&
                        now_mono_ns - last_pass_ns_ > rules_.reader_ttl_ns / 2 + kLongestPauseNs;
    if (frozen) seen_.clear();
    last_pass_ns_ = now_mono_ns;

    std::uint64_t floor = std::min(keep_from, head.segment);
    std::vector<std::string> counted;
    std::map<std::string, Seen> seen;
    for (const std::string& name : names) {
        const auto state = read_reader_state(layout.reader_meta(name));
        if (!state) continue;  // just removed
        auto it = seen_.find(name);
        if (it == seen_.end() || it->second.heartbeat_ns != state->heartbeat_ns) {
            seen[name] = {state->heartbeat_ns, now_mono_ns};
        } else {
            seen[name] = it->second;
        }
        const std::int64_t age = now_mono_ns - seen[name].since_mono_ns;
        const std::uint64_t lag = lag_bytes(head, state->position, segment_bytes);
        if (!state->pinned && age > rules_.reader_ttl_ns) {
            result.ignored.push_back("reader '" + name +
                                     "' no longer holds segments back: no heartbeat for " +
                                     std::to_string(age / 1'000'000) + " ms");
            continue;
        }
        if (!state->pinned && lag > rules_.max_reader_lag_bytes) {
            result.ignored.push_back("reader '" + name + "' no longer holds segments back: " +
                                     std::to_string(lag) + " bytes behind");
            continue;
        }
        floor = std::min(floor, state->position.segment);  // of a damaged file: 0, which keeps all
        counted.push_back(layout.reader_meta(name));
    }
    seen_ = std::move(seen);

    remove_below(layout, floor, counted, now_mono_ns, sync_queue_directory, result);
    return result;
}

void RetentionWatch::remove_below(const Layout& layout, std::uint64_t floor,
                                  const std::vector<std::string>& counted, std::int64_t now_mono_ns,
                                  const std::function<void()>& sync_queue_directory,
                                  RetentionResult& result) {
    const std::vector<std::uint32_t> ids = layout.segments();
    if (ids.empty() || ids.front() >= floor) return;
    assert(std::is_sorted(ids.begin(), ids.end()));
    // After a loss of power a reader must find what it needs: the positions that allow the deletion
    // must be on disk before the segments are deleted.
    for (const std::string& path : counted) {
        if (const auto meta = File::open_existing(path, O_RDONLY)) meta->sync_data();
    }
    sync_directory(layout.readers());
    for (std::uint32_t id : ids) {
        if (id >= floor) break;
        // Readers that register wait for this lock: leave the rest to the next pass, with a new
        // list of readers.
        if (result.retired != 0 && mono_ns() - now_mono_ns > kLongestPassNs) break;
        sync_queue_directory();  // one at a time: otherwise a gap may remain on disk
        // The segment first: the index thread checks for it after each write, and then deletes the
        // index.
        if (remove_file(layout.segment(id))) ++result.retired;
        retired_below_ = id + 1;
        remove_file(layout.index(id));
    }
}

}  // namespace tapewire::queue
