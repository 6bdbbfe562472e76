// Whether a book can be trusted, and the errors and gaps if it cannot.
#include <string>

#include "tapewire/book/book.hpp"
#include "tapewire/error.hpp"

namespace tapewire::book {

const char* name_of(Distrust cause) noexcept {
    switch (cause) {
        case Distrust::none:
            return "none";
        case Distrust::no_snapshot:
            return "no_snapshot";
        case Distrust::venue_gap:
            return "venue_gap";
        case Distrust::record_gap:
            return "record_gap";
        case Distrust::reset:
            return "reset";
        case Distrust::negative_size:
            return "negative_size";
        case Distrust::unknown_order:
            return "unknown_order";
        case Distrust::duplicate_order:
            return "duplicate_order";
        case Distrust::does_not_fit:
            return "does_not_fit";
        case Distrust::overlap:
            return "overlap";
        case Distrust::interrupted:
            return "interrupted";
        case Distrust::no_side:
            return "no_side";
        case Distrust::crossed:
            return "crossed";
        case Distrust::rejected:
            return "rejected";
        case Distrust::feed_gap:
            return "feed_gap";
        case Distrust::feed_order:
            return "feed_order";
        case Distrust::damaged_source:
            return "damaged_source";
        case Distrust::venue_loss:
            return "venue_loss";
        case Distrust::partial_source:
            return "partial_source";
    }
    return "?";
}

namespace {

std::string sentence(const Gap& gap) {
    const std::string range = std::to_string(gap.first) + " to " + std::to_string(gap.last);
    const std::string at = gap.seq == 0 ? "" : " at record " + std::to_string(gap.seq);
    switch (gap.cause) {
        case Distrust::none:
            break;
        case Distrust::no_snapshot:
            return "no snapshot has been received yet";
        case Distrust::venue_gap:
            return (gap.first == gap.last ? "update id " + std::to_string(gap.first) + " is missing"
                                          : "update ids " + range + " are missing") +
                   at;
        case Distrust::record_gap:
            return "records " + range + " of the log are missing";
        case Distrust::reset:
            return "the venue has reset the book, and no snapshot has been received since";
        case Distrust::negative_size:
            return "a size became negative" + at;
        case Distrust::unknown_order:
            return "an event referred to an unknown order" + at;
        case Distrust::duplicate_order:
            return "a known order was added again" + at;
        case Distrust::does_not_fit:
            return "a price or a size does not fit exactly into 64 bits at the book's scale" + at;
        case Distrust::overlap:
            return "deltas overlap updates that were already applied" + at;
        case Distrust::interrupted:
            return "out of memory while applying an event";
        case Distrust::no_side:
            return "an order without a side was added" + at;
        case Distrust::crossed:
            return "the book is crossed outside an auction" + at;
        case Distrust::rejected:
            return "a row of the source was rejected" + at;
        case Distrust::feed_gap:
            return (gap.first == 0 && gap.last == 0
                        ? std::string("sequence numbers of the feed")
                        : "sequence numbers " + range + " of the feed") +
                   " are missing" + at;
        case Distrust::feed_order:
            return "sequence numbers or times of the feed go back" + at;
        case Distrust::damaged_source:
            return "part of the source is damaged" + at;
        case Distrust::venue_loss:
            return "the venue reports lost messages" + at;
        case Distrust::partial_source:
            return "the source has only events of orders at the best levels";
    }
    return {};
}

Distrust distrust_of(format::LossCause cause) noexcept {
    switch (cause) {
        case format::LossCause::rejected:
            return Distrust::rejected;
        case format::LossCause::missing:
            return Distrust::feed_gap;
        case format::LossCause::out_of_order:
            return Distrust::feed_order;
        case format::LossCause::damaged:
            return Distrust::damaged_source;
        case format::LossCause::no_snapshot:
            return Distrust::no_snapshot;
        case format::LossCause::unknown_order:
            return Distrust::unknown_order;
        case format::LossCause::partial:
            return Distrust::partial_source;
        case format::LossCause::venue:
            break;
    }
    return Distrust::venue_loss;
}

}  // namespace

Applied Book::apply_loss(const format::Loss& loss) {
    const Distrust cause = distrust_of(format::LossCause{loss.cause});
    // Whoever ignores unknown orders accepts a book without those from before its log.
    const bool of_orders = cause == Distrust::no_snapshot || cause == Distrust::unknown_order;
    if (of_orders && options_.mode == format::BookMode::l3 && options_.unknown == Unknown::ignore)
        return Applied::unchanged;
    return distrust(cause, loss.first, loss.last);
}

Applied Book::distrust(Distrust cause, std::uint64_t first, std::uint64_t last) {
    gaps_.push_back({cause, first, last, last_seq_, last_timestamp_ns_, false});
    // A partial source explains why there is no snapshot.
    if (trusted() || cause == Distrust::partial_source) distrust_ = cause;
    // A book that is not known, or not yet, is no fault.
    const bool fault = cause != Distrust::no_snapshot && cause != Distrust::partial_source;
    // With Unknown::distrust the caller has asked for no exception.
    to_raise_ = to_raise_ ||
                (fault && cause != Distrust::unknown_order && cause != Distrust::duplicate_order);
    if (fault && options_.on_gap == GapPolicy::quarantine) {
        quarantined_ = true;
        waiting_.clear();
    }
    return Applied::ignored;
}

void Book::trust() noexcept {
    distrust_ = Distrust::none;
    for (auto gap = gaps_.rbegin(); gap != gaps_.rend() && !gap->resynced; ++gap)
        gap->resynced = true;
}

void Book::trust_by_ids(std::uint64_t prev) {
    if (prev == last_update_) return trust();  // what was lost was no diff
    distrust_ = Distrust::venue_gap;
    distrust(Distrust::venue_gap, last_update_ + 1, prev);
}

void Book::throw_if_raised() {
    to_raise_ = false;
    if (options_.on_gap != GapPolicy::raise) return;
    const Gap& gap = gaps_.back();
    const bool missing = gap.cause == Distrust::venue_gap || gap.cause == Distrust::record_gap ||
                         gap.cause == Distrust::feed_gap;
    throw Error(missing ? Errc::gap_detected : Errc::corrupt_record,
                "the book is untrusted: " + sentence(gap), {}, -1,
                options_.mode == format::BookMode::l2
                    ? "a snapshot resyncs it; on_gap=\"resync\" waits for one without raising"
                    : "a reset resyncs it; on_gap=\"resync\" waits for one without raising")
        .with(gap.first, gap.last);
}

void Book::record_gap(std::uint64_t first, std::uint64_t last, std::uint64_t seq,
                      std::int64_t timestamp_ns) {
    if (seq != 0) {
        last_seq_ = seq;
        last_timestamp_ns_ = timestamp_ns;
    }
    distrust(Distrust::record_gap, first, last);
    throw_if_raised();
}

std::string Book::distrust_reason() const {
    if (trusted()) return {};
    for (auto gap = gaps_.rbegin(); gap != gaps_.rend() && !gap->resynced; ++gap)
        if (gap->cause == distrust_) return sentence(*gap);
    return sentence({.cause = distrust_});
}

}  // namespace tapewire::book
