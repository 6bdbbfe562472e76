// The service threads of the process: no poke is lost, nothing runs after it was removed, and many
// threads may add and remove clients at once.
#include <array>
#include <atomic>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "check.hpp"
#include "queue_kit.hpp"
#include "tapewire/clock.hpp"
#include "tapewire/service.hpp"

using tapewire::kWhenPoked;
using tapewire::Service;

namespace {

struct Counter final : Service::Client {
    std::atomic<std::uint64_t> runs{0};
    std::atomic<bool> removed{false};
    std::atomic<bool> inside{false};
    std::atomic<std::uint64_t> ran_after_removal{0};
    std::atomic<std::uint64_t> ran_twice_at_once{0};
    std::int64_t every_ns = 0;  // 0: only when poked

    std::int64_t run(std::int64_t now) noexcept override {
        if (inside.exchange(true)) ++ran_twice_at_once;
        if (removed.load()) ++ran_after_removal;
        ++runs;
        inside.store(false);
        return every_ns == 0 ? kWhenPoked : now + every_ns;
    }
};

void remove(Service& service, Counter& client) {
    service.remove(&client);
    client.removed = true;
}

}  // namespace

TEST(a_client_runs_once_when_it_is_added_and_again_for_every_poke) {
    Service service("test");
    Counter client;
    service.add(&client);
    CHECK(kit::eventually([&] { return client.runs.load() == 1; }));
    for (std::uint64_t i = 2; i < 3000; ++i) {
        service.poke(&client);
        if (!CHECK(kit::eventually([&] { return client.runs.load() >= i; }))) break;
    }
    remove(service, client);
    CHECK_EQ(client.ran_after_removal.load(), 0u);
}

TEST(a_poke_while_the_client_runs_is_not_lost) {
    Service service("test");
    struct Slow final : Service::Client {
        std::atomic<int> step{0};
        std::atomic<int> runs{0};
        std::int64_t run(std::int64_t) noexcept override {
            ++runs;
            step = 1;
            while (step.load() == 1) std::this_thread::yield();
            return kWhenPoked;
        }
    } client;
    service.add(&client);
    for (int i = 1; i < 200; ++i) {
        CHECK(kit::eventually([&] { return client.step.load() == 1 && client.runs.load() == i; }));
        service.poke(&client);
        client.step = 2;
    }
    CHECK(kit::eventually([&] { return client.runs.load() == 200 && client.step.load() == 1; }));
    client.step = 2;
    service.remove(&client);
}

TEST(a_client_runs_again_at_the_time_it_asked_for) {
    Service service("test");
    Counter often, never;
    often.every_ns = 200'000;
    service.add(&never);
    service.add(&often);
    CHECK(kit::eventually([&] { return often.runs.load() >= 20; }));
    CHECK_EQ(never.runs.load(), 1u);
    remove(service, often);
    remove(service, never);
}

TEST(removing_a_client_that_was_never_added_is_harmless) {
    Service service("test");
    Counter stranger, client;
    service.remove(&stranger);
    service.add(&client);
    Counter other;
    service.remove(&other);
    CHECK(kit::eventually([&] { return client.runs.load() == 1; }));
    remove(service, client);
    CHECK_EQ(stranger.runs.load() + other.runs.load(), 0u);
}

TEST(clients_come_and_go_from_many_threads_while_others_are_poked) {
    Service service("test");
    constexpr int kThreads = 4;
    constexpr int kRounds = 250;
    std::array<std::atomic<std::uint64_t>, kThreads> missed{};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
        threads.emplace_back([&, t] {
            std::mt19937 random(static_cast<unsigned>(t));
            for (int round = 0; round < kRounds; ++round) {
                auto client = std::make_unique<Counter>();
                if (random() % 2 == 0) client->every_ns = 50'000;
                service.add(client.get());
                const std::uint64_t pokes = random() % 4;
                std::uint64_t target = 0;
                for (std::uint64_t i = 0; i < pokes; ++i) {
                    target = client->runs.load() + 1;
                    service.poke(client.get());
                    if (!kit::eventually([&] { return client->runs.load() >= target; })) {
                        ++missed[static_cast<std::size_t>(t)];
                    }
                }
                remove(service, *client);
                CHECK_EQ(client->ran_after_removal.load(), 0u);
                CHECK_EQ(client->ran_twice_at_once.load(), 0u);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
    for (const auto& m : missed) CHECK_EQ(m.load(), 0u);
}

// The thread ends with the last client and a new one is started with the next: the two often
// coincide.
TEST(the_last_client_leaves_while_the_next_one_arrives) {
    Service service("test");
    std::vector<std::thread> threads;
    for (int t = 0; t < 2; ++t) {
        threads.emplace_back([&] {
            for (int round = 0; round < 400; ++round) {
                Counter client;
                service.add(&client);
                if (round % 2 == 0) service.poke(&client);
                remove(service, client);
                CHECK_EQ(client.ran_after_removal.load(), 0u);
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

// Two writers and their readers at once, all served by the same few threads.
TEST(queues_open_and_close_while_others_work) {
    const kit::Scratch tmp;
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
        threads.emplace_back([&tmp, t] {
            const std::string root = tmp / ("q" + std::to_string(t)).c_str();
            for (int round = 0; round < 12; ++round) {
                kit::WriterOptions options = kit::small();
                options.retention.enabled = round % 2 == 0;
                options.flush_records = round % 3 == 0 ? 5 : 0;
                kit::Writer writer(root, options);
                kit::ReaderOptions named;
                named.name = "r";
                kit::Reader reader(root, named);
                reader.resume_committed();
                reader.register_position();
                for (int i = 0; i < 12; ++i) kit::append(writer, std::string(4000, 'x'));
                CHECK_EQ(kit::drain(reader).size(), 12u);
                reader.commit();
            }
        });
    }
    for (std::thread& thread : threads) thread.join();
}

TEST_MAIN()
