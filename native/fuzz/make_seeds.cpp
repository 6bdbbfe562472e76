// Usage: make_seeds DIRECTORY [SEGMENT...] Writes first inputs into DIRECTORY/<target>/, from
// queues that the engine itself writes, and from the beginning of each given segment file of a
// queue written elsewhere.
#include <cstdio>
#include <filesystem>

#include "queue_image.hpp"
#include "tapewire/format/record.hpp"
#include "tapewire/market/encode.hpp"
#include "tapewire/queue/control.hpp"
#include "tapewire/queue/recovery.hpp"
#include "tapewire/queue/segment.hpp"

namespace {

using namespace fuzz;
namespace fs = std::filesystem;
namespace format = tapewire::format;
using tapewire::queue::Segment;

std::string directory;

void save(const std::string& target, const std::string& name, const void* bytes, std::size_t n) {
    fs::create_directories(directory + "/" + target);
    put_file(directory + "/" + target + "/" + name, bytes, n);
}

void save_image(const std::string& name, const QueueImage& image) {
    const auto bytes = image.bytes();
    for (const char* target : {"segment", "queue"}) save(target, name, bytes.data(), bytes.size());
}

struct Plan {
    std::uint64_t segment_bytes = 512;
    int records = 12;
    bool sparse = false;
    bool checksum = true;
    std::uint64_t first_seq = 0;
    std::uint32_t stride = 2;
    bool keyed = false;
};

// A queue as a writer leaves it. Its segments are smaller than a new queue may have, so it is made
// by hand.
Layout written(const Plan& plan) {
    const Layout layout = fresh_queue();
    const tapewire::queue::Geometry geometry{plan.segment_bytes, plan.first_seq,
                                             plan.keyed ? kKey : 0};
    Segment first = Segment::prepare(layout, geometry, 0, plan.sparse);
    first.publish(layout);
    tapewire::queue::Control::create(layout, geometry);
    WriterOptions options;
    options.preallocate = false;
    options.checksum = plan.checksum;
    options.index_stride = plan.stride;
    Writer writer(layout.root, options);
    for (int i = 0; i < plan.records; ++i) {
        const std::string payload(static_cast<std::size_t>(i * 17 % 90), 'p');
        // Times that sometimes decrease: a seek uses the highest so far.
        kit::append(writer, payload, static_cast<std::uint64_t>(100 + 10 * i - (i % 3) * 15));
    }
    return layout;
}

QueueImage image_of(const Layout& layout, const Plan& plan) {
    const auto ids = layout.segments();
    ImageHead head{};
    head.units = static_cast<std::uint8_t>(plan.segment_bytes / 64 - 2);
    if (plan.keyed) head.missing = QueueImage::kKeyed;
    head.segments = static_cast<std::uint8_t>(ids.size() - 1);
    head.first_seq = plan.first_seq;
    head.current_segment = ids.back();
    head.write_offset = 64;
    head.checkpoint_bytes = 24;
    const std::string checkpoint = get_file(layout.tail_checkpoint());
    std::memcpy(&head.checkpoint, checkpoint.data(), sizeof head.checkpoint);
    std::string all(reinterpret_cast<const char*>(&head), sizeof head);
    for (std::uint32_t id : ids) all += get_file(layout.segment(id));
    return QueueImage({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()});
}

void whole_queues() {
    const std::pair<const char*, Plan> plans[] = {
        {"one-segment", {2048, 6}},
        {"three-segments", {640, 12}},
        {"sparse", {1024, 5, true}},
        {"without-checksums", {1024, 5, false, false}},
        {"first-seq-1", {1024, 4, false, true, 1}},
        {"smallest-segments", {128, 0}},
        {"keyed-one-segment", {2048, 6, false, true, 0, 2, true}},
        {"keyed-three-segments", {640, 12, false, true, 0, 2, true}},
        {"keyed-sparse", {1024, 5, true, true, 0, 2, true}},
    };
    for (const auto& [name, plan] : plans) {
        const QueueImage image = image_of(written(plan), plan);
        save_image(name, image);
        QueueImage foreign = image;
        for (auto& segment : foreign.segments) {
            std::uint32_t commit = 1;
            for (std::uint64_t at = 64; at + 64 <= segment.size() && commit != 0;
                 at += format::record_bytes(commit - 1)) {
                std::memset(segment.data() + at + offsetof(format::RecordHeader, header_check), 0,
                            4);
                std::memcpy(&commit, segment.data() + at, sizeof commit);
            }
        }
        save_image(std::string(name) + "-without-header-checks", foreign);
        QueueImage damaged = image;
        damaged.segments[0][64 + 8] ^= std::byte{1};
        save_image(std::string(name) + "-damaged", damaged);
    }
}

void small_files() {
    const Layout layout = written({});
    const std::string control = get_file(layout.control());
    save("control", "as-written", control.data(), control.size());
    const std::string lock = get_file(layout.writer_lock());
    save("writer_lock", "as-written", lock.data(), lock.size());
    for (std::uint32_t id : layout.segments()) {
        const std::string name = "as-written-" + std::to_string(id);
        if (!fs::exists(layout.index(id))) continue;
        const std::string index = get_file(layout.index(id));
        save("seek_index", name, index.data(), index.size());
    }
    ReaderOptions options = anonymous();
    options.name = "r";
    Reader reader(layout.root, options);
    RecordView record;
    for (int i = 0; i < 3; ++i) {
        reader.next(record);
        reader.commit();
        const std::string meta = get_file(layout.reader_meta("r"));
        save("reader_meta", "commits-" + std::to_string(i + 1), meta.data(), meta.size());
    }
}

void book_events() {
    namespace market = tapewire::market;
    const market::EventHead head{100, 90, 9, 7, 0, 3, 2, 8};
    const format::Level levels[] = {{10, 5}, {-9, 0}, {11, 1}};
    std::vector<std::byte> bytes(market::kDiffHeadBytes + sizeof levels);
    for (const bool delta : {false, true}) {
        std::memcpy(market::begin_diff(bytes.data(), head, {7, 9, 6}, delta, 2, 1), levels,
                    sizeof levels);
        save("book_event", delta ? "diff-of-changes" : "diff", bytes.data(), bytes.size());
    }
    bytes.resize(market::kSnapshotHeadBytes + sizeof levels);
    std::memcpy(market::begin_snapshot(bytes.data(), head, 1, 2), levels, sizeof levels);
    save("book_event", "snapshot", bytes.data(), bytes.size());
    bytes.resize(market::kOrderBytes);
    for (std::uint8_t type = 1; type <= 6; ++type) {
        format::L3Event order{};
        order.event_type = type;
        order.side = type % 3;
        order.order_id = 5;
        order.price = -12;
        order.qty = 3;
        market::encode_order(bytes.data(), head, order);
        save("book_event", "order-" + std::to_string(type), bytes.data(), bytes.size());
    }
    for (const auto mode : {format::BookMode::l2, format::BookMode::l3}) {
        const auto reset = market::make_header(head, format::EventType::reset, mode, 0, 64);
        save("book_event", mode == format::BookMode::l2 ? "reset-l2" : "reset-l3", &reset,
             sizeof reset);
    }
}

void from_elsewhere(const std::string& path) {
    const std::string bytes = get_file(path).substr(0, 3000);
    ImageHead head{};
    head.units = 3000 / 64 - 2;
    std::string all(reinterpret_cast<const char*>(&head), sizeof head);
    all += bytes;
    QueueImage image({reinterpret_cast<const std::uint8_t*>(all.data()), all.size()});
    save_image(
        fs::path(path).parent_path().filename().string() + "-" + fs::path(path).stem().string(),
        image);
}

}  // namespace

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "usage: make_seeds DIRECTORY [SEGMENT...]\n");
        return 2;
    }
    directory = argv[1];
    whole_queues();
    small_files();
    book_events();
    for (int i = 2; i < argc; ++i) from_elsewhere(argv[i]);
    return 0;
}
