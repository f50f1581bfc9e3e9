// Suggestions for names that are not known.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace cadre {

// ", did you mean 'NAME'?" for the known name nearest to what was typed by edit distance; empty where none is near.
std::string nearest_hint(std::string_view typed, std::span<const std::string> known);

}  // namespace cadre
