// Nothing of a record is read before its commit was seen: every access to a header or a payload
// goes through Commit, and ends the process if the word was 0.
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fcntl.h>
#include <csignal>
#include <cstdio>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/walk.hpp"

#ifdef NDEBUG
#error "the native tests are built with assertions"
#endif

using namespace kit;
using namespace tapewire::format;
using tapewire::queue::Commit;
using tapewire::queue::Fault;
using tapewire::queue::Segment;
using tapewire::queue::Walk;

namespace {

template <class T>
void use(const T& value) {
    volatile T sink = value;
    static_cast<void>(sink);
}

// The signal that ends a child that makes this call; 0 if the call returns.
template <class Call>
int signal_of(Call call) {
    const pid_t child = ::fork();
    if (child == 0) {
        const rlimit no_core{0, 0};
        ::setrlimit(RLIMIT_CORE, &no_core);
        static_cast<void>(std::freopen("/dev/null", "w", stderr));  // the message of the assertion
        call();
        ::_exit(0);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
    return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

// A record that is complete except for its commit word.
struct Unfinished {
    alignas(64) std::byte bytes[128]{};

    RecordHeader& header() { return *reinterpret_cast<RecordHeader*>(bytes); }
    Unfinished() {
        header().version = kRecordVersion;
        header().seq = 42;
        std::memcpy(bytes + kRecordHeaderBytes, "payload", 7);
    }
    void commit() { std::atomic_ref(header().commit_len).store(8, std::memory_order_release); }
};

}  // namespace

TEST(a_header_or_payload_read_before_its_commit_ends_the_process) {
    Unfinished record;
    const Commit early = Commit::at(record.bytes);
    CHECK(!early);
    CHECK_EQ(signal_of([&] { use(early.header().seq); }), SIGABRT);
    CHECK_EQ(signal_of([&] { use(early.payload()); }), SIGABRT);
    CHECK_EQ(signal_of([&] { use(early.payload_len()); }), SIGABRT);
    CHECK_EQ(signal_of([&] { use(check_header(early, {}, 0, 128)); }), SIGABRT);
    CHECK_EQ(signal_of([&] { use(check_payload(early)); }), SIGABRT);
    CHECK_EQ(signal_of([&] { use(check_record(early, {}, 0, 128)); }), SIGABRT);

    // An unseen commit stays unseen: one that comes later must be loaded again.
    record.commit();
    CHECK_EQ(signal_of([&] { use(early.header().seq); }), SIGABRT);
    const Commit seen = Commit::at(record.bytes);
    CHECK(seen);
    CHECK_EQ(signal_of([&] { use(seen.header().seq); }), 0);
    CHECK_EQ(seen.header().seq, 42u);
    CHECK_EQ(seen.payload_len(), 7u);
    CHECK_EQ(std::memcmp(seen.payload(), "payload", 7), 0);
}

TEST(a_walk_that_has_ended_has_no_header) {
    const Scratch tmp;
    {
        Writer writer(tmp / "q", small());
        append(writer, "only");
    }
    const Layout layout{tmp / "q"};
    const auto segment =
        Segment::open(layout, tapewire::queue::Control::open(layout, false).geometry(), 0,
                      tapewire::Mapping::Access::read_only);
    Walk walk(*segment, kSegmentDataOffset);
    CHECK_EQ(signal_of([&] { use(walk.header().seq); }), SIGABRT);
    CHECK(walk.step());
    CHECK_EQ(walk.header().seq, 0u);
    CHECK(!walk.step());
    CHECK_EQ(signal_of([&] { use(walk.header().seq); }), SIGABRT);
}

TEST(a_header_copied_from_a_file_needs_its_commit_too) {
    const Scratch tmp;
    Unfinished record;
    const auto look = [&](std::uint64_t offset, auto& copy) {
        return Commit::read(tapewire::File(tmp / "file", O_RDONLY), offset, copy);
    };
    const auto store = [&](std::size_t bytes) {
        std::ofstream file(tmp / "file", std::ios::binary | std::ios::trunc);
        file.write(reinterpret_cast<const char*>(record.bytes),
                   static_cast<std::streamsize>(bytes));
    };
    alignas(8) std::byte copy[kRecordHeaderBytes]{};
    store(sizeof record.bytes);
    CHECK(!look(0, copy));
    record.commit();
    store(sizeof record.bytes);
    const Commit commit = look(0, copy);
    if (CHECK(commit)) CHECK_EQ(commit.header().seq, 42u);
    for (const std::size_t cut : {0, 3, 4, 63}) {
        store(cut);
        CHECK(!look(0, copy));
    }
}

TEST_MAIN()
