// A complete queue as a user reads it: a reader, then a writer that recovers and appends, then
// readers again, one of them named.
#include "queue_image.hpp"

namespace {

using namespace fuzz;

// The sequence numbers of the appended records; empty if the writer refuses the queue.
std::vector<std::uint64_t> append_some(const Layout& layout) {
    WriterOptions options;
    options.preallocate = false;  // the appending thread makes the next segment: reproducible
    options.index_stride = 2;
    std::vector<std::uint64_t> numbers;
    try {
        Writer writer(layout.root, options);
        for (std::size_t length : {0u, 1u, 40u, 64u}) {
            const std::string payload(std::min<std::size_t>(length, writer.max_payload_bytes()),
                                      'w');
            numbers.push_back(kit::append(writer, payload, 50 + length));
        }
        writer.flush_sync();
        writer.close();
    } catch (const Error& error) {
        // After the highest sequence number there is no next one.
        if (error.code != Errc::sequence_not_rising) require_refusal(error);
    }
    return numbers;
}

void check_resuming(const Layout& layout, const Tape& tape) {
    const std::size_t half = tape.shown.size() / 2;
    ReaderOptions options = anonymous();
    options.name = "r";
    RecordView record;
    {
        Reader reader(layout.root, options);
        reader.register_position();
        for (std::size_t i = 0; i < half;) {
            try {
                REQUIRE(reader.next(record), "a record shown before is missing");
                ++i;
            } catch (const Error& error) {
                REQUIRE(error.code == Errc::gap_detected, error.message);
            }
        }
        reader.commit();
    }
    Reader reader(layout.root, options);
    REQUIRE(reader.resume_committed(), "the committed position is lost");
    const Tape rest = read_on(reader, layout.segments().size());
    REQUIRE(rest.shown.size() == tape.shown.size() - half, std::to_string(rest.shown.size()));
    REQUIRE(rest.shown.front().same_record(tape.shown[half]), place(rest.shown.front().at));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const QueueImage image({data, size});
    const Layout layout = fresh_queue();
    image.write_to(layout);
    const std::optional<Tape> before = read_all(layout);
    const std::vector<std::uint64_t> appended = append_some(layout);
    if (appended.empty()) return 0;

    const std::optional<Tape> after = read_all(layout);
    if (!after || after->stopped) return 0;  // an older segment is gone or is not one
    if (after->last_numbers) return 0;
    // What recovery fences off may contain decreasing sequence numbers, which `after` does not
    // show.
    const bool rise = before && before->numbers_rise() && after->numbers_rise();
    if (before && !before->last_numbers && (rise || !before->damaged)) {
        for (const Shown& record : before->shown)
            REQUIRE(after->has(record), place(record.at) + " is no longer shown");
    }
    REQUIRE(after->shown.size() >= appended.size(), "appended records are not shown");
    for (std::size_t i = 0; i < appended.size(); ++i) {
        const Shown& record = after->shown[after->shown.size() - appended.size() + i];
        REQUIRE(record.seq == appended[i], place(record.at));
        REQUIRE(i == 0 || appended[i] == appended[i - 1] + 1, place(record.at));
    }
    check_seeks(layout, *after, image.head.seek_seq, image.head.seek_ns);
    if (!after->damaged) check_resuming(layout, *after);
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
    return fuzz::mutate_image(data, size, max_size, seed);
}
