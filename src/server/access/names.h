// Names of tenants and adapters, and the patterns that match them.
#pragma once

#include <string>
#include <string_view>

namespace cadre::server {

inline constexpr std::size_t kMaxName = 128;

// 1 to kMaxName of A-Z a-z 0-9 . _ -, not beginning with a dot. Such a name is safe as a folder's name, in a log line,
// as a label, and in a list with commas.
bool is_name(std::string_view name);
// The same characters and * and ?.
bool is_pattern(std::string_view pattern);
// `*` stands for any characters or none, `?` for one. Takes at most |pattern| * |name| steps.
bool matches(std::string_view pattern, std::string_view name);
// Text of a client as a message can show it: control characters replaced, cut at 200.
std::string shown(std::string_view text);
// A message without the absolute paths in it, for whoever is not the operator.
std::string without_paths(std::string_view message);

}  // namespace cadre::server
