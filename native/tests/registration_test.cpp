// A reader that registers while a writer deletes segments: whichever of the two is stopped or
// killed in between, no segment is deleted that a reader has chosen, and neither waits indefinitely
// for the other.
//
// Readers that are stopped or killed are in a process of their own: this program, run with the
// arguments `register ROOT`.
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/file.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/file.hpp"

using namespace kit;
using tapewire::DirectoryLock;
using tapewire::mono_ns;
using tapewire::format::Stat;

namespace {

constexpr std::int64_t kSecondNs = 1'000'000'000;
constexpr const char* kName = "newcomer";

WriterOptions deleting(std::int64_t reader_ttl_ns) {
    WriterOptions options = small();
    options.retention.enabled = true;
    options.retention.reader_ttl_ns = reader_ttl_ns;
    return options;
}

// One record per segment.
void append_segments(Writer& writer, int count) {
    for (int i = 0; i < count; ++i) append(writer, std::string(8064, 'r'));
}

// Lets retention delete as far as possible.
void read_and_commit_all(Reader& reader) {
    RecordView record;
    while (reader.next(record)) {
    }
    reader.commit();
}

bool noted(Writer& writer, const std::string& text) {
    const auto events = writer.take_events();
    return std::any_of(events.begin(), events.end(), [&](const std::string& event) {
        return event.find(text) != std::string::npos;
    });
}

// Stops in the middle of registering: it has chosen its position and not written it yet. After
// SIGCONT it returns 0 if it could register and read what it had chosen.
int register_and_stop(const std::string& root) {
    try {
        Reader reader(root, named(kName));
        ::raise(SIGSTOP);
        reader.register_position();
        RecordView record;
        return reader.next(record) && record.seq == 0 ? 0 : 1;
    } catch (const Error&) {
        return 2;
    }
}

class Newcomer {
  public:
    explicit Newcomer(const std::string& root) {
        std::string self = "/proc/self/exe", role = "register", where = root;
        char* const arguments[] = {self.data(), role.data(), where.data(), nullptr};
        if (::posix_spawn(&pid_, self.c_str(), nullptr, nullptr, arguments, environ) != 0) {
            pid_ = -1;
            return;
        }
        int status = 0;
        if (::waitpid(pid_, &status, WUNTRACED) != pid_ || !WIFSTOPPED(status)) pid_ = -1;
    }
    ~Newcomer() { kill(); }
    Newcomer(const Newcomer&) = delete;
    Newcomer& operator=(const Newcomer&) = delete;

    bool stopped_while_registering() const { return pid_ > 0; }
    int resume_and_wait() {
        int status = 0;
        ::kill(pid_, SIGCONT);
        const bool ended = ::waitpid(pid_, &status, 0) == pid_ && WIFEXITED(status);
        pid_ = -1;
        return ended ? WEXITSTATUS(status) : -1;
    }
    void kill() {
        if (pid_ <= 0) return;
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
        pid_ = -1;
    }

  private:
    pid_t pid_ = -1;
};

}  // namespace

// The queue is full, so that every make_room runs a pass of retention immediately.
TEST(a_reader_stopped_while_it_registers_keeps_what_it_has_chosen) {
    const Scratch tmp;
    WriterOptions options = deleting(60 * kSecondNs);
    options.max_segments = 4;
    Writer writer(tmp / "q", options);
    const Layout layout{tmp / "q"};
    Reader quick(tmp / "q", named("quick"));
    quick.register_position();
    append_segments(writer, 4);
    Newcomer newcomer(tmp / "q");
    if (!CHECK(newcomer.stopped_while_registering())) return;
    read_and_commit_all(quick);
    CHECK(!writer.make_room(8064));

    // A pass that listed the names just before this one was created knows of it only by the lock.
    const std::string meta = layout.reader_meta(kName);
    fs::rename(meta, meta + ".aside");
    CHECK(!writer.make_room(8064));
    CHECK_EQ(layout.segments().front(), 0u);
    fs::rename(meta + ".aside", meta);

    CHECK_EQ(newcomer.resume_and_wait(), 0);
    CHECK(!writer.make_room(8064));  // now by its position, until it is stale
    fs::remove(meta);
    CHECK(writer.make_room(8064));
}

// The other order: a reader that comes in the middle of a pass chooses from what the pass leaves.
TEST(a_reader_that_comes_during_a_retention_pass_chooses_after_it) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    append_segments(writer, 3);
    const Layout layout{tmp / "q"};
    tapewire::make_directory(layout.readers());
    DirectoryLock pass(layout.readers(), LOCK_EX, 0);
    if (!CHECK(pass)) return;
    const std::int64_t begin = mono_ns();
    std::atomic<std::uint64_t> chosen{~std::uint64_t{0}};
    std::thread coming([&] {
        Reader reader(tmp / "q", named(kName));
        chosen = reader.position().segment;
        reader.register_position();
    });
    while (chosen == ~std::uint64_t{0} && mono_ns() - begin < kSecondNs / 5) {
    }
    fs::remove(layout.segment(0));
    pass.release();
    const bool in_time = mono_ns() - begin < kSecondNs;  // later, it has stopped waiting
    coming.join();
    if (in_time) {
        CHECK_EQ(chosen.load(), 1u);
    } else {
        std::puts("the pass took longer than a reader waits: not shown");
    }
}

TEST(a_reader_stopped_while_it_registers_is_not_waited_for_longer_than_a_stale_one) {
    const Scratch tmp;
    Writer writer(tmp / "q", deleting(kSecondNs / 10));  // waited for at least two seconds
    const Layout layout{tmp / "q"};
    Reader quick(tmp / "q", named("quick"));
    quick.register_position();
    append_segments(writer, 2);
    Newcomer newcomer(tmp / "q");
    if (!CHECK(newcomer.stopped_while_registering())) return;
    append_segments(writer, 4);
    read_and_commit_all(quick);
    CHECK(eventually([&] { return layout.segments().front() >= 5; }));
    CHECK(noted(writer, "registering for too long"));
    // Its first segment is mapped, so it still has that record; the file is gone.
    CHECK_EQ(newcomer.resume_and_wait(), 0);
}

TEST(a_reader_killed_while_it_registers_holds_nothing_back_once_it_is_stale) {
    const Scratch tmp;
    Writer writer(tmp / "q", deleting(kSecondNs / 10));
    const Layout layout{tmp / "q"};
    Reader quick(tmp / "q", named("quick"));
    quick.register_position();
    append_segments(writer, 2);
    {
        Newcomer newcomer(tmp / "q");
        if (!CHECK(newcomer.stopped_while_registering())) return;
        newcomer.kill();
    }
    CHECK(DirectoryLock(layout.readers(), LOCK_EX, kSecondNs));  // the lock is free
    append_segments(writer, 4);
    read_and_commit_all(quick);
    CHECK(eventually([&] { return layout.segments().front() >= 5; }));
    // The name is free for the next one, too.
    Reader next(tmp / "q", named(kName));
    CHECK(!next.resume_committed());
    next.register_position();
    RecordView record;
    CHECK(next.next(record) && record.seq == 5);
}

// A writer that is stopped inside a pass holds the lock for as long as it is stopped.
TEST(a_reader_opens_beside_a_retention_pass_that_does_not_end) {
    const Scratch tmp;
    Writer writer(tmp / "q", small());
    append_segments(writer, 3);
    tapewire::make_directory(Layout{tmp / "q"}.readers());
    const DirectoryLock stopped_pass(Layout{tmp / "q"}.readers(), LOCK_EX, 0);
    if (!CHECK(stopped_pass)) return;
    Reader reader(tmp / "q", named(kName));
    reader.register_position();
    CHECK_EQ(drain(reader).size(), 3u);
    reader.commit();
}

// Both at full speed: one chooses the first segment that exists, the other deletes it as soon as
// possible.
TEST(readers_that_come_while_segments_go_never_miss_one) {
    const Scratch tmp;
    Writer writer(tmp / "q", deleting(60 * kSecondNs));
    append_segments(writer, 1);
    std::atomic<bool> done{false};
    std::atomic<std::uint64_t> came{0};
    const auto come_and_go = [&](const std::string& name) {
        try {
            while (!done) {
                Reader reader(tmp / "q", named(name));
                reader.register_position();
                for (int looks = 0; looks < 4; ++looks) {
                    read_and_commit_all(reader);
                    std::this_thread::yield();
                }
                reader.close(true);
                ++came;
            }
        } catch (const Error& e) {
            check::fail(__FILE__, __LINE__, name + " got: " + e.message + " (" + e.path + ")");
            done = true;
        }
    };
    std::thread one(come_and_go, "one"), two(come_and_go, "two");
    const std::int64_t end = mono_ns() + kSecondNs;
    while (!done && mono_ns() < end) append_segments(writer, 1);
    done = true;
    one.join();
    two.join();
    CHECK(came > 2);
    CHECK(stat(writer, Stat::segments_retired) > 2);
}

int main(int argc, char** argv) {
    if (argc == 3 && std::string_view(argv[1]) == "register") return register_and_stop(argv[2]);
    return check::run_tests(argc, argv);
}
