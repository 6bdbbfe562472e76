// The rule for names that become files: of readers, venues, symbols and strategies.
#pragma once

#include <string_view>

namespace tapewire {

inline constexpr std::string_view kNameRule =
    "use 1 to 128 letters, digits, '.', '_' or '-', not starting with '.'";

bool is_name(std::string_view name) noexcept;

}  // namespace tapewire
