#include "server/access/names.h"

#include <algorithm>

namespace cadre::server {
namespace {

// Not std::isalnum, which asks the locale.
bool is_name_char(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
}

}  // namespace

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && name[0] != '.' &&
         std::all_of(name.begin(), name.end(), is_name_char);
}

bool is_pattern(std::string_view pattern) {
  return !pattern.empty() && pattern.size() <= kMaxName &&
         std::all_of(pattern.begin(), pattern.end(), [](char c) { return is_name_char(c) || c == '*' || c == '?'; });
}

bool matches(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0;
  // Where to go on when what follows the last star fails: that star takes one character more.
  std::size_t star = pattern.npos, taken = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      taken = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != pattern.npos) {
      p = star + 1;
      n = ++taken;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == pattern.npos;
}

std::string shown(std::string_view text) {
  constexpr std::size_t kMost = 200;
  std::string out(text.substr(0, kMost));
  for (char& c : out) {
    // Bytes above 127 may be cut inside a character or be no UTF-8 at all.
    if (const auto byte = static_cast<unsigned char>(c); byte < 0x20 || byte >= 0x7f) c = '?';
  }
  if (text.size() > kMost) out += "...";
  return out;
}

std::string without_paths(std::string_view message) {
  std::string out;
  for (std::size_t i = 0; i < message.size();) {
    const bool begins = i == 0 || std::string_view(" '\"`(=:,;[").find(message[i - 1]) != std::string_view::npos;
    if (!begins || message[i] != '/' || i + 1 == message.size() || message[i + 1] == ' ') {
      out += message[i++];
      continue;
    }
    // In quotes a path may hold spaces; elsewhere it ends at one.
    const char before = i == 0 ? ' ' : message[i - 1];
    const bool quoted = before == '\'' || before == '"' || before == '`';
    const std::size_t end = quoted ? message.find(before, i) : message.find_first_of(" '\"`),;]:", i);
    out += "(path)";
    i = std::min(end, message.size());
  }
  return out;
}

}  // namespace cadre::server
