// Writes book events: the caller provides space for the entire event and fills in the levels
// itself, so nothing is copied a second time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "tapewire/format/market.hpp"

namespace tapewire::market {

// The header fields common to all events.
struct EventHead {
    std::uint64_t timestamp_ns = 0;  // also of the record
    std::uint64_t exchange_ts_ns = 0;
    std::uint64_t native_seq = 0;
    std::uint32_t market_id = 0;
    std::uint32_t stream_id = 0;
    std::uint16_t venue_id = 0;
    std::uint8_t price_scale = 0;
    std::uint8_t size_scale = 0;
};

struct UpdateIds {
    std::uint64_t first = 0;
    std::uint64_t last = 0;
    std::uint64_t prev = 0;
};

inline constexpr std::size_t kDiffHeadBytes =
    sizeof(format::BookEventHeader) + sizeof(format::L2Diff);
inline constexpr std::size_t kSnapshotHeadBytes =
    sizeof(format::BookEventHeader) + sizeof(format::L2Snapshot);
inline constexpr std::size_t kOrderBytes =
    sizeof(format::BookEventHeader) + sizeof(format::L3Event);
inline constexpr std::size_t kLossBytes = sizeof(format::BookEventHeader) + sizeof(format::Loss);

inline format::BookEventHeader make_header(const EventHead& head, format::EventType type,
                                           format::BookMode mode, std::uint16_t flags,
                                           std::size_t record_len) noexcept {
    format::BookEventHeader made{};
    made.schema_version =
        type == format::EventType::loss ? format::kMarketVersionLoss : format::kMarketVersion;
    made.record_len = static_cast<std::uint32_t>(record_len);
    made.endianness = format::kLittleEndian;
    made.venue_id = head.venue_id;
    made.market_id = head.market_id;
    made.stream_id = head.stream_id;
    made.ingest_ts_ns = head.timestamp_ns;
    made.exchange_ts_ns = head.exchange_ts_ns;
    made.native_seq = head.native_seq;
    made.event_type = static_cast<std::uint8_t>(type);
    made.book_mode = static_cast<std::uint8_t>(mode);
    made.flags = flags;
    return made;
}

namespace detail {

template <typename Body>
std::byte* put(std::byte* into, const format::BookEventHeader& header, const Body& body) noexcept {
    std::memcpy(into, &header, sizeof header);
    std::memcpy(into + sizeof header, &body, sizeof body);
    return into + sizeof header + sizeof body;
}

}  // namespace detail

// Fills the first kDiffHeadBytes; returns where the bids go, followed by the asks.
inline std::byte* begin_diff(std::byte* into, const EventHead& head, const UpdateIds& ids,
                             bool delta, std::uint16_t bid_count,
                             std::uint16_t ask_count) noexcept {
    const auto flags = static_cast<std::uint16_t>(
        format::kEventHasScale | (delta ? format::kEventDelta : format::kEventAbsolute));
    const std::size_t levels = std::size_t{bid_count} + ask_count;
    format::L2Diff diff{};
    diff.update_id_first = ids.first;
    diff.update_id_last = ids.last;
    diff.update_id_prev = ids.prev;
    diff.price_scale = head.price_scale;
    diff.size_scale = head.size_scale;
    diff.bid_count = bid_count;
    diff.ask_count = ask_count;
    return detail::put(into,
                       make_header(head, format::EventType::diff, format::BookMode::l2, flags,
                                   kDiffHeadBytes + levels * sizeof(format::Level)),
                       diff);
}

// Fills the first kSnapshotHeadBytes; returns where the bids go, followed by the asks.
inline std::byte* begin_snapshot(std::byte* into, const EventHead& head, std::uint32_t bid_count,
                                 std::uint32_t ask_count) noexcept {
    constexpr std::uint16_t kFlags = format::kEventHasScale | format::kEventAbsolute;
    const std::size_t levels = std::size_t{bid_count} + ask_count;
    format::L2Snapshot snapshot{};
    snapshot.price_scale = head.price_scale;
    snapshot.size_scale = head.size_scale;
    snapshot.bid_count = bid_count;
    snapshot.ask_count = ask_count;
    return detail::put(into,
                       make_header(head, format::EventType::snapshot, format::BookMode::l2, kFlags,
                                   kSnapshotHeadBytes + levels * sizeof(format::Level)),
                       snapshot);
}

// Fills kOrderBytes. Takes the scales from the head; sets event_type of the header as well for a
// reset or heartbeat.
inline void encode_order(std::byte* into, const EventHead& head, format::L3Event order) noexcept {
    order.price_scale = head.price_scale;
    order.size_scale = head.size_scale;
    const format::L3Type kind{order.event_type};
    const auto type = kind == format::L3Type::reset       ? format::EventType::reset
                      : kind == format::L3Type::heartbeat ? format::EventType::heartbeat
                                                          : format::EventType::diff;
    constexpr std::uint16_t kFlags = format::kEventHasScale | format::kEventAbsolute;
    detail::put(into, make_header(head, type, format::BookMode::l3, kFlags, kOrderBytes), order);
}

// Fills kLossBytes.
inline void encode_loss(std::byte* into, const EventHead& head, format::BookMode mode,
                        const format::Loss& loss) noexcept {
    detail::put(into, make_header(head, format::EventType::loss, mode, 0, kLossBytes), loss);
}

}  // namespace tapewire::market
