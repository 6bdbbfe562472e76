// A small queue as one sequence of bytes, the input of the targets that read complete queues: a
// head, then up to four raw segment files, one after the other. Whatever is missing at the end is
// zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "fuzz_kit.hpp"
#include "tapewire/format/tail_checkpoint.hpp"

namespace fuzz {

// index.meta without next_seq.
struct Checkpoint {
    std::uint64_t segment_id;
    std::uint64_t offset;
    std::uint32_t crc;
    std::uint32_t reserved;
};
static_assert(sizeof(Checkpoint) == tapewire::format::kTailCheckpointShortBytes);

struct ImageHead {
    std::uint8_t units;             // segment_bytes = 64 * (2 + units % 62)
    std::uint8_t segments;          // the number of segments minus 1, modulo 4
    std::uint8_t missing;           // bit i: segment i has no file; kKeyed
    std::uint8_t checkpoint_bytes;  // length of index.meta, modulo 25; 0 = no file
    std::uint32_t current_segment;  // control.meta's hints
    std::uint64_t write_offset;
    std::uint64_t first_seq;
    Checkpoint checkpoint;
    std::uint64_t seek_seq;  // sought in addition
    std::uint64_t seek_ns;
};
static_assert(sizeof(ImageHead) == 64);

class QueueImage {
  public:
    explicit QueueImage(std::span<const std::uint8_t> input);

    ImageHead head;
    std::vector<std::vector<std::byte>> segments;

    static constexpr std::uint8_t kKeyed = 0x80;  // of head.missing: the format with a key

    std::uint64_t segment_bytes() const { return 64 * (2 + head.units % 62u); }
    tapewire::queue::Geometry geometry() const {
        return {segment_bytes(), head.first_seq, (head.missing & kKeyed) != 0 ? kKey : 0};
    }
    std::size_t segment_count() const { return 1 + head.segments % 4u; }

    void write_to(const Layout& layout) const;
    // Serializes the image, without the zeros at its end.
    std::vector<std::uint8_t> bytes() const;

    // One random step that keeps checksums valid or makes them so, so that the code after the
    // checks is reached.
    void mutate(std::uint32_t random);
    void make_checks_valid();
};

// The LLVMFuzzerCustomMutator of such an input.
std::size_t mutate_image(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned seed);

}  // namespace fuzz
