#include "tapewire/ingest/l2_groups.hpp"

namespace tapewire::ingest {

using format::BookEventHeader;
using format::Level;

L2Grouper::L2Grouper(std::uint16_t venue_id, std::uint32_t market_id, std::uint8_t price_scale,
                     std::uint8_t size_scale)
    : price_scale_(price_scale), size_scale_(size_scale) {
    header_.schema_version = format::kMarketVersion;
    header_.endianness = format::kLittleEndian;
    header_.venue_id = venue_id;
    header_.market_id = market_id;
    header_.book_mode = static_cast<std::uint8_t>(format::BookMode::l2);
    header_.flags = format::kEventAbsolute | format::kEventHasScale;
}

bool L2Grouper::continues(const LevelRow& row) const noexcept {
    return collecting_ && row.ingest_ns == open_.ingest_ns &&
           row.exchange_ns == open_.exchange_ns && row.snapshot == open_.snapshot &&
           (row.snapshot != kWhole || row.line == open_.line);
}

void L2Grouper::add(const LevelRow* rows, std::size_t n) {
    for (const LevelRow* row = rows; row != rows + n; ++row) {
        if (!continues(*row)) {
            finish();
            starts_snapshot_ =
                row->snapshot == kWhole || (row->snapshot == kSnapshot && open_.snapshot != kSnapshot);
            open_ = *row;
            collecting_ = true;
        }
        if (row->side < 0) continue;
        std::vector<Level>& side = row->side == 0 ? bids_ : asks_;
        if (side.size() == kMaxLevels) {
            emit();
            open_.line = row->line;
        }
        side.push_back({row->price, row->size});
    }
}

void L2Grouper::finish() {
    if (collecting_) emit();
    collecting_ = false;
}

void L2Grouper::put(const void* bytes, std::size_t n) {
    const auto* from = static_cast<const std::byte*>(bytes);
    payloads_.insert(payloads_.end(), from, from + n);
}

void L2Grouper::emit() {
    const std::size_t levels_bytes = (bids_.size() + asks_.size()) * sizeof(Level);
    const std::size_t body =
        starts_snapshot_ ? sizeof(format::L2Snapshot) : sizeof(format::L2Diff);
    header_.record_len = static_cast<std::uint32_t>(sizeof header_ + body + levels_bytes);
    header_.ingest_ts_ns = static_cast<std::uint64_t>(open_.ingest_ns);
    header_.exchange_ts_ns = static_cast<std::uint64_t>(open_.exchange_ns);
    header_.native_seq = static_cast<std::uint64_t>(open_.native_seq);
    header_.event_type = static_cast<std::uint8_t>(starts_snapshot_ ? format::EventType::snapshot
                                                                    : format::EventType::diff);
    put(&header_, sizeof header_);
    if (starts_snapshot_) {
        format::L2Snapshot snapshot{};
        snapshot.price_scale = price_scale_;
        snapshot.size_scale = size_scale_;
        snapshot.bid_count = static_cast<std::uint32_t>(bids_.size());
        snapshot.ask_count = static_cast<std::uint32_t>(asks_.size());
        put(&snapshot, sizeof snapshot);
    } else {
        format::L2Diff diff{};
        diff.price_scale = price_scale_;
        diff.size_scale = size_scale_;
        diff.flags = format::kEventAbsolute;
        diff.bid_count = static_cast<std::uint16_t>(bids_.size());
        diff.ask_count = static_cast<std::uint16_t>(asks_.size());
        put(&diff, sizeof diff);
    }
    put(bids_.data(), bids_.size() * sizeof(Level));
    put(asks_.data(), asks_.size() * sizeof(Level));
    ends_.push_back(payloads_.size());
    timestamps_ns_.push_back(open_.ingest_ns);
    lines_.push_back(open_.line);
    bids_.clear();
    asks_.clear();
    starts_snapshot_ = false;
}

void L2Grouper::take() noexcept {
    payloads_.clear();
    ends_.clear();
    timestamps_ns_.clear();
    lines_.clear();
}

}  // namespace tapewire::ingest
