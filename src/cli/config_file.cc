#include "cli/config_file.h"

#include <yaml-cpp/yaml.h>

#include <charconv>
#include <cmath>
#include <exception>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "io/json.h"

namespace cadre::cli {
namespace {

constexpr std::size_t kMaxBytes = 1 << 20;
// Aliases let a small file stand for a large one, or hold itself.
constexpr int kMaxNodes = 100'000, kMaxDepth = 32;

// What a plain word means: YAML's core schema, which is JSON's and a few spellings more.
Json plain_value(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return nullptr;
  if (text == "true" || text == "True" || text == "TRUE") return true;
  if (text == "false" || text == "False" || text == "FALSE") return false;
  const char* end = text.data() + text.size();
  std::int64_t whole = 0;
  if (const auto [at, failure] = std::from_chars(text.data(), end, whole); failure == std::errc() && at == end) {
    return whole;
  }
  double number = 0;
  if (const auto [at, failure] = std::from_chars(text.data(), end, number);
      failure == std::errc() && at == end && std::isfinite(number)) {
    return number;
  }
  return text;
}

class Reader {
 public:
  explicit Reader(const std::string& source) : source_(source) {}

  Result<std::vector<ConfigEntry>> read(const YAML::Node& root) {
    std::vector<ConfigEntry> entries;
    if (!root.IsDefined() || root.IsNull()) return entries;
    if (!root.IsMap()) return error(Code::kInvalidFile, source_, ": want lines of the form key: value");
    std::map<std::string, int> seen;
    for (const auto& member : root) {
      const YAML::Node &key = member.first, &value = member.second;
      ConfigEntry entry;
      CADRE_ASSIGN(entry.key, key_text(key));
      entry.line = key.Mark().line + 1;
      if (const auto [at, is_new] = seen.emplace(entry.key, entry.line); !is_new) {
        return error(Code::kInvalidFile, where(key), ": '", entry.key, "' is given again, first in line ", at->second);
      }
      entry.is_list = value.IsSequence();
      if (entry.is_list) {
        for (const YAML::Node& item : value) {
          CADRE_ASSIGN(std::string text, value_text(item, entry.key));
          entry.values.push_back(std::move(text));
        }
      } else {
        CADRE_ASSIGN(std::string text, value_text(value, entry.key));
        entry.values.push_back(std::move(text));
      }
      entries.push_back(std::move(entry));
    }
    return entries;
  }

 private:
  std::string where(const YAML::Node& node) const {
    // Nodes behind an alias, and empty ones, may have no place.
    return node.Mark().line < 0 ? source_ : source_ + ":" + std::to_string(node.Mark().line + 1);
  }

  Result<std::string> key_text(const YAML::Node& key) const {
    if (key.IsScalar() && !key.Scalar().empty()) return key.Scalar();
    return error(Code::kInvalidFile, where(key), ": want a name before the colon");
  }

  Result<std::string> value_text(const YAML::Node& node, const std::string& key) {
    if (node.IsScalar()) return node.Scalar();
    if (node.IsMap()) {
      CADRE_ASSIGN(const Json value, json(node, 0));
      return value.dump();
    }
    return error(Code::kInvalidFile, where(node), ": '", key,
                 node.IsSequence() ? "' has a list inside of a list" : "' has no value");
  }

  Result<Json> json(const YAML::Node& node, int depth) {
    if (++nodes_ > kMaxNodes || depth > kMaxDepth) {
      return error(Code::kInvalidFile, where(node), ": more than ", kMaxNodes, " values or ", kMaxDepth,
                   " levels, aliases counted each time");
    }
    if (node.IsScalar()) return node.Tag() == "!" ? Json(node.Scalar()) : plain_value(node.Scalar());
    if (node.IsSequence()) {
      std::vector<Json> items;
      for (const YAML::Node& item : node) {
        CADRE_ASSIGN(Json value, json(item, depth + 1));
        items.push_back(std::move(value));
      }
      return Json::array(std::move(items));
    }
    if (!node.IsMap()) return Json();
    std::vector<Json::Member> members;
    std::map<std::string, bool> seen;
    for (const auto& member : node) {
      const YAML::Node &name = member.first, &item = member.second;
      CADRE_ASSIGN(std::string key, key_text(name));
      if (!seen.emplace(key, true).second) {
        return error(Code::kInvalidFile, where(name), ": '", key, "' is given twice");
      }
      CADRE_ASSIGN(Json value, json(item, depth + 1));
      members.emplace_back(std::move(key), std::move(value));
    }
    return Json::object(std::move(members));
  }

  const std::string& source_;
  int nodes_ = 0;
};

}  // namespace

Result<std::vector<ConfigEntry>> parse_config(std::string_view text, const std::string& source) {
  if (text.size() > kMaxBytes) {
    return error(Code::kInvalidFile, source, ": larger than ", kMaxBytes, " bytes; is it a configuration file?");
  }
  if (text.find('\0') != std::string_view::npos) return error(Code::kInvalidFile, source, ": not a text file");
  try {
    return Reader(source).read(YAML::Load(std::string(text)));
  } catch (const YAML::Exception& e) {
    return error(Code::kInvalidFile, source, e.mark.line < 0 ? "" : ":" + std::to_string(e.mark.line + 1),
                 ": not valid YAML: ", e.msg);
  } catch (const std::exception& e) {
    return error(Code::kInvalidFile, source, ": not valid YAML: ", e.what());
  }
}

Result<std::vector<ConfigEntry>> read_config_file(const std::string& path) {
  std::error_code failure;
  const auto kind = std::filesystem::status(path, failure).type();
  if (kind == std::filesystem::file_type::not_found) return error(Code::kNotFound, "there is no file '", path, "'");
  if (kind == std::filesystem::file_type::directory) {
    return error(Code::kInvalidArgument, "'", path, "' is a folder, want a file");
  }
  std::ifstream file(path, std::ios::binary);
  std::string text(kMaxBytes + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad()) return error(Code::kNotFound, "'", path, "' cannot be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  return parse_config(text, path);
}

}  // namespace cadre::cli
