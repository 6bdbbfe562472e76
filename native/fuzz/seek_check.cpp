// Compares seeks with a linear read of the same queue.
#include <algorithm>

#include "fuzz_kit.hpp"
#include "tapewire/queue/record_check.hpp"
#include "tapewire/queue/segment.hpp"

namespace fuzz {

namespace {

bool has_foreign(const std::vector<Shown>& shown) {
    return std::any_of(shown.begin(), shown.end(), [](const Shown& s) { return s.foreign; });
}

bool reached_the_last(const Layout& layout, const Tape& tape) {
    return !tape.stopped && tape.end.segment == layout.segments().back();
}

// Whether nothing follows the place where reading ended: no segment, no byte.
bool ends_clean(const Layout& layout, const Reader& reader, const Tape& tape) {
    if (!reached_the_last(layout, tape)) return false;
    const auto segment = tapewire::queue::Segment::open(
        layout, reader.geometry(), static_cast<std::uint32_t>(tape.end.segment),
        tapewire::Mapping::Access::read_only);
    return segment && tapewire::queue::all_zero(segment->data() + tape.end.offset,
                                                segment->size() - tape.end.offset);
}

class SeekCheck {
  public:
    SeekCheck(const Layout& layout, const Tape& tape)
        : tape_(tape),
          segments_(layout.segments().size()),
          reader_(layout.root, anonymous()),
          exact_(tape.numbers_rise() && !tape.last_numbers && !tape.damaged &&
                 ends_clean(layout, reader_, tape)),
          comparable_(tape.numbers_rise() && !tape.last_numbers && !tape.unchecked_damage &&
                      !tape.hole_skipped && !has_foreign(tape.shown) &&
                      reached_the_last(layout, tape)) {}

    void by_number(std::uint64_t seq) {
        const auto wanted = std::find_if(tape_.shown.begin(), tape_.shown.end(),
                                         [seq](const Shown& s) { return s.seq >= seq; });
        seek("seek_seq(" + std::to_string(seq) + ")", wanted,
             wanted != tape_.shown.end() && wanted->seq == seq,
             [this, seq] { return reader_.seek_seq(seq); });
    }

    void by_time(std::int64_t time) {
        const std::uint64_t ns = time < 0 ? 0 : static_cast<std::uint64_t>(time);
        const auto wanted = std::find_if(
            tape_.shown.begin(), tape_.shown.end(),
            [ns](const Shown& s) { return static_cast<std::uint64_t>(s.timestamp_ns) >= ns; });
        seek("seek_time(" + std::to_string(time) + ")", wanted, wanted != tape_.shown.end(),
             [this, time] { return reader_.seek_time(time); });
    }

    void end() {
        seek("seek_end()", tape_.shown.end(), false, [this] {
            reader_.seek_end();
            return false;
        });
    }

    void start() {
        seek("seek_start()", tape_.shown.begin(), !tape_.shown.empty(),
             [this] { return reader_.seek_start(); });
    }

  private:
    using Wanted = std::vector<Shown>::const_iterator;

    template <class Seek>
    void seek(const std::string& what, Wanted wanted, bool must_be_shown, Seek call) {
        const Position at = reader_.position();
        bool found = false;
        try {
            found = call();
        } catch (const Error& error) {
            require_refusal(error);
            const Position now = reader_.position();
            REQUIRE(now.segment == at.segment && now.offset == at.offset, what + ": " + place(now));
            // If a queue can be read from its start to its end, every seek in it succeeds.
            REQUIRE(!exact_, what + ": " + error.message);
            return;
        }
        const Tape rest = read_on(reader_, segments_, exact_ ? 1 : kAll);
        if (exact_) {
            REQUIRE(found == (wanted != tape_.shown.end()), what);
            REQUIRE(rest.shown.empty() == (wanted == tape_.shown.end()), what);
            REQUIRE(rest.shown.empty() || rest.shown.front().same_record(*wanted),
                    what + ": found " + place(rest.shown.front().at) + " instead of " +
                        place(wanted->at));
        } else if (comparable_ && must_be_shown) {
            REQUIRE(rest.has(*wanted), what + ": " + place(wanted->at) + " is skipped");
        }
    }

    const Tape& tape_;
    std::uint64_t segments_;
    Reader reader_;
    bool exact_;
    // Each sequence number names one place: the numbers rise, and no writer restarted them in a
    // part that was not read.
    bool comparable_;
};

}  // namespace

void check_seeks_by_number(const Layout& layout, const Tape& tape, std::uint64_t seq) {
    SeekCheck check(layout, tape);
    check.by_number(seq);
    check.end();
    if (const std::size_t n = tape.shown.size(); n != 0) {
        check.by_number(tape.shown[seq % n].seq);
        check.by_number(tape.shown[n / 2].seq);
        check.by_number(tape.shown.back().seq + 1);
    }
    check.start();
}

void check_seeks(const Layout& layout, const Tape& tape, std::uint64_t seq, std::uint64_t ns) {
    check_seeks_by_number(layout, tape, seq);
    SeekCheck check(layout, tape);
    check.by_time(static_cast<std::int64_t>(ns));
    if (const std::size_t n = tape.shown.size(); n != 0) {
        check.by_time(tape.shown[ns % n].timestamp_ns);
        check.by_time(tape.shown[n - 1].timestamp_ns);
    }
}

}  // namespace fuzz
