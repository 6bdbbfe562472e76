// control.meta: the shared words by which the processes of a queue find and wake each other. Four
// lines of 128 bytes (two cache lines each, since the adjacent-line prefetch loads pairs), so that
// the words stored on every append are not on the line that readers poll or sleep on.
//
//    0    magic u32 | version u32 | init_state u32 | check u32 | writer_epoch u64
//    24   segment_size u64
//    32   first_seq u64 | key u64 | sync_errno u32 | 0 | pid_namespace u64 | boot_id 16 bytes
//    128  segment_gen u32 (seqlock) | current_segment u32
//    256  write_offset u64 | writer_heartbeat_ns u64 | write_check u64
//    384  notify_seq u32 (futex) | waiters_pending u32
//
// current_segment and write_offset are hints; they never decide whether a record exists. In version
// 4, write_check validates them: it is write_offset xor a number derived from the key and
// current_segment. Version 3 (chronicle-rs, and Tapewire before version 4) has no check and no key.
#pragma once

#include <cstddef>
#include <cstdint>

namespace tapewire::format {

struct alignas(128) ControlBlock {
    std::uint32_t magic;
    std::uint32_t version;     // kControlVersion, or kControlVersionUnkeyed
    std::uint32_t init_state;  // kControlReady once every field is valid
    // CRC-32C of bytes 0..7, then of bytes 24..47, which never change. Version 4.
    std::uint32_t check;
    std::uint64_t writer_epoch;  // incremented each time a writer opens the queue
    std::uint64_t segment_size;
    std::uint64_t first_seq;   // sequence number of the first record that the queue ever had
    std::uint64_t key;         // random, not 0: seeds the check of every record header. Version 4
    std::uint32_t sync_errno;  // errno of a failed sync of a writer, if none has succeeded since
    std::uint8_t reserved0[4];
    std::uint64_t pid_namespace;  // inode of the writer's pid namespace; 0 = unknown
    std::uint8_t boot_id[16];     // boot id of the host when the last writer opened the queue
    std::uint8_t reserved1[48];

    std::uint32_t
        segment_gen;  // seqlock over (current_segment, write_offset); odd while they change
    std::uint32_t current_segment;
    std::uint8_t reserved2[120];

    std::uint64_t write_offset;
    std::uint64_t writer_heartbeat_ns;
    std::uint64_t write_check;
    std::uint8_t reserved3[104];

    std::uint32_t notify_seq;       // the futex word
    std::uint32_t waiters_pending;  // sticky flag: a reader may be asleep
    std::uint8_t reserved4[120];
};

inline constexpr std::uint32_t kControlMagic = 0x4348524E;  // "CHRN"
inline constexpr std::uint32_t kControlVersion = 4;
inline constexpr std::uint32_t kControlVersionUnkeyed = 3;
inline constexpr std::uint32_t kControlInitialising = 1;
inline constexpr std::uint32_t kControlReady = 2;
inline constexpr std::size_t kControlBytes = 512;
inline constexpr std::size_t kControlCheckedBytes = 8;        // from offset 0
inline constexpr std::size_t kControlCheckedFixedBytes = 24;  // from `segment_size`

static_assert(sizeof(ControlBlock) == kControlBytes);
static_assert(offsetof(ControlBlock, magic) == 0);
static_assert(offsetof(ControlBlock, version) == 4);
static_assert(offsetof(ControlBlock, init_state) == 8);
static_assert(offsetof(ControlBlock, check) == 12);
static_assert(offsetof(ControlBlock, writer_epoch) == 16);
static_assert(offsetof(ControlBlock, segment_size) == 24);
static_assert(offsetof(ControlBlock, first_seq) == 32);
static_assert(offsetof(ControlBlock, key) == 40);
static_assert(offsetof(ControlBlock, sync_errno) == 48);
static_assert(offsetof(ControlBlock, pid_namespace) == 56);
static_assert(offsetof(ControlBlock, boot_id) == 64);
static_assert(offsetof(ControlBlock, segment_gen) == 128);
static_assert(offsetof(ControlBlock, current_segment) == 132);
static_assert(offsetof(ControlBlock, write_offset) == 256);
static_assert(offsetof(ControlBlock, writer_heartbeat_ns) == 264);
static_assert(offsetof(ControlBlock, write_check) == 272);
static_assert(offsetof(ControlBlock, notify_seq) == 384);
static_assert(offsetof(ControlBlock, waiters_pending) == 388);

}  // namespace tapewire::format
