// writer.lock: its text names the owner of the lock and may be anything.
#include "fuzz_kit.hpp"
#include "mutate.hpp"
#include "tapewire/queue/writer_lock.hpp"

using namespace fuzz;
using tapewire::queue::LockOwner;
using tapewire::queue::parse_lock_owner;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string text(reinterpret_cast<const char*>(data), size);
    const std::optional<LockOwner> owner = parse_lock_owner(text);
    if (owner) {
        REQUIRE(owner->pid > 0, text);
        const std::string written = std::to_string(owner->pid) + " " +
                                    std::to_string(owner->start_ticks) + " " +
                                    std::to_string(owner->epoch) + "\n";
        const std::optional<LockOwner> again = parse_lock_owner(written);
        REQUIRE(again && again->pid == owner->pid && again->start_ticks == owner->start_ticks &&
                    again->epoch == owner->epoch,
                text);
    }
    const Layout layout = fresh_queue();
    put_file(layout.writer_lock(), data, size);
    const tapewire::queue::LockLook look = look_at_writer_lock(layout);
    REQUIRE(!look.held, "the lock is reported as held");
    REQUIRE(size >= 128 || look.owner.has_value() == owner.has_value(), text);

    // No text keeps a writer out; its own text replaces it.
    const tapewire::queue::WriterLock lock(layout);
    lock.announce(3);
    const tapewire::queue::LockLook held = look_at_writer_lock(layout);
    REQUIRE(held.held && held.owner && held.owner->epoch == 3, text);
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    size = LLVMFuzzerMutate(data, size, max_size);
    for (std::size_t i = 0; seed % 2 == 0 && i + 1 < size; ++i) {
        // Mostly digits: otherwise hardly any text is parsed to its end.
        if (data[i] != ' ' && data[i] != '-')
            data[i] = static_cast<std::uint8_t>('0' + data[i] % 10);
    }
    if (seed % 4 == 0 && size != 0) data[size - 1] = '\n';
    return size;
}
