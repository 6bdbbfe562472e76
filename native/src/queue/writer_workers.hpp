// The work that the process's service threads do for a writer. Internal to the writer.
#pragma once

#include "tapewire/error.hpp"
#include "tapewire/queue/writer.hpp"
#include "tapewire/service.hpp"

namespace tapewire::queue {

struct WriterWorkers {
    explicit WriterWorkers(Writer& writer);
    ~WriterWorkers() { stop(); }  // a constructor may throw during start()

    void start();
    void stop() noexcept;
    void poke_prealloc() noexcept { services.prealloc.poke(&prealloc); }
    void after_roll() noexcept;
    void write_indexes();
    void index_one_old();
    void sync_one_sealed(const Segment& sealed);
    bool inherited_is_synced() noexcept;
    std::shared_ptr<WriterSegment> next_unsynced(std::int64_t after);
    bool still_named(const WriterSegment& sealed) noexcept;
    bool sync_still_due(const std::shared_ptr<WriterSegment>& sealed);
    void find_unindexed();
    template <class Work>
    bool count_failure(Work work) noexcept;
    void drop_if_retired(std::uint32_t id);

    template <std::int64_t (WriterWorkers::*Work)(std::int64_t) noexcept>
    struct Client final : Service::Client {
        explicit Client(WriterWorkers& w) : workers(w) {}
        std::int64_t run(std::int64_t now) noexcept override { return (workers.*Work)(now); }
        WriterWorkers& workers;
    };

    void prepare_ahead(const WriterPlace& at);
    bool next_is_due(const WriterPlace& at) const noexcept;
    void count_prealloc_failure(const Error& e) noexcept;
    std::int64_t pace(std::int64_t now, std::uint64_t bytes) noexcept;
    std::int64_t beat(std::int64_t now) noexcept;
    std::int64_t prepare_next(std::int64_t now) noexcept;
    std::int64_t sync_sealed(std::int64_t now) noexcept;
    std::int64_t retire(std::int64_t now) noexcept;
    std::int64_t flush_due(std::int64_t now) noexcept;
    std::int64_t index_new(std::int64_t now) noexcept;

    Writer& writer;
    Services& services = Services::get();
    std::mutex indexing;
    bool looked_for_unindexed = false;
    std::uint64_t rolls_seen = 0;
    std::uint64_t looked_bytes = 0;
    std::int64_t looked_at_ns = 0;
    std::int64_t pause_ns = 0;
    double bytes_per_ns = 0;
    std::uint64_t ahead_bytes = 0;
    std::uint64_t looked_records = 0;
    std::uint64_t flushed_records = 0;
    std::int64_t flushed_at_ns = 0;
    std::int64_t index_pause_ns = 0;
    std::uint64_t indexed_entries = 0;
    bool inherited_failed = false;  // under Writer::sync_mutex_

    Client<&WriterWorkers::beat> heartbeat{*this};
    Client<&WriterWorkers::prepare_next> prealloc{*this};
    Client<&WriterWorkers::sync_sealed> seal{*this};
    Client<&WriterWorkers::retire> retention{*this};
    Client<&WriterWorkers::flush_due> flush{*this};
    Client<&WriterWorkers::index_new> index{*this};
};

}  // namespace tapewire::queue
