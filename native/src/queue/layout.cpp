#include "tapewire/queue/layout.hpp"

#include <algorithm>
#include <cstdio>

#include "tapewire/error.hpp"
#include "tapewire/file.hpp"
#include "tapewire/name.hpp"

namespace tapewire::queue {

namespace {

constexpr std::string_view kMetaSuffix = ".meta";

bool ends_with(std::string_view text, std::string_view end) {
    return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

bool is_damaged_copy(std::string_view name) { return name.find(".q.damaged") == 9; }

std::string numbered(const std::string& root, std::uint32_t id, const char* suffix) {
    char name[24];
    std::snprintf(name, sizeof name, "/%09u%s", id, suffix);
    return root + name;
}

}  // namespace

std::string Layout::segment(std::uint32_t id) const { return numbered(root, id, ".q"); }
std::string Layout::index(std::uint32_t id) const { return numbered(root, id, ".idx"); }
std::string Layout::reader_meta(std::string_view name) const {
    return readers() + "/" + std::string(name) + std::string(kMetaSuffix);
}

std::vector<std::uint32_t> Layout::numbers_of(std::string_view suffix) const {
    std::vector<std::uint32_t> ids;
    for (const std::string& name : list_directory(root)) {
        if (name.size() != 9 + suffix.size() || !ends_with(name, suffix)) continue;
        std::uint32_t id = 0;
        bool digits = true;
        for (std::size_t i = 0; i < 9; ++i) {
            digits = digits && name[i] >= '0' && name[i] <= '9';
            id = id * 10 + static_cast<std::uint32_t>(name[i] - '0');
        }
        if (digits) ids.push_back(id);
    }
    std::sort(ids.begin(), ids.end());
    return ids;
}

std::vector<std::uint32_t> Layout::segments() const { return numbers_of(".q"); }
std::vector<std::uint32_t> Layout::indexes() const { return numbers_of(".idx"); }

std::string Layout::free_damaged_name(std::uint32_t id) const {
    std::string name = damaged_copy(id);
    for (int n = 2; file_exists(name); ++n) name = damaged_copy(id) + "." + std::to_string(n);
    return name;
}

std::vector<std::string> Layout::temporary_files() const {
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(root)) {
        // Only our own: other programs may prepare files in this directory.
        if (name == "control.meta.tmp" || ends_with(name, ".q.tmp") ||
            ends_with(name, ".idx.tmp") || (ends_with(name, ".tmp") && is_damaged_copy(name))) {
            paths.push_back(root + "/" + name);
        }
    }
    return paths;
}

std::vector<std::string> Layout::damaged_copies() const {
    std::vector<std::string> paths;
    for (const std::string& name : list_directory(root)) {
        if (is_damaged_copy(name) && !ends_with(name, ".tmp")) paths.push_back(root + "/" + name);
    }
    std::sort(paths.begin(), paths.end());
    return paths;
}

std::vector<std::string> Layout::reader_names() const {
    std::vector<std::string> names;
    if (!is_directory(readers())) return names;
    for (const std::string& file : list_directory(readers())) {
        if (!ends_with(file, kMetaSuffix)) continue;
        const std::string name = file.substr(0, file.size() - kMetaSuffix.size());
        if (is_name(name)) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

void check_reader_name(std::string_view name) {
    if (is_name(name)) return;
    throw Error(Errc::invalid_name, "not a valid reader name: name='" + std::string(name) + "'", {},
                -1, std::string(kNameRule));
}

}  // namespace tapewire::queue
