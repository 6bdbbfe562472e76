// What other threads see of the position of a writer while it rolls.
#include <atomic>
#include <string>
#include <thread>

#include "check.hpp"
#include "queue_kit.hpp"

using kit::append;
using kit::Scratch;
using tapewire::format::Stat;
using tapewire::queue::Writer;

namespace {

TEST(the_count_of_bytes_written_never_falls) {
    const Scratch scratch;
    tapewire::queue::WriterOptions options = kit::small();
    options.preallocate = false;
    Writer writer(scratch / "q", options);
    std::atomic<bool> stop{false};
    std::uint64_t falls = 0;
    std::thread watcher([&] {
        for (std::uint64_t last = 0; !stop.load();) {
            const std::uint64_t now = kit::stat(writer, Stat::bytes_written);
            if (now < last) ++falls;
            last = now;
        }
    });
    constexpr std::uint64_t kRecords = 6000;
    const std::string payload(4000, 'x');  // 4096 bytes with its header: one per segment
    for (std::uint64_t n = 0; n < kRecords; ++n) append(writer, payload);
    stop = true;
    watcher.join();
    CHECK_EQ(falls, 0u);
    CHECK_EQ(kit::stat(writer, Stat::bytes_written), kRecords * 4096);
}

}  // namespace

TEST_MAIN()
