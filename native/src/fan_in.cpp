#include "tapewire/fan_in.hpp"

#include <algorithm>
#include <cassert>
#include <new>
#include <numeric>
#include <utility>

#include "fan_in_poller.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/error.hpp"

namespace tapewire {

namespace {

// In a batch the silent sources are checked again after this many records.
constexpr std::size_t kLookEvery = 256;
// A source without a writer is checked again after this time.
constexpr std::int64_t kNoWriterNs = 100'000'000;
// A source with a writer that still has nothing: a check takes system calls, and a spin is short.
constexpr std::int64_t kWriterNs = 1'000'000;

}  // namespace

FanIn::FanIn(const FanInOptions& options)
    : options_(options), names_(std::make_shared<std::vector<std::string>>()) {}

FanIn::~FanIn() {
    if (poller_ && forked()) [[maybe_unused]]
        auto* left = poller_.release();  // the child's descriptors are closed, their numbers reused
}

void FanIn::check_usable() const {
    if (forked()) {
        throw Error(Errc::forked_handle,
                    "this fan-in was created before fork, in the parent process", {}, -1,
                    "open its readers in the process that uses them");
    }
}

// ---- sources ------------------------------------------------------------------------------------

FanIn::Slot FanIn::add(const std::string& name, Cursor& cursor,
                       std::optional<std::uint64_t> end_seq) {
    check_usable();
    auto free = std::find_if(sources_.begin(), sources_.end(),
                             [](const Source& source) { return source.cursor == nullptr; });
    if (free == sources_.end()) {
        if (sources_.size() == kMostSources) {
            throw Error(Errc::invalid_option, "a fan-in has at most 65535 sources", {}, -1,
                        "merge the readers in several fan-ins, and those in one");
        }
        // The calls that return records allocate nothing.
        heap_.reserve(sources_.size() + 1);
        silent_.reserve(sources_.size() + 1);
        by_name_.reserve(sources_.size() + 1);
        sources_.emplace_back();
        free = sources_.end() - 1;
    }
    const auto slot = static_cast<Slot>(free - sources_.begin());
    auto names = std::make_shared<std::vector<std::string>>(*names_);
    names->resize(sources_.size());
    (*names)[slot] = name;
    Source source;
    source.cursor = &cursor;
    source.merges = cursor.merges();
    source.name = name;
    source.end_seq = end_seq;
    if (poller_) poller_->watch(slot, cursor, true);
    // The source is added: nothing can fail any more.
    names_ = std::move(names);
    *free = std::move(source);
    if (free->merges) ++merging_;
    silent_.push_back(slot);
    retire_consumed_top();
    rank_names();
    if (poller_) poller_->make_readable();
    return slot;
}

void FanIn::remove(Slot slot) noexcept {
    assert(slot < sources_.size() && sources_[slot].cursor != nullptr);
    retire_consumed_top();
    Source& source = sources_[slot];
    // In a forked child its descriptor numbers may belong to other files.
    Poller* const poller = forked() ? nullptr : poller_.get();
    if (poller != nullptr) poller->forget(slot);
    if (failed_ == slot) failed_ = kNone;
    std::erase(silent_, slot);
    std::erase_if(heap_, [slot](const Entry& entry) { return entry.slot == slot; });
    if (source.merges) --merging_;
    source = Source();
    order_heap();                                    // the order of the other ranks is unchanged
    if (poller != nullptr) poller->make_readable();  // it may have held back other sources
}

void FanIn::rank_names() noexcept {
    by_name_.resize(sources_.size());  // capacity was reserved
    std::iota(by_name_.begin(), by_name_.end(), Slot{0});
    std::sort(by_name_.begin(), by_name_.end(),
              [this](Slot a, Slot b) { return sources_[a].name < sources_[b].name; });
    for (std::size_t rank = 0; rank < by_name_.size(); ++rank) {
        sources_[by_name_[rank]].rank = static_cast<std::uint32_t>(rank);
    }
    for (Entry& entry : heap_) entry.rank = sources_[entry.slot].rank;
    order_heap();
}

void FanIn::follow(bool on) noexcept {
    following_ = on;
    if (merging_ == 0) return;
    for (const Source& source : sources_) {
        if (source.merges) source.cursor->follow(on);
    }
}

bool FanIn::is_over() const noexcept {
    return heap_.empty() && silent_.empty() &&
           std::any_of(sources_.begin(), sources_.end(),
                       [](const Source& source) { return source.over; });
}

// ---- the heap -----------------------------------------------------------------------------------

void FanIn::push(const Entry& entry) noexcept {
    assert(heap_.size() < heap_.capacity());
    heap_.push_back(entry);  // capacity was reserved
    std::push_heap(heap_.begin(), heap_.end(),
                   [](const Entry& a, const Entry& b) { return b.before(a); });
}

void FanIn::order_heap() noexcept {
    std::make_heap(heap_.begin(), heap_.end(),
                   [](const Entry& a, const Entry& b) { return b.before(a); });
}

void FanIn::pop_top() noexcept {
    assert(!heap_.empty());
    heap_[0] = heap_.back();
    heap_.pop_back();
    if (!heap_.empty()) sift_down();
}

void FanIn::sift_down() noexcept {
    const std::size_t size = heap_.size();
    const Entry moving = heap_[0];
    std::size_t at = 0;
    for (;;) {
        std::size_t child = 2 * at + 1;
        if (child >= size) break;
        if (child + 1 < size && heap_[child + 1].before(heap_[child])) ++child;
        if (!heap_[child].before(moving)) break;
        heap_[at] = heap_[child];
        at = child;
    }
    heap_[at] = moving;
}

// ---- state of the sources -----------------------------------------------------------------------

// With a limit no record counts as later than now: a record stamped in the future, by a clock that
// was set back since, would delay its source by that difference.
void FanIn::read_clock() noexcept {
    const std::int64_t now = wall_ns();
    const bool put_back = now < wall_ns_;
    wall_ns_ = now;
    if (!put_back) return;
    looked_wall_ns_ = std::min(looked_wall_ns_, now);
    for (Entry& entry : heap_) entry.time = std::min(entry.time, now);
    order_heap();
}

bool FanIn::show(Slot slot) {
    Source& source = sources_[slot];
    try {
        if (!source.cursor->peek(source.shown)) return false;
    } catch (...) {
        failed_ = slot;
        throw;
    }
    source.over = source.end_seq && source.shown.seq >= *source.end_seq;
    if (source.over && poller_) poller_->forget(slot);
    return !source.over;
}

// Pushes a source onto the heap, by its next record.
void FanIn::push(Slot slot) noexcept {
    const std::int64_t time = sources_[slot].shown.timestamp_ns;
    if (limited() && time > wall_ns_) read_clock();
    push(Entry{limited() ? std::min(time, wall_ns_) : time, sources_[slot].rank, slot});
}

void FanIn::refill_top() {
    assert(top_consumed_ && !heap_.empty());
    const auto slot = static_cast<Slot>(heap_[0].slot);
    if (!show(slot)) {
        retire_consumed_top();
        return;
    }
    top_consumed_ = false;
    const std::int64_t time = sources_[slot].shown.timestamp_ns;
    if (limited() && time > wall_ns_) {
        pop_top();
        push(slot);
    } else {
        sources_[slot].ahead_since_ns.reset();
        heap_[0].time = time;
        sift_down();
    }
}

void FanIn::retire_consumed_top() noexcept {
    if (!top_consumed_) return;
    assert(!heap_.empty() && silent_.size() < silent_.capacity());
    top_consumed_ = false;
    Source& source = sources_[heap_[0].slot];
    source.ahead_since_ns.reset();
    if (!source.over) silent_.push_back(static_cast<Slot>(heap_[0].slot));
    pop_top();
}

// True: it is no longer silent, and another source has its place in the list.
bool FanIn::became_ready(std::size_t at) {
    assert(at < silent_.size());
    const Slot slot = silent_[at];
    const bool shows = show(slot);
    if (!shows && !sources_[slot].over) return false;
    silent_[at] = silent_.back();
    silent_.pop_back();
    if (shows) push(slot);
    return true;
}

void FanIn::look_at_silent() {
    for (std::size_t i = 0; i < silent_.size();) {
        if (!became_ready(i)) ++i;
    }
}

bool FanIn::choose(bool look) {
    if (top_consumed_) refill_top();
    if (!silent_.empty() && (look || heap_.empty())) {
        // Not only when the limit is tested: a clock that was ahead for a while would suspend the
        // limit until it reaches that time again.
        if (limited()) read_clock();
        look_at_silent();
    }
    if (heap_.empty()) return false;
    if (silent_.empty()) return true;
    if (limited()) return skew_limit_passed();
    return !following_ || all_shown();
}

bool FanIn::skew_limit_passed() {
    assert(limited() && !heap_.empty() && !silent_.empty());
    if (options_.max_skew_ns == 0) return true;
    if (heap_[0].time <= looked_wall_ns_ - options_.max_skew_ns) return true;
    read_clock();
    const std::int64_t before = wall_ns_;
    look_at_silent();
    looked_wall_ns_ = std::min(before, wall_ns_);
    if (silent_.empty() || heap_[0].time <= looked_wall_ns_ - options_.max_skew_ns) return true;
    const std::int64_t now = mono_ns();
    if (!held_since_ns_) held_since_ns_ = now;
    Source& source = sources_[heap_[0].slot];
    if (source.shown.timestamp_ns > wall_ns_ && !source.ahead_since_ns) {
        source.ahead_since_ns = held_since_ns_;
    }
    return now - held_since() >= options_.max_skew_ns;
}

// For the top of the heap, by the monotonic clock. Consecutive records with timestamps in the
// future all become as old as now when they are shown: they are held back together, once; otherwise
// a long run of them would cost `max_skew` each.
std::int64_t FanIn::held_since() const noexcept {
    assert(!heap_.empty() && held_since_ns_);
    return sources_[heap_[0].slot].ahead_since_ns.value_or(*held_since_ns_);
}

bool FanIn::all_shown() {
    const std::int64_t now = mono_ns();
    for (std::size_t i = 0; i < silent_.size();) {
        Source& source = sources_[silent_[i]];
        if (now >= source.ask_writer_ns) {
            source.has_writer = source.cursor->has_writer();
            source.ask_writer_ns = now + (source.has_writer ? kWriterNs : kNoWriterNs);
            // The writer may have appended after our last check and before it closed.
            if (!source.has_writer && became_ready(i)) continue;
        }
        if (source.has_writer) return false;
        ++i;
    }
    return true;
}

// Consumes the top of the heap, whose source shows its next record only on the next request: until
// then the returned record stays in place.
void FanIn::give() noexcept {
    assert(!heap_.empty() && !top_consumed_);
    source_ = static_cast<Slot>(heap_[0].slot);
    Source& source = sources_[source_];
    source.cursor->pass(source.shown);
    top_consumed_ = true;
    held_since_ns_.reset();
    last_seq_ = source.shown.seq;
    ++source.counts.records;
    const std::int64_t time = source.shown.timestamp_ns;
    if (latest_ && time < *latest_) {
        ++source.counts.late;
    } else {
        latest_ = time;
    }
    if (poller_) poller_->make_readable();
}

bool FanIn::peek(RecordView& out) {
    check_usable();
    if (gap_) std::rethrow_exception(std::exchange(gap_, nullptr));
    if (!choose(true)) return nothing_now();
    out = sources_[heap_[0].slot].shown;
    return true;
}

void FanIn::pass(const RecordView&) noexcept { give(); }

bool FanIn::next(RecordView& out) {
    if (!FanIn::peek(out)) return false;
    give();
    return true;
}

std::size_t FanIn::read_batch(BatchColumns& out, std::size_t max_records) {
    check_usable();
    if (gap_) std::rethrow_exception(std::exchange(gap_, nullptr));
    out.source_names = names_;
    for (Source& source : sources_) source.in_batch = nullptr;
    std::size_t n = 0;
    try {
        for (; n < max_records && choose(n % kLookEvery == 0); ++n) {
            const auto slot = static_cast<Slot>(heap_[0].slot);
            Source& source = sources_[slot];
            if (source.in_batch != source.shown.owner->get()) take_mapping(out, source);
            out.push(source.shown, slot);
            give();
        }
    } catch (const Error& e) {
        // The records read before the fault are returned first; the next call meets it again. A gap
        // is reported once, so it must not be swallowed here.
        if (n == 0) throw;
        if (e.code == Errc::gap_detected) gap_ = std::current_exception();
    } catch (const std::bad_alloc&) {
        if (n == 0) throw;
    }
    if (n == 0 && max_records != 0) nothing_now();
    return n;
}

// A log reaches each of its mappings once; a fan-in alternates between those of its sources.
void FanIn::take_mapping(BatchColumns& out, Source& source) const {
    const MappingRef& mapping = *source.shown.owner;
    if (!source.merges ||
        std::find(out.owners.begin(), out.owners.end(), mapping) == out.owners.end()) {
        out.owners.push_back(mapping);
    }
    source.in_batch = mapping.get();
}

// ---- moving -------------------------------------------------------------------------------------

void FanIn::mark_all_idle() noexcept {
    heap_.clear();
    silent_.clear();
    for (std::size_t slot = 0; slot < sources_.size(); ++slot) {
        if (sources_[slot].cursor == nullptr) continue;
        silent_.push_back(static_cast<Slot>(slot));
        sources_[slot].ahead_since_ns.reset();
        sources_[slot].over = false;
    }
    top_consumed_ = false;
    failed_ = kNone;
    gap_ = nullptr;
    last_seq_.reset();
    latest_.reset();
    held_since_ns_.reset();
    if (poller_) poller_->make_readable();
}

template <class Seek>
bool FanIn::seek_all(Seek seek) {
    check_usable();
    mark_all_idle();
    bool found = false;
    for (Source& source : sources_) {
        if (source.cursor != nullptr && seek(*source.cursor)) found = true;
    }
    return found;
}

bool FanIn::seek_seq(std::uint64_t seq) {
    throw Error(Errc::invalid_option,
                "a fan-in has no sequence numbers of its own: seq=" + std::to_string(seq), {}, -1,
                "use seek_time(), or seek_seq() of a reader before it is added");
}

bool FanIn::seek_time(std::int64_t timestamp_ns) {
    return seek_all([timestamp_ns](Cursor& cursor) { return cursor.seek_time(timestamp_ns); });
}

bool FanIn::seek_start() {
    return seek_all([](Cursor& cursor) { return cursor.seek_start(); });
}

void FanIn::seek_end() {
    seek_all([](Cursor& cursor) {
        cursor.seek_end();
        return false;
    });
}

Skipped FanIn::skip_damaged() {
    check_usable();
    if (failed_ == kNone) return {};
    const Skipped skipped = sources_[static_cast<std::size_t>(failed_)].cursor->skip_damaged();
    failed_ = kNone;
    if (poller_) poller_->make_readable();
    return skipped;
}

bool FanIn::has_writer() {
    check_usable();
    return std::any_of(sources_.begin(), sources_.end(), [](const Source& source) {
        return source.cursor != nullptr && source.cursor->has_writer();
    });
}

}  // namespace tapewire
