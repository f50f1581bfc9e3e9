#include "model/config_overrides.h"

#include "base/result.h"

namespace cadre {
namespace {

Json merge(const Json& config, const Json& overrides, bool nested) {
  Json out = config;
  for (const auto& [key, value] : overrides.members()) {
    const Json* old = config.find(key);
    const bool inside = old != nullptr && old->is_object() && value.is_object() && (nested || is_nested_config(key));
    out = out.with(key, inside ? merge(*old, value, true) : value);
  }
  return out;
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 200;
  std::string text = value.dump({.non_finite = JsonDumpOptions::NonFinite::kPython});
  if (text.size() <= kLongest) return text;
  std::size_t cut = kLongest;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) --cut;  // not inside a character
  return text.substr(0, cut) + "...";
}

void add_changes(const Json& config, const Json& overrides, bool nested, const std::string& prefix, std::string& out) {
  for (const auto& [key, value] : overrides.members()) {
    const Json* old = config.find(key);
    if (old != nullptr && old->is_object() && value.is_object() && (nested || is_nested_config(key))) {
      add_changes(*old, value, true, prefix + key + ".", out);
      continue;
    }
    out += out.empty() ? "" : ", ";
    out += prefix + key + " = " + shown(value) + " (was " + (old == nullptr ? "absent" : shown(*old)) + ")";
  }
}

}  // namespace

bool is_nested_config(std::string_view key) { return key.ends_with("_config") && key != "quantization_config"; }

Result<Json> parse_overrides(const std::string& text) {
  if (text.empty()) return Json::object({});
  JsonParseOptions options;
  options.code = Code::kInvalidArgument;
  options.max_bytes = 1u << 20;
  options.duplicates = JsonParseOptions::Duplicates::kRefuse;
  Result<Json> json = Json::parse(text, "--hf-overrides", options);
  if (!json.ok()) return error(Code::kInvalidArgument, json.status().message());
  if (!json->is_object()) {
    return error(Code::kInvalidArgument, "--hf-overrides is ", describe(*json),
                 ", want a JSON object of config.json's fields, e.g. {\"sliding_window\": null}");
  }
  return json;
}

Json apply_overrides(const Json& config, const Json& overrides) { return merge(config, overrides, false); }

std::string overrides_note(const Json& config, const Json& overrides) {
  std::string changes;
  add_changes(config, overrides, false, "", changes);
  return "config override: " + changes;
}

}  // namespace cadre
