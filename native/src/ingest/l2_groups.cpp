#include "tapewire/ingest/l2_groups.hpp"

#include <cstring>

namespace tapewire::ingest {

using format::Level;

L2Grouper::L2Grouper(std::uint16_t venue_id, std::uint32_t market_id, std::uint8_t price_scale,
                     std::uint8_t size_scale) {
    head_.venue_id = venue_id;
    head_.market_id = market_id;
    head_.price_scale = price_scale;
    head_.size_scale = size_scale;
}

bool L2Grouper::continues(const LevelRow& row) const noexcept {
    return collecting_ && row.ingest_ns == open_.ingest_ns &&
           row.exchange_ns == open_.exchange_ns && row.snapshot == open_.snapshot &&
           (row.snapshot < kWhole || row.line == open_.line);
}

void L2Grouper::add(const LevelRow* rows, std::size_t n) {
    for (const LevelRow* row = rows; row != rows + n; ++row) {
        if (!continues(*row)) {
            finish();
            starts_snapshot_ = row->snapshot == kWhole ||
                               (row->snapshot == kSnapshot && open_.snapshot != kSnapshot);
            open_ = *row;
            collecting_ = true;
        }
        if (row->side >= 0) {
            std::vector<Level>& side = row->side == 0 ? bids_ : asks_;
            if (side.size() == kMaxLevels) {
                emit();
                open_.line = row->line;
            }
            side.push_back({row->price, row->size});
        }
        last_line_ = row->line;
    }
}

void L2Grouper::finish() {
    if (collecting_) emit();
    collecting_ = false;
}

void L2Grouper::emit() {
    head_.timestamp_ns = static_cast<std::uint64_t>(open_.ingest_ns);
    head_.exchange_ts_ns = static_cast<std::uint64_t>(open_.exchange_ns);
    head_.native_seq = static_cast<std::uint64_t>(open_.native_seq);
    const std::size_t bids_bytes = bids_.size() * sizeof(Level);
    const std::size_t asks_bytes = asks_.size() * sizeof(Level);
    const std::size_t start = payloads_.size();
    const std::size_t head_bytes =
        starts_snapshot_ ? market::kSnapshotHeadBytes : market::kDiffHeadBytes;
    payloads_.resize(start + head_bytes + bids_bytes + asks_bytes);
    std::byte* into = payloads_.data() + start;
    into =
        starts_snapshot_
            ? market::begin_snapshot(into, head_, static_cast<std::uint32_t>(bids_.size()),
                                     static_cast<std::uint32_t>(asks_.size()))
            : market::begin_diff(into, head_, {}, false, static_cast<std::uint16_t>(bids_.size()),
                                 static_cast<std::uint16_t>(asks_.size()));
    if (bids_bytes != 0) std::memcpy(into, bids_.data(), bids_bytes);
    if (asks_bytes != 0) std::memcpy(into + bids_bytes, asks_.data(), asks_bytes);
    ends_.push_back(payloads_.size());
    timestamps_ns_.push_back(open_.ingest_ns);
    lines_.push_back(open_.line);
    last_lines_.push_back(last_line_);
    bids_.clear();
    asks_.clear();
    starts_snapshot_ = false;
}

void L2Grouper::take() noexcept {
    payloads_.clear();
    ends_.clear();
    timestamps_ns_.clear();
    lines_.clear();
    last_lines_.clear();
}

}  // namespace tapewire::ingest
