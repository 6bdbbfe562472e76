// One random change of an image, as a disk, a stray write or a copied file can cause it.
#pragma once

#include "mutants_images.hpp"

namespace mutants {

// ---- mutations ----------------------------------------------------------------------------------

struct Mutant {
    Files files;
    std::string text;
    bool marks_only = false;  // hints, checkpoint, index or end mark: no record, no header
};

class Mutator {
  public:
    Mutator(const Image& image, Random& random) : image_(image), random_(random) {
        mutant_.files = image.files;
    }

    Mutant mutate() {
        static constexpr void (Mutator::* kKinds[])() = {
            &Mutator::flip_in_segment,  &Mutator::flip_in_segment_header,
            &Mutator::flip_in_header,   &Mutator::flip_in_header,
            &Mutator::flip_in_record,   &Mutator::flip_after_records,
            &Mutator::zero_commit_word, &Mutator::zero_commit_word,
            &Mutator::zero_header,      &Mutator::zero_record,
            &Mutator::zero_page,        &Mutator::zero_tail,
            &Mutator::copy_header_over, &Mutator::copy_record_over,
            &Mutator::copy_after_end,   &Mutator::garbage,
            &Mutator::flip_checkpoint,  &Mutator::set_write_offset,
            &Mutator::set_current,      &Mutator::flip_end_mark,
            &Mutator::toggle_sealed,    &Mutator::flip_index,
        };
        (this->*kKinds[random_.below(std::size(kKinds))])();
        return std::move(mutant_);
    }

  private:
    std::string& segment(std::uint64_t id) { return mutant_.files.at(segment_name(id)); }
    std::uint64_t any_segment() { return random_.from_to(0, image_.last_segment); }
    const Original* any_record() {
        if (image_.originals.empty()) return nullptr;
        // Every fourth is one of the last records.
        const std::size_t n = image_.originals.size();
        return &image_.originals[random_.one_in(4)
                                     ? n - 1 - random_.below(std::min<std::size_t>(n, 3))
                                     : random_.below(n)];
    }
    std::string at(const Position& place) const {
        return std::to_string(place.segment) + "/" + std::to_string(place.offset);
    }
    std::string& touch(const char* what, const Position& place) {
        mutant_.text = std::string(what) + " at " + at(place);
        return segment(place.segment);
    }

    void flip(std::string& bytes, std::uint64_t from, std::uint64_t to) {
        const std::uint64_t byte = random_.from_to(from, to - 1);
        const int bit = static_cast<int>(random_.below(8));
        bytes[byte] = static_cast<char>(bytes[byte] ^ (1 << bit));
        mutant_.text += ", byte " + std::to_string(byte) + " bit " + std::to_string(bit);
    }
    void flip_in_segment() {
        const std::uint64_t id = any_segment();
        flip(touch("flip", {id, 0}), 0, kSmallest);
    }
    void flip_in_segment_header() {
        const std::uint64_t id = any_segment();
        flip(touch("flip in segment header", {id, 0}), 0, 64);
    }
    void flip_in_header() {
        if (const Original* r = any_record())
            flip(touch("flip in header", r->at), r->at.offset, r->at.offset + 64);
    }
    void flip_in_record() {
        if (const Original* r = any_record())
            flip(touch("flip in record", r->at), r->at.offset, r->end());
    }
    std::uint64_t end_of(std::uint64_t id) const {
        std::uint64_t end = format::kSegmentDataOffset;
        for (const Original& r : image_.originals) {
            if (r.at.segment == id) end = r.end();
        }
        return end;
    }
    void flip_after_records() {
        const std::uint64_t id = random_.one_in(2) ? image_.last_segment : any_segment();
        const std::uint64_t end = end_of(id);
        if (end == kSmallest) return;
        const std::uint64_t to = random_.one_in(2) ? std::min(end + 64, kSmallest) : kSmallest;
        flip(touch("flip after the records", {id, end}), end, to);
    }
    void zero_commit_word() {
        if (const Original* r = any_record())
            touch("zero commit word", r->at).replace(r->at.offset, 4, 4, '\0');
    }
    void zero_header() {
        if (const Original* r = any_record())
            touch("zero header", r->at).replace(r->at.offset, 64, 64, '\0');
    }
    void zero_record() {
        if (const Original* r = any_record()) {
            const std::uint64_t n = r->end() - r->at.offset;
            touch("zero record", r->at).replace(r->at.offset, n, n, '\0');
        }
    }
    void zero_page() {
        const Position page{any_segment(), 4096 * random_.below(2)};
        touch("zero page", page).replace(page.offset, 4096, 4096, '\0');
    }
    void zero_tail() {
        if (const Original* r = any_record()) {
            const std::uint64_t n = kSmallest - r->at.offset;
            touch("zero tail", r->at).replace(r->at.offset, n, n, '\0');
        }
    }
    // A header for any place in any segment of the image.
    std::string any_header() {
        const std::uint64_t offset = 64 * random_.from_to(1, kSmallest / 64 - 1);
        if (const Original* r = any_record(); r != nullptr && !random_.one_in(3)) {
            mutant_.text += " from " + at(r->at);
            return image_.files.at(segment_name(r->at.segment)).substr(r->at.offset, 64);
        }
        const std::uint64_t id = any_segment();
        mutant_.text += " from " + at({id, offset});
        return image_.files.at(segment_name(id)).substr(offset, 64);
    }
    void copy_header_over() {
        if (const Original* r = any_record())
            touch("copy a header", r->at).replace(r->at.offset, 64, any_header());
    }
    void copy_record_over() {
        const Original* from = any_record();
        if (from == nullptr) return;
        const Original* to = any_record();
        const std::uint64_t n = std::min(from->end() - from->at.offset, kSmallest - to->at.offset);
        std::string& bytes = touch("copy a record", to->at);
        mutant_.text += " from " + at(from->at);
        bytes.replace(to->at.offset, n,
                      image_.files.at(segment_name(from->at.segment)).substr(from->at.offset, n));
    }
    void copy_after_end() {
        const std::uint64_t id = random_.one_in(2) ? image_.last_segment : any_segment();
        const std::uint64_t end = end_of(id);
        if (end + 64 > kSmallest) return;
        const std::uint64_t offset =
            random_.one_in(2) ? end : end + 64 * random_.below((kSmallest - end) / 64);
        touch("copy a header", {id, offset}).replace(offset, 64, any_header());
    }
    void garbage() {
        const Position place{any_segment(), 64 * random_.below(kSmallest / 64)};
        const std::uint64_t n =
            std::min<std::uint64_t>(64 * random_.from_to(1, 8), kSmallest - place.offset);
        std::string& bytes = touch("garbage", place);
        for (std::uint64_t i = 0; i < n; ++i)
            bytes[place.offset + i] = static_cast<char>(random_.below(256));
        mutant_.text += ", " + std::to_string(n) + " bytes";
    }

    void flip_checkpoint() {
        mutant_.marks_only = true;
        mutant_.text = "flip in index.meta";
        std::string& bytes = mutant_.files.at("index.meta");
        flip(bytes, 0, bytes.size());
    }
    template <class T>
    void set_control(const char* name, std::size_t offset, T value) {
        mutant_.marks_only = true;
        mutant_.text = std::string(name) + "=" + std::to_string(value);
        mutant_.files.at("control.meta")
            .replace(offset, sizeof value, reinterpret_cast<const char*>(&value), sizeof value);
    }
    void set_write_offset() {
        const std::uint64_t value = random_.one_in(4)   ? random_.bits()
                                    : random_.one_in(4) ? random_.below(2 * kSmallest)
                                                        : 64 * random_.below(kSmallest / 64 + 1);
        set_control("write_offset", offsetof(format::ControlBlock, write_offset), value);
    }
    void set_current() {
        const auto value = static_cast<std::uint32_t>(
            random_.one_in(4) ? random_.bits() : random_.below(image_.last_segment + 3));
        set_control("current_segment", offsetof(format::ControlBlock, current_segment), value);
    }
    void flip_end_mark() {
        mutant_.marks_only = true;
        const std::uint64_t id = any_segment();
        flip(touch("flip in end mark", {id, 0}), offsetof(format::SegmentHeader, end_offset), 64);
    }
    void toggle_sealed() {
        const std::uint64_t id = any_segment();
        std::string& bytes = touch("toggle SEALED", {id, 0});
        bytes[offsetof(format::SegmentHeader, flags)] ^= 1;
    }
    void flip_index() {
        std::vector<std::string> names;
        for (const auto& [name, bytes] : image_.files) {
            if (name.ends_with(".idx")) names.push_back(name);
        }
        if (names.empty()) return;
        mutant_.marks_only = true;
        mutant_.text = "flip in " + random_.of(names);
        std::string& bytes = mutant_.files.at(mutant_.text.substr(8));
        flip(bytes, 0, bytes.size());
    }

    const Image& image_;
    Random& random_;
    Mutant mutant_;
};

}  // namespace mutants
