#include "cli/values.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>
#include <numeric>
#include <system_error>

#include "base/nearest.h"
#include "base/result.h"

namespace cadre::cli {
namespace {

template <class T>
bool parse_number(std::string_view text, T* value) {
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return failure == std::errc() && end == text.data() + text.size();
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\n')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\n')) text.remove_suffix(1);
  return text;
}

// Whether "option=..." starts here: a word of small letters and underscores, then an equals sign.
bool starts_option(std::string_view text) {
  const std::size_t end = text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_");
  return end != std::string_view::npos && end > 0 && text[end] == '=';
}

}  // namespace

Result<std::int64_t> parse_int(std::string_view flag, std::string_view text, std::int64_t min, std::int64_t max) {
  std::int64_t value = 0;
  if (parse_number(text, &value) && value >= min && value <= max) return value;
  return error(Code::kInvalidArgument, flag, " is '", text, "', want an integer from ", min, " to ", max);
}

Result<std::uint64_t> parse_seed(std::string_view flag, std::string_view text) {
  std::uint64_t value = 0;
  if (parse_number(text, &value)) return value;
  return error(Code::kInvalidArgument, flag, " is '", text, "', want an integer from 0 to 18446744073709551615");
}

Result<double> parse_real(std::string_view flag, std::string_view text) {
  double value = 0;
  if (parse_number(text, &value) && std::isfinite(value)) return value;
  return error(Code::kInvalidArgument, flag, " is '", text, "', want a number");
}

Result<std::vector<std::int32_t>> parse_ids(std::string_view flag, std::string_view text) {
  std::vector<std::int32_t> ids;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view item = trim(rest.substr(0, comma));
    std::int32_t id = 0;
    if (!parse_number(item, &id)) {
      return error(Code::kInvalidArgument, flag, ": '", item.substr(0, 40),
                   "' is not a token id, want integers with commas between, e.g. 1,2,3");
    }
    ids.push_back(id);
    if (comma == std::string_view::npos) return ids;
    rest.remove_prefix(comma + 1);
  }
}

Result<std::int64_t> parse_bytes(std::string_view flag, std::string_view text) {
  constexpr std::string_view kUnits = "KMGT";
  std::string_view number = text;
  double unit = 1;
  if (number.ends_with("iB")) number.remove_suffix(2);
  const bool named = number.size() < text.size();
  const std::size_t at = number.empty() ? std::string_view::npos : kUnits.find(number.back());
  if (at != std::string_view::npos) {
    number.remove_suffix(1);
    unit = std::pow(1024.0, static_cast<double>(at + 1));
  }
  double value = 0;
  // Petabytes: what an engine takes at most.
  if ((!named || unit > 1) && parse_number(number, &value) && value * unit >= 1 && value * unit <= 0x1p50) {
    return static_cast<std::int64_t>(value * unit);
  }
  return error(Code::kInvalidArgument, flag, " is '", text, "', want bytes, e.g. 512M or 4G");
}

Status want_folder(std::string_view flag, const std::string& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored) || std::filesystem::is_directory(path, ignored)) return {};
  return error(Code::kInvalidArgument, flag, ": '", path, "' is a file, want a folder");
}

Status check_out_file(std::string_view flag, const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    return error(Code::kInvalidArgument, flag, ": '", path, "' is a folder, want the name of a file");
  }
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (fs::is_directory(folder, ignored)) return {};
  return error(Code::kNotFound, flag, ": the folder '", folder.string(), "' is not there; make it first");
}

std::string folder_name(const std::string& path) {
  std::error_code ignored;
  std::filesystem::path folder = std::filesystem::absolute(path, ignored).lexically_normal();
  if (!folder.has_filename()) folder = folder.parent_path();
  return folder.has_filename() ? folder.filename().string() : path;
}

Result<AdapterSource> parse_adapter_dir(std::string_view flag, std::string_view text) {
  AdapterSource source;
  std::size_t comma = text.find(',');
  while (comma != std::string_view::npos && !starts_option(text.substr(comma + 1))) comma = text.find(',', comma + 1);
  source.dir = std::string(text.substr(0, comma));
  if (comma != std::string_view::npos) source.options = std::string(text.substr(comma + 1));
  if (source.dir.ends_with(',') || source.options.ends_with(',')) {
    return error(Code::kInvalidArgument, flag, " is '", text, "', which has an empty option, want DIR,option=value");
  }
  return source;
}

Status check_adapter_name(std::string_view flag, std::string_view name) {
  if (name.empty()) return error(Code::kInvalidArgument, flag, ": an adapter needs a name");
  if (name != "base" && name != "all") return {};
  return error(Code::kInvalidArgument, flag, ": an adapter cannot be named '", name, "', which means ",
               name == "base" ? "the model without an adapter" : "the base and every adapter", "; choose another name");
}

Result<AdapterSource> parse_adapter(std::string_view flag, std::string_view text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string_view::npos || equals == 0 || equals + 1 == text.size()) {
    return error(Code::kInvalidArgument, flag, " is '", text,
                 "', want NAME=DIR or NAME=DIR,option=value, e.g. poems=adapters/poems");
  }
  const std::string name(text.substr(0, equals));
  CADRE_TRY(check_adapter_name(flag, name));
  CADRE_ASSIGN(AdapterSource source, parse_adapter_dir(flag, text.substr(equals + 1)));
  CADRE_TRY(want_folder(flag, source.dir));
  source.name = name;
  return source;
}

Result<std::uint8_t> parse_targets(std::string_view flag, std::string_view text) {
  static constexpr std::pair<std::string_view, unsigned> kWords[] = {
      {"gate", kGate},  {"up", kUp},  {"down", kDown}, {"experts", kGate | kUp | kDown},
      {"attention", 0}, {"mamba", 0}, {"dense", 0}};
  unsigned bits = 0;
  std::string known;
  for (const auto& [word, meant] : kWords) known += (known.empty() ? "" : ", ") + std::string(word);
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = trim(text.substr(0, comma));
    const auto at = std::find_if(std::begin(kWords), std::end(kWords), [&](const auto& w) { return w.first == word; });
    if (at == std::end(kWords)) {
      return error(Code::kInvalidArgument, flag, " has '", word, "', want some of: ", known);
    }
    bits |= at->second;
    if (comma == std::string_view::npos) return static_cast<std::uint8_t>(bits);
    text.remove_prefix(comma + 1);
  }
}

Status parse_logit_bias(std::string_view flag, std::string_view text, std::map<std::int32_t, float>* bias) {
  const std::size_t equals = text.find('=');
  std::int32_t id = 0;
  double value = 0;
  if (equals == std::string_view::npos || !parse_number(text.substr(0, equals), &id) ||
      !parse_number(text.substr(equals + 1), &value) || !std::isfinite(value)) {
    return error(Code::kInvalidArgument, flag, " is '", text, "', want ID=BIAS, e.g. 42=-100");
  }
  (*bias)[id] = static_cast<float>(
      std::clamp(value, -double{std::numeric_limits<float>::max()}, double{std::numeric_limits<float>::max()}));
  return {};
}

std::string adapter_names(const std::vector<AdapterSource>& adapters) {
  std::string names = "base";
  for (const AdapterSource& adapter : adapters) names += ", " + adapter.name;
  return names;
}

Result<std::vector<std::string>> parse_use(const std::optional<std::string>& use,
                                           const std::vector<AdapterSource>& adapters) {
  if (!use) {
    if (adapters.empty()) return std::vector<std::string>{""};
    if (adapters.size() == 1) return std::vector<std::string>{adapters[0].name};
    return error(Code::kInvalidArgument, "several adapters are given and none is chosen, want --use with one of ",
                 adapter_names(adapters), ", or all");
  }
  const std::string& text = *use;
  if (text.empty()) {
    return error(Code::kInvalidArgument, "--use is empty, want one of ", adapter_names(adapters), ", or all");
  }
  if (text == "base") return std::vector<std::string>{""};
  if (text == "all") {
    std::vector<std::string> names = {""};
    for (const AdapterSource& adapter : adapters) names.push_back(adapter.name);
    return names;
  }
  std::vector<std::string> known = {"base", "all"};
  for (const AdapterSource& adapter : adapters) {
    if (adapter.name == text) return std::vector<std::string>{adapter.name};
    known.push_back(adapter.name);
  }
  return error(Code::kNotFound, "--use: no adapter is named '", text, "'", nearest_hint(text, known),
               " (known: ", adapter_names(adapters), ", or all); load it with --adapter ", text, "=DIR");
}

}  // namespace cadre::cli
