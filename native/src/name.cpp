#include "tapewire/name.hpp"

#include <algorithm>

namespace tapewire {

namespace {

bool is_name_char(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
}

}  // namespace

bool is_name(std::string_view name) noexcept {
    return !name.empty() && name.size() <= 128 && name[0] != '.' &&
           std::all_of(name.begin(), name.end(), is_name_char);
}

}  // namespace tapewire
