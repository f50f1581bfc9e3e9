#include <cadre/selection.h>

#include <utility>

#include "base/result.h"

namespace cadre {
namespace {

std::string_view trim(std::string_view s) {
  const auto begin = s.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return s.substr(begin, s.find_last_not_of(" \t") - begin + 1);
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (true) {
    const auto comma = text.find(',');
    if (const auto name = trim(text.substr(0, comma)); !name.empty()) names.emplace_back(name);
    if (comma == std::string_view::npos) return names;
    text.remove_prefix(comma + 1);
  }
}

constexpr std::pair<std::string_view, PolicyKind> kWords[] = {
    {"auto", PolicyKind::kAuto},
    {"require", PolicyKind::kRequire},
    {"prefer", PolicyKind::kPrefer},
    {"exclude", PolicyKind::kExclude},
};

}  // namespace

Result<Policy> parse_policy(std::string_view text, std::string origin) {
  text = trim(text);
  Policy policy;
  policy.origin = std::move(origin);
  policy.kind = PolicyKind::kRequire;  // a bare name
  std::string_view rest = text;
  for (const auto& [word, kind] : kWords) {
    if (text.starts_with(word) && (text.size() == word.size() || text[word.size()] == ' ' || text[word.size()] == ':' ||
                                   text[word.size()] == '=')) {
      policy.kind = kind;
      rest = text.substr(std::min(text.size(), word.size() + 1));
      break;
    }
  }
  policy.names = split_names(rest);
  const bool wants_name = policy.kind != PolicyKind::kAuto;
  const bool several = policy.names.size() > 1 && policy.kind != PolicyKind::kExclude;
  if (text.empty() || (wants_name && policy.names.empty()) || (!wants_name && !policy.names.empty()) || several) {
    return error(Code::kInvalidArgument, policy.origin, ": got backend policy '", text,
                 "', want 'auto', a backend's name, 'require NAME', 'prefer NAME' or 'exclude NAME[,NAME]'");
  }
  return policy;
}

std::string to_string(const Policy& policy) {
  std::string text;
  for (const auto& [word, kind] : kWords) {
    if (kind == policy.kind) text = word;
  }
  for (std::size_t i = 0; i < policy.names.size(); ++i) text += (i == 0 ? " " : ",") + policy.names[i];
  return text;
}

}  // namespace cadre
