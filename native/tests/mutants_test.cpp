// One random fault in each of many thousand copies of small keyed queues: what readers show, what
// they report and what recovery leaves is compared with the records that were written.
//
// TAPEWIRE_MUTANTS is the number of mutants, TAPEWIRE_MUTANT_SEED the seed of the run (both
// decimal). A failed claim prints `image:mutant`; TAPEWIRE_MUTANT_ONLY=image:mutant repeats only
// that one.
#include "mutants_mutator.hpp"

namespace {

using namespace mutants;

// ---- reading ------------------------------------------------------------------------------------

struct Damage {
    Position from;
    Position to;  // where reading resumed; kEverywhere: nowhere
    Errc code;
    std::string what;
};

struct Reading {
    std::vector<Original> shown;
    std::vector<Damage> damage;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> gaps;
    std::string endless;

    bool has(const Original& record) const {
        const auto it =
            std::lower_bound(shown.begin(), shown.end(), record.at,
                             [](const Original& r, const Position& at) { return r.at < at; });
        return it != shown.end() && *it == record;
    }
    const Damage* damage_at(const Position& at) const {
        for (const Damage& d : damage) {
            if (!(at < d.from) && at < d.to) return &d;
        }
        return nullptr;
    }
    bool reports(const Original& record) const {
        return damage_at(record.at) != nullptr ||
               std::any_of(gaps.begin(), gaps.end(), [&](const auto& gap) {
                   return gap.first <= record.seq && record.seq <= gap.second;
               });
    }
    std::string text() const {
        std::string result = std::to_string(shown.size()) + " shown";
        for (const Damage& d : damage) {
            result += "\n      " + d.what + " at " + std::to_string(d.from.segment) + "/" +
                      std::to_string(d.from.offset) + " to " + std::to_string(d.to.segment) + "/" +
                      std::to_string(d.to.offset);
        }
        for (const auto& gap : gaps) {
            result +=
                "\n      gap " + std::to_string(gap.first) + ".." + std::to_string(gap.second);
        }
        return result;
    }
};

ReaderOptions spinning() {
    ReaderOptions options;
    options.wait = tapewire::WaitKind::busy_spin;
    return options;
}

// Reads to the end, past all damage, or to the first record with a sequence number of at least
// `until`.
Reading read_on(Reader& reader, std::optional<std::uint64_t> until = std::nullopt) {
    Reading reading;
    for (int turns = 0;; ++turns) {
        if (turns == 20'000) {
            reading.endless = "reading does not end";
            return reading;
        }
        const Position from = reader.position();
        try {
            RecordView record;
            if (reader.next(record)) {
                reading.shown.push_back(original(reader, record));
                if (until && record.seq >= *until) return reading;
                continue;
            }
            if (reader.wait(0) == tapewire::WaitOutcome::not_yet) return reading;
        } catch (const Error& e) {
            if (e.code == Errc::gap_detected) {
                reading.gaps.emplace_back(e.numbers[0], e.numbers[1]);
                continue;
            }
            const Position damaged = std::min(from, reader.position());
            const tapewire::Skipped skipped = reader.skip_damaged();
            const bool moved = skipped.bytes != 0;
            reading.damage.push_back({reader.position() < damaged ? from : damaged,
                                      moved ? reader.position() : kEverywhere, e.code, e.message});
            if (!moved) return reading;
        }
    }
}

Reading read_queue(const std::string& root) {
    Reader reader(root, spinning());
    return read_on(reader);
}

// ---- claims -------------------------------------------------------------------------------------

class Trial {
  public:
    Trial(const Image& image, const Mutant& mutant, const std::string& root, Random& random,
          std::string name)
        : image_(image),
          mutant_(mutant),
          root_(root),
          layout_{root},
          random_(random),
          name_(std::move(name)) {}

    void run() {
        restore(root_, mutant_.files);
        const Reading before = read_queue(root_);
        check_shown("before recovery", before);
        check_untouched("before recovery", before);
        check_reported(before);
        check_marks(before);
        check_seeks(before);
        recover_and_check(before);
    }

  private:
    void claim(bool holds, const char* what, const std::string& detail) {
        if (holds) {
            check::pass();
            return;
        }
        check::fail(__FILE__, __LINE__,
                    "mutant " + name_ + " (" + image_.text + "; " + mutant_.text + "): " + what +
                        ": " + detail);
    }
    static std::string describe(const Original& r) {
        return "seq " + std::to_string(r.seq) + " at " + std::to_string(r.at.segment) + "/" +
               std::to_string(r.at.offset);
    }

    bool changed(std::uint64_t id, std::uint64_t from, std::uint64_t to) const {
        const std::string name = segment_name(id);
        return mutant_.files.at(name).compare(from, to - from, image_.files.at(name), from,
                                              to - from) != 0;
    }
    bool touched(const Original& r) const { return changed(r.at.segment, r.at.offset, r.end()); }

    // Claim 1.
    void check_shown(const char* when, const Reading& reading, const Original* appended = nullptr) {
        claim(reading.endless.empty(), when, reading.endless);
        for (const Original& r : reading.shown) {
            if (appended != nullptr && r == *appended) continue;
            const auto it =
                std::lower_bound(image_.originals.begin(), image_.originals.end(), r.at,
                                 [](const Original& o, const Position& at) { return o.at < at; });
            if (it == image_.originals.end() || !(*it == r)) {
                claim(false, when, "forged: " + describe(r) + "; " + reading.text());
                return;
            }
        }
        claim(true, when, "");
    }

    // Claim 2.
    void check_untouched(const char* when, const Reading& reading, bool hidden_segments = true) {
        for (const Original& r : image_.originals) {
            if (touched(r) || reading.has(r)) continue;
            const Damage* damage = reading.damage_at(r.at);
            const bool hidden = hidden_segments && damage != nullptr &&
                                damage->code == Errc::corrupt_metadata &&
                                changed(r.at.segment, 0, format::kSegmentDataOffset);
            if (!hidden) {
                claim(false, when,
                      "untouched and not shown: " + describe(r) + "; " + reading.text());
                return;
            }
        }
        claim(true, when, "");
    }

    // Nothing is left that could prove it: after a kill, the last bytes may be those of an append
    // that was not finished, and no sync has covered them.
    bool cannot_be_known(const Original& lost) const {
        if (!image_.killed || lost.at < image_.synced) return false;
        if (lost.at.segment != image_.last_segment) return false;
        for (const Original& r : image_.originals) {
            if (lost.at < r.at && !touched(r)) return false;
        }
        const std::string& bytes = mutant_.files.at(segment_name(lost.at.segment));
        return image_.restarted || bytes.find_first_not_of('\0', lost.at.offset) == bytes.npos;
    }

    // Claim 3.
    void check_reported(const Reading& reading) {
        for (const Original& r : image_.originals) {
            if (reading.has(r) || reading.reports(r) || cannot_be_known(r)) continue;
            claim(false, "before recovery",
                  "silently dropped: " + describe(r) + "; " + reading.text());
            return;
        }
        claim(true, "before recovery", "");
    }

    // Hints, checkpoint, index and end mark decide nothing about existing records. (After an
    // unfinished append a hint that is too high may also be correct, and the header lost.)
    void check_marks(const Reading& reading) {
        if (!mutant_.marks_only) return;
        claim(reading.shown.size() == image_.originals.size(), "marks alone", reading.text());
        if (!image_.leftover)
            claim(reading.damage.empty(), "marks alone raise nothing", reading.text());
    }

    void check_seeks(const Reading& before) {
        if (before.shown.empty()) return;
        const Original& wanted = random_.of(before.shown);
        Reader reader(root_, spinning());
        try {
            const bool by_time = random_.one_in(2);
            if (by_time) {
                reader.seek_time(wanted.timestamp_ns);
            } else {
                reader.seek_seq(wanted.seq);
            }
            const Reading after = read_on(reader, wanted.seq);
            claim(after.has(wanted), by_time ? "seek_time" : "seek_seq",
                  describe(wanted) + " is not reached; " + after.text() +
                      "; linear: " + before.text());
        } catch (const Error& e) {
            claim(false, "seek", describe(wanted) + " raises " + e.message);
        }
    }

    std::optional<RecoveredTail> recovered(bool everything) {
        try {
            Control control = Control::open(layout_, true);
            RecoveryOptions options;
            options.index_stride = 2;
            options.sparse = image_.sparse;
            options.everything = everything;
            return recover(layout_, control, options);
        } catch (const Error& e) {
            refusal_ = e.message + " (" + e.path + ")";
            if (e.code != Errc::corrupt_metadata) claim(false, "recovery", "raises " + refusal_);
            return std::nullopt;
        }
    }

    bool any_segment_header_changed() const {
        for (std::uint64_t id = 0; id <= image_.last_segment; ++id) {
            if (changed(id, 0, format::kSegmentDataOffset)) return true;
        }
        return false;
    }

    void recover_and_check(const Reading& before) {
        bool everything = random_.one_in(2);
        auto first = recovered(everything);
        if (!first && !everything) {
            claim(any_segment_header_changed(), "recovery", "refuses: " + refusal_);
            everything = true;
            first = recovered(everything);
        }
        if (!first) {
            claim(false, "recovery", "repair refuses: " + refusal_);
            return;
        }
        const Files files = segments_of(root_);
        const std::uint64_t next_seq = first->next_seq;
        const Position end{first->segment->id(), first->offset};
        check_again(files, *first, everything);

        for (const Original& r : before.shown) {
            if (next_seq <= r.seq) {
                claim(false, "next_seq", std::to_string(next_seq) + " is not above " + describe(r));
                break;
            }
        }
        claim(next_seq != ~std::uint64_t{0}, "next_seq", "is the one that is never given");
        const bool reported = !first->report.empty();
        std::string lines;
        for (const std::string& line : first->report) lines += "\n      " + line;
        first.reset();
        const std::optional<Original> appended = append_one(next_seq, end);
        if (!appended) return;
        check_after(*appended, everything, reported, lines);
    }

    // Claim 5.
    void check_again(const Files& files, const RecoveredTail& first, bool everything) {
        const auto second = recovered(everything);
        if (!second) {
            claim(false, "second recovery", "refuses: " + refusal_);
            return;
        }
        claim(segments_of(root_) == files, "second recovery", "changes segments");
        claim(second->next_seq == first.next_seq && second->offset == first.offset &&
                  second->segment->id() == first.segment->id() && second->damaged_spans == 0 &&
                  second->pads == 0,
              "second recovery",
              "next_seq " + std::to_string(second->next_seq) + " instead of " +
                  std::to_string(first.next_seq) + ", offset " + std::to_string(second->offset) +
                  " instead of " + std::to_string(first.offset));
    }

    // Appends through a writer or, for speed, by storing the bytes that a writer would store.
    std::optional<Original> append_one(std::uint64_t next_seq, Position end) {
        const std::string payload = "appended " + name_;
        const std::uint64_t time = 1'000'000'000;
        Original made{end, next_seq, static_cast<std::int64_t>(time), 7, 0, payload};
        if (random_.one_in(16) || made.end() > kSmallest) {
            try {
                Writer writer(root_, quiet_options(2));
                claim(writer.next_seq() == next_seq, "writer", "another next_seq");
                append(writer, payload, time);
                writer.close();
            } catch (const Error& e) {
                claim(false, "writer", "raises " + e.message + " (" + e.path + ")");
                return std::nullopt;
            }
            if (made.end() > kSmallest) made.at = {end.segment + 1, format::kSegmentDataOffset};
            return made;
        }
        Control control = Control::open(layout_, true);
        const auto id = static_cast<std::uint32_t>(end.segment);
        auto segment =
            Segment::open(layout_, control.geometry(), id, tapewire::Mapping::Access::read_write);
        format::RecordHeader header{};
        header.commit_len = static_cast<std::uint32_t>(payload.size()) + 1;
        header.version = format::kRecordVersion;
        header.seq = next_seq;
        header.timestamp_ns = time;
        header.type_id = made.type_id;
        header.payload_crc = tapewire::crc32(payload.data(), payload.size());
        header.header_check = tapewire::crc32c_portable(&header, format::kHeaderCheckedBytes,
                                                        ~segment->seed().at(end.offset));
        std::memcpy(segment->data() + end.offset, &header, sizeof header);
        std::memcpy(segment->data() + end.offset + sizeof header, payload.data(), payload.size());
        control.publish_position(id, made.end());
        return made;
    }

    // Claims 1 to 4, for the repaired log.
    void check_after(const Original& appended, bool everything, bool reported,
                     const std::string& lines) {
        const Reading after = read_queue(root_);
        check_shown("after recovery", after, &appended);
        check_untouched("after recovery", after, !everything);
        claim(after.has(appended), "after recovery",
              "the appended record is not reached: " + describe(appended) + "; " + after.text() +
                  lines);
        if (everything)
            claim(after.damage.empty(), "after repair", "still damaged: " + after.text() + lines);
        for (const Original& r : image_.originals) {
            if (after.has(r) || after.reports(r) || reported || cannot_be_known(r)) continue;
            claim(false, "after recovery",
                  "silently dropped: " + describe(r) + "; " + after.text());
            break;
        }
    }

    const Image& image_;
    const Mutant& mutant_;
    const std::string& root_;
    const Layout layout_;
    Random& random_;
    std::string name_;
    std::string refusal_;
};

std::uint64_t setting(const char* name, std::uint64_t otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? std::strtoull(value, nullptr, 10) : otherwise;
}

}  // namespace

TEST(every_mutant_is_read_and_repaired_without_loss_or_forgery) {
    const std::uint64_t mutants = setting("TAPEWIRE_MUTANTS", kMutantsDefault);
    const std::uint64_t seed = setting("TAPEWIRE_MUTANT_SEED", 1);
    std::uint64_t only_image = ~std::uint64_t{0}, only_mutant = 0;
    if (const char* only = std::getenv("TAPEWIRE_MUTANT_ONLY")) {
        std::sscanf(only, "%lu:%lu", &only_image, &only_mutant);
    }
    const Scratch scratch;
    const std::string root = scratch / "mutant";
    const Writer idle(scratch / "idle", small());  // the service threads live as long as it does
    fs::create_directories(root + "/readers");
    for (std::uint64_t i = 0; i * kMutantsOfImage < mutants; ++i) {
        if (only_image != ~std::uint64_t{0} && i != only_image) continue;
        Random of_image(seed, i, ~std::uint64_t{0});
        const Image image = ImageBuilder(scratch, of_image).build();
        for (std::uint64_t j = 0; j < kMutantsOfImage; ++j) {
            if (only_image != ~std::uint64_t{0} && j != only_mutant) continue;
            Random random(seed, i, j);
            const Mutant mutant = Mutator(image, random).mutate();
            const std::string name =
                std::to_string(i) + ":" + std::to_string(j) + " of seed " + std::to_string(seed);
            Trial(image, mutant, root, random, name).run();
            if (check::state().failed >= kMostFailures) return;
        }
    }
}

TEST_MAIN()
