// stats.meta: the writer's counters, stored every 100 ms by its heartbeat thread for monitoring
// from outside. 4096 bytes: a 16-byte header, then u64 counters in the order of kStatNames.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tapewire::format {

struct StatsHeader {
    std::uint32_t magic;
    std::uint32_t version;
    std::uint32_t count;  // how many counters follow
    std::uint32_t reserved;
};

inline constexpr std::uint32_t kStatsMagic = 0x54535754;  // "TWST"
inline constexpr std::uint32_t kStatsVersion = 1;
inline constexpr std::size_t kStatsBytes = 4096;
inline constexpr std::size_t kStatBytes = 8;  // of one counter
inline constexpr std::size_t kStatsMost = (kStatsBytes - sizeof(StatsHeader)) / kStatBytes;

// The documented order; new counters are added at the end only.
enum class Stat : std::uint32_t {
    records,
    bytes_written,
    next_seq,
    rolls,
    prealloc_ready,
    prealloc_waits,
    prealloc_misses,
    prealloc_errors,
    seals,
    seal_errors,
    flushes,
    flush_errors,
    index_errors,
    retention_errors,
    segments_retired,
    readers_ignored,
    wakes,
    queue_full,
    disk_full,
    recovered_pads,
    damaged_spans,
    gaps_found,
    segments,
    count_,
};

inline constexpr std::size_t kStatCount = static_cast<std::size_t>(Stat::count_);

inline constexpr std::array<std::string_view, kStatCount> kStatNames = {
    "records",        "bytes_written",    "next_seq",         "rolls",
    "prealloc_ready", "prealloc_waits",   "prealloc_misses",  "prealloc_errors",
    "seals",          "seal_errors",      "flushes",          "flush_errors",
    "index_errors",   "retention_errors", "segments_retired", "readers_ignored",
    "wakes",          "queue_full",       "disk_full",        "recovered_pads",
    "damaged_spans",  "gaps_found",       "segments",
};

static_assert(sizeof(StatsHeader) == 16);
static_assert(offsetof(StatsHeader, magic) == 0);
static_assert(offsetof(StatsHeader, version) == 4);
static_assert(offsetof(StatsHeader, count) == 8);
static_assert(offsetof(StatsHeader, reserved) == 12);
static_assert(kStatCount <= kStatsMost);

}  // namespace tapewire::format
