#include "cli/supply.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "base/nearest.h"
#include "base/result.h"
#include "cli/config_file.h"
#include "io/json.h"

namespace cadre::cli {
namespace {

// "--max-num-seqs" of "max_num_seqs", "max-num-seqs" and "MAX_NUM_SEQS".
std::string flag_name(std::string_view key) {
  std::string name = "--";
  for (const char c : key) name += c == '_' ? '-' : c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return name;
}

std::optional<bool> truth(std::string word) {
  for (char& c : word) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  if (word == "true" || word == "1" || word == "yes" || word == "on") return true;
  if (word == "false" || word == "0" || word == "no" || word == "off") return false;
  return std::nullopt;
}

Status supply_one(const std::string& name, std::vector<std::string> values, const std::string& origin, Flags* flags) {
  if (flags->kind(name) == Flags::Kind::kToggle) {
    const std::optional<bool> value = values.size() == 1 ? truth(values.front()) : std::nullopt;
    if (!value) return error(Code::kInvalidArgument, origin, ": ", name, " is on or off, want true or false");
    values = {*value ? "true" : "false"};
  }
  flags->supply(name, std::move(values), origin);
  return {};
}

// Several values in one variable.
Result<std::vector<std::string>> split(const std::string& text, const std::string& variable) {
  std::vector<std::string> words;
  const std::size_t first = text.find_first_not_of(" \t\n");
  if (first != std::string::npos && text[first] == '[') {
    JsonParseOptions options;
    options.code = Code::kInvalidArgument;
    CADRE_ASSIGN(const Json list, Json::parse(text, variable, options));
    for (const Json& item : list.items()) {
      if (!item.is_string() && !item.is_object()) {
        return error(Code::kInvalidArgument, variable, ": the list has ", describe(item), ", want strings");
      }
      words.push_back(item.is_object() ? item.dump() : *item.as_string(variable));
    }
    return words;
  }
  if (first != std::string::npos && text[first] == '{') return std::vector<std::string>{text};
  std::istringstream in(text);
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

Status supply_environment(const Environment& environment, const std::string& prefix, Flags* flags,
                          std::vector<std::string>* notes) {
  for (const auto& [variable, value] : environment.variables) {
    if (!variable.starts_with(prefix) || value.empty()) continue;
    const std::string name = flag_name(std::string_view(variable).substr(prefix.size()));
    const std::optional<Flags::Kind> kind = flags->kind(name);
    if (!kind) {
      notes->push_back(variable + " is not looked at, no flag is called " + name + nearest_hint(name, flags->names()));
      continue;
    }
    // Kubernetes sets such variables in every pod for a service that is called like the prefix.
    if (name == "--port" && value.starts_with("tcp://")) {
      return error(
          Code::kInvalidArgument, variable, " is '", value,
          "', as Kubernetes sets it for a service of that name; give --port, call the service otherwise or set "
          "enableServiceLinks: false");
    }
    std::vector<std::string> values = {value};
    if (kind == Flags::Kind::kValues) {
      CADRE_ASSIGN(values, split(value, variable));
      if (values.empty()) continue;
    }
    CADRE_TRY(supply_one(name, std::move(values), variable, flags));
  }
  // Every command's variable for this flag, here between the command's own and the file.
  if (!environment.backend.empty() && flags->kind("--backend")) {
    flags->supply("--backend", {environment.backend}, "CADRE_MOE_BACKEND");
  }
  return {};
}

Status supply_config(const std::string& path, Flags* flags) {
  Result<std::vector<ConfigEntry>> entries = read_config_file(path);
  if (!entries.ok()) {
    const bool there = entries.status().code() == Code::kInvalidFile;
    return there ? std::move(entries).status() : std::move(entries).status().with_context("--config");
  }
  const std::string file = std::filesystem::path(path).filename().string();
  std::vector<std::pair<std::string, std::string>> seen;  // flag and key: max-model-len and max_model_len are one
  for (ConfigEntry& entry : *entries) {
    const std::string name = flag_name(entry.key), origin = file + ":" + std::to_string(entry.line);
    const std::optional<Flags::Kind> kind = flags->kind(name);
    if (!kind || name == "--config") {
      std::vector<std::string> known = flags->names();
      for (std::string& flag : known) flag.erase(0, 2);
      return error(Code::kInvalidFile, origin, ": unknown key '", entry.key, "'", nearest_hint(name.substr(2), known));
    }
    const auto twice = std::find_if(seen.begin(), seen.end(), [&](const auto& other) { return other.first == name; });
    if (twice != seen.end()) {
      return error(Code::kInvalidFile, origin, ": '", entry.key, "' is the key '", twice->second, "' again");
    }
    seen.emplace_back(name, entry.key);
    if (entry.is_list && kind != Flags::Kind::kValues) {
      return error(Code::kInvalidFile, origin, ": '", entry.key, "' has a list, want one value");
    }
    if (entry.values.empty()) continue;  // an empty list
    CADRE_TRY(supply_one(name, std::move(entry.values), origin, flags));
  }
  return {};
}

}  // namespace

Status supply_flags(const Environment& environment, const std::string& prefix, Flags* flags,
                    std::vector<std::string>* notes) {
  CADRE_TRY(supply_environment(environment, prefix, flags, notes));
  if (!flags->kind("--config")) return {};
  if (const std::optional<std::string> path = flags->text("--config")) {
    if (path->empty()) return error(Code::kInvalidArgument, "--config is empty, want a file's name");
    return supply_config(*path, flags);
  }
  return {};
}

}  // namespace cadre::cli
