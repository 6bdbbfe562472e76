// What a writer has done for it by the process's service threads. Internal to the writer.
#pragma once

#include "tapewire/queue/writer.hpp"
#include "tapewire/service.hpp"

namespace tapewire::queue {

struct WriterWorkers {
    explicit WriterWorkers(Writer& writer);
    ~WriterWorkers() { stop(); }  // a constructor may throw half-way through start()

    void start();
    void stop() noexcept;
    void poke_prealloc() noexcept { services.prealloc.poke(&prealloc); }
    void after_roll() noexcept;
    void write_indexes_or_count() noexcept;
    void write_indexes();
    void index_one_old();
    bool sync_still_due(const std::shared_ptr<WriterSegment>& sealed);
    void find_unindexed();
    template <class Work>
    void count_failure(Work work) noexcept;
    void drop_if_retired(std::uint32_t id);

    template <std::int64_t (WriterWorkers::*Work)(std::int64_t) noexcept>
    struct Client final : Service::Client {
        explicit Client(WriterWorkers& w) : workers(w) {}
        std::int64_t run(std::int64_t now) noexcept override { return (workers.*Work)(now); }
        WriterWorkers& workers;
    };

    std::int64_t pace(std::int64_t now) noexcept;
    std::int64_t beat(std::int64_t now) noexcept;
    std::int64_t prepare_next(std::int64_t now) noexcept;
    std::int64_t sync_sealed(std::int64_t now) noexcept;
    std::int64_t retire(std::int64_t now) noexcept;
    std::int64_t flush_due(std::int64_t now) noexcept;
    std::int64_t index_new(std::int64_t now) noexcept;

    Writer& writer;
    Services& services = Services::get();
    bool populated = false;
    bool looked_for_unindexed = false;
    std::uint64_t rolls_seen = 0;
    std::int64_t rolled_at_ns = 0;
    std::int64_t roll_period_ns = kWhenPoked;
    std::uint64_t looked_records = 0;
    std::uint64_t flushed_records = 0;
    std::int64_t flushed_at_ns = 0;
    std::int64_t index_pause_ns = 0;
    std::uint64_t indexed_entries = 0;

    Client<&WriterWorkers::beat> heartbeat{*this};
    Client<&WriterWorkers::prepare_next> prealloc{*this};
    Client<&WriterWorkers::sync_sealed> seal{*this};
    Client<&WriterWorkers::retire> retention{*this};
    Client<&WriterWorkers::flush_due> flush{*this};
    Client<&WriterWorkers::index_new> index{*this};
};

}  // namespace tapewire::queue
