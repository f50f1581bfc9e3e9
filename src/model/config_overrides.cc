#include "model/config_overrides.h"

#include "base/result.h"

namespace cadre {
namespace {

// Whether an override of this field, whose value in the config is `old`, sets the fields inside it one by one.
bool sets_inside(std::string_view key, const Json* old, const Json& value, bool nested) {
  return old != nullptr && old->is_object() && value.is_object() && (nested || is_nested_config(key));
}

Json merge(const Json& config, const Json& overrides, bool nested) {
  Json out = config;
  for (const auto& [key, value] : overrides.members()) {
    const Json* old = config.find(key);
    out = out.with(key, sets_inside(key, old, value, nested) ? merge(*old, value, true) : value);
  }
  return out;
}

std::string text_of(const Json& value) { return value.dump({.non_finite = JsonDumpOptions::NonFinite::kPython}); }

Json set_inside(const Json& config, const Json& overrides, bool replaced) {
  std::vector<Json::Member> out;
  for (const auto& [key, value] : overrides.members()) {
    const Json* old = config.find(key);
    if (old == nullptr) {
      out.emplace_back(key, value);
      continue;
    }
    if (value.is_null() || (replaced && text_of(value) == text_of(*old))) continue;
    if (!old->is_object() || !value.is_object()) {
      out.emplace_back(key, value);
      continue;
    }
    Json inside = set_inside(*old, value, replaced || !is_nested_config(key));
    if (!inside.members().empty()) out.emplace_back(key, std::move(inside));
  }
  return Json::object(std::move(out));
}

std::string shown(const Json& value) {
  constexpr std::size_t kLongest = 200;
  std::string text = text_of(value);
  if (text.size() <= kLongest) return text;
  std::size_t cut = kLongest;
  while (cut > 0 && (static_cast<unsigned char>(text[cut]) & 0xc0u) == 0x80u) --cut;  // not inside a character
  return text.substr(0, cut) + "...";
}

void add_changes(const Json& config, const Json& overrides, bool nested, const std::string& prefix, std::string& out) {
  for (const auto& [key, value] : overrides.members()) {
    const Json* old = config.find(key);
    if (sets_inside(key, old, value, nested)) {
      add_changes(*old, value, true, prefix + key + ".", out);
      continue;
    }
    out += out.empty() ? "" : ", ";
    out += prefix + key + " = " + shown(value) + " (was " + (old == nullptr ? "absent" : shown(*old)) + ")";
  }
}

// Each field costs a copy of the object that it goes into.
Status check_counts(const Json& overrides) {
  constexpr std::size_t kMost = 256;
  if (overrides.members().size() > kMost) {
    return error(Code::kInvalidArgument, "--hf-overrides has ", overrides.members().size(),
                 " fields in one object, want at most ", kMost, "; change config.json instead");
  }
  for (const auto& [key, value] : overrides.members()) CADRE_TRY(check_counts(value));
  return {};
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
  CADRE_TRY(check_counts(*json));
  return json;
}

Json apply_overrides(const Json& config, const Json& overrides) { return merge(config, overrides, false); }

Json set_fields(const Json& config, const Json& overrides) { return set_inside(config, overrides, false); }

std::string overrides_note(const Json& config, const Json& overrides) {
  std::string changes;
  add_changes(config, overrides, false, "", changes);
  return "config override: " + changes;
}

}  // namespace cadre
