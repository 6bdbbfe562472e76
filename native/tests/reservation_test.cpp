// A writer that two threads share, as the Python binding lets them: the fast path under one lock
// (there the GIL), every slow call under a second one that is taken first. A reservation is filled
// under neither lock, and committed as a slow call, since another thread may be rolling. A commit
// outside the second lock would very rarely meet a roll, but ThreadSanitizer detects it at once.
#include <atomic>
#include <mutex>
#include <thread>

#include "check.hpp"
#include "queue_kit.hpp"

using namespace kit;

namespace {

class SharedWriter {
  public:
    explicit SharedWriter(const std::string& root, const WriterOptions& options)
        : writer_(root, options) {}

    // Returns false while a reservation is open.
    bool append(const std::string& payload) {
        for (;;) {
            {
                const std::lock_guard fast(fast_);
                if (writer_.try_append(7, 0, writer_.next_seq(), 1, payload.data(), payload.size()))
                    return true;
            }
            const SlowCall call(*this);
            try {
                CHECK(writer_.make_room(payload.size()));
            } catch (const Error& e) {
                CHECK(e.code == Errc::reservation_open);
                return false;
            }
        }
    }

    void append_in_place(const std::string& payload) {
        std::byte* place = nullptr;
        {
            const SlowCall call(*this);
            CHECK(writer_.make_room(payload.size()));
            const std::lock_guard fast(fast_);
            place = writer_.reserve(payload.size());
        }
        std::memcpy(place, payload.data(), payload.size());
        const SlowCall call(*this);
        const std::lock_guard fast(fast_);
        writer_.commit_reserved(8, 0, writer_.next_seq(), 1, payload.size());
    }

  private:
    // Suspends the fast path: appends of other threads do not fit, and wait for the slow lock.
    class SlowCall {
      public:
        explicit SlowCall(SharedWriter& shared) : shared_(shared), slow_(shared.slow_) {
            const std::lock_guard fast(shared_.fast_);
            shared_.writer_.suspend();
        }
        ~SlowCall() {
            const std::lock_guard fast(shared_.fast_);
            shared_.writer_.resume();
        }

      private:
        SharedWriter& shared_;
        std::lock_guard<std::mutex> slow_;
    };

    std::mutex slow_, fast_;
    Writer writer_;
};

}  // namespace

TEST(a_reservation_is_committed_beside_the_rolls_of_another_thread) {
    constexpr std::uint64_t kSegmentBytes = 256 * 1024;
    constexpr int kReservations = 200;
    const Scratch tmp;
    // Two of them fill a segment, so that every second record of either thread causes a roll.
    const std::string placed(100'000, 'p'), appended(110'000, 'a');
    std::atomic<std::uint64_t> appends{0};
    {
        WriterOptions options;
        options.segment_bytes = kSegmentBytes;
        options.preallocate = false;
        SharedWriter shared(tmp / "q", options);
        std::atomic<bool> done{false};
        std::thread other([&] {
            while (!done) appends += shared.append(appended) ? 1 : 0;
        });
        for (int i = 0; i < kReservations; ++i) {
            const std::uint64_t before = appends;
            shared.append_in_place(placed);
            while (appends == before) std::this_thread::yield();  // a C++ lock is not fair
        }
        done = true;
        other.join();
    }
    std::uint64_t seq = 0, of_placed = 0;
    for (const Seen& record : read_all(tmp / "q")) {
        CHECK_EQ(record.seq, seq++);
        CHECK(record.payload == placed || record.payload == appended);
        if (record.payload == placed) ++of_placed;
    }
    CHECK_EQ(of_placed, static_cast<std::uint64_t>(kReservations));
    CHECK_EQ(seq - of_placed, appends.load());
}

TEST_MAIN()
