// Where a model's folder keeps its chat template and special tokens.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/result.h"
#include "text/chat_template/chat_template.h"

namespace cadre {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr std::uintmax_t kMaxTemplateFile = 4u << 20;
constexpr std::uintmax_t kMaxConfigFile = 64u << 20;  // tokenizer_config.json repeats the added tokens
constexpr int kMaxJsonDepth = 64;

bool is_file(const fs::path& path) {
  std::error_code ec;
  return fs::is_regular_file(path, ec);
}

Result<std::string> read_text(const fs::path& path, std::uintmax_t limit) {
  std::error_code ec;
  const std::uintmax_t size = fs::file_size(path, ec);
  if (ec) return error(Code::kNotFound, path.string(), ": ", ec.message());
  if (size > limit) {
    return error(Code::kLimitExceeded, path.string(), " has ", size, " bytes, the limit is ", limit);
  }
  std::ifstream in(path, std::ios::binary);
  std::string text(size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(size));
  if (!in) return error(Code::kInvalidFile, path.string(), " cannot be read");
  return text;
}

Result<Json> read_json(const fs::path& path) {
  CADRE_ASSIGN(const std::string text, read_text(path, kMaxConfigFile));
  bool too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxJsonDepth;
    return !too_deep;
  };
  try {
    Json json = Json::parse(text, watch, /*allow_exceptions=*/false);
    if (too_deep) return error(Code::kLimitExceeded, path.string(), " nests deeper than ", kMaxJsonDepth, " levels");
    if (!json.is_object()) return error(Code::kInvalidFile, path.string(), " is not a JSON object");
    return json;
  } catch (const std::exception& e) {
    return error(Code::kInvalidFile, path.string(), ": ", e.what());
  }
}

const std::string* string_in(const Json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get_ptr<const std::string*>() : nullptr;
}

// `chat_template` as a list of {name, template}: the one for tools where there are tools, else the default.
Result<std::optional<ChatTemplateFile>> pick_named(const Json& list, const std::string& path, bool with_tools) {
  const std::string* fallback = nullptr;
  const std::string* tool_use = nullptr;
  for (const Json& entry : list) {
    const std::string* name = entry.is_object() ? string_in(entry, "name") : nullptr;
    const std::string* source = entry.is_object() ? string_in(entry, "template") : nullptr;
    if (name == nullptr || source == nullptr) {
      return error(Code::kInvalidFile, path, ": an entry of 'chat_template' is not {\"name\": ..., \"template\": ...}");
    }
    if (*name == "default") fallback = source;
    if (*name == "tool_use") tool_use = source;
  }
  const std::string* chosen = with_tools && tool_use != nullptr ? tool_use : fallback;
  if (chosen == nullptr) {
    return error(Code::kInvalidFile, path, ": 'chat_template' has ", list.size(),
                 " templates and none named 'default'");
  }
  return std::optional(ChatTemplateFile{path, *chosen});
}

void add_tokens(const Json& config, std::vector<std::pair<std::string, std::string>>& out) {
  for (const auto& [key, value] : config.items()) {
    if (!key.ends_with("_token")) continue;
    const bool known = std::any_of(out.begin(), out.end(), [&](const auto& token) { return token.first == key; });
    const std::string* text = value.is_string()   ? value.get_ptr<const std::string*>()
                              : value.is_object() ? string_in(value, "content")
                                                  : nullptr;
    if (text != nullptr && !known) out.emplace_back(key, *text);
  }
}

}  // namespace

Result<std::optional<ChatTemplateFile>> find_chat_template(const std::string& folder, bool with_tools) {
  const fs::path root(folder);
  const fs::path tool_use = root / "additional_chat_templates" / "tool_use.jinja";
  const fs::path plain = root / "chat_template.jinja";
  if (with_tools && is_file(tool_use)) {
    CADRE_ASSIGN(std::string source, read_text(tool_use, kMaxTemplateFile));
    return std::optional(ChatTemplateFile{tool_use.string(), std::move(source)});
  }
  if (is_file(plain)) {
    CADRE_ASSIGN(std::string source, read_text(plain, kMaxTemplateFile));
    return std::optional(ChatTemplateFile{plain.string(), std::move(source)});
  }
  const fs::path config_path = root / "tokenizer_config.json";
  if (!is_file(config_path)) return std::optional<ChatTemplateFile>();
  CADRE_ASSIGN(const Json config, read_json(config_path));
  const auto it = config.find("chat_template");
  if (it == config.end() || it->is_null()) return std::optional<ChatTemplateFile>();
  if (it->is_string()) return std::optional(ChatTemplateFile{config_path.string(), it->get<std::string>()});
  if (it->is_array()) return pick_named(*it, config_path.string(), with_tools);
  return error(Code::kInvalidFile, config_path.string(), ": 'chat_template' is neither a string nor a list");
}

Result<std::vector<std::pair<std::string, std::string>>> read_special_tokens(const std::string& folder) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json"}) {
    const fs::path path = fs::path(folder) / name;
    if (!is_file(path)) continue;
    CADRE_ASSIGN(const Json config, read_json(path));
    add_tokens(config, out);
  }
  return out;
}

}  // namespace cadre
