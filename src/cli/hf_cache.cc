#include "cli/hf_cache.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <vector>

#include "base/result.h"

namespace cadre::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

// A name's part: no "..", so it cannot lead out of the cache.
bool is_part(std::string_view text, std::string_view also) {
  if (text.empty() || text.size() > 200 || text.front() == '.' || text.front() == '-') return false;
  if (text.find("..") != std::string_view::npos) return false;
  return std::all_of(text.begin(), text.end(), [&](char c) {
    return kLetters.find(c) != std::string_view::npos || also.find(c) != std::string_view::npos;
  });
}

bool is_folder(const fs::path& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// The commit that a branch or tag stands for; empty where there is no such file or it holds something else.
std::string read_ref(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return "";
  std::ifstream file(path, std::ios::binary);
  char text[128] = {};
  file.read(text, sizeof text);
  std::string_view commit(text, static_cast<std::size_t>(file.gcount()));
  while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) {
    commit.remove_suffix(1);
  }
  return is_part(commit, "") ? std::string(commit) : "";
}

std::vector<std::string> snapshots(const fs::path& model) {
  constexpr std::size_t kMax = 10'000;
  std::vector<std::string> names;
  std::error_code failure;
  for (fs::directory_iterator at(model / "snapshots", failure), end; !failure && at != end && names.size() < kMax;
       at.increment(failure)) {
    if (is_folder(at->path())) names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

// "org/name@a, org/name@b", the first few.
std::string choices(const std::string& name, const std::vector<std::string>& commits) {
  constexpr std::size_t kShown = 4, kDigits = 12;
  std::string text;
  for (std::size_t i = 0; i < commits.size() && i < kShown; ++i) {
    text += (i > 0 ? ", " : "") + name + "@" + commits[i].substr(0, kDigits);
  }
  return commits.size() > kShown ? text + ", ..." : text;
}

}  // namespace

std::string hf_cache_dir(const std::map<std::string, std::string>& variables) {
  static constexpr std::pair<const char*, const char*> kPlaces[] = {{"HF_HUB_CACHE", ""},
                                                                    {"HUGGINGFACE_HUB_CACHE", ""},
                                                                    {"HF_HOME", "/hub"},
                                                                    {"XDG_CACHE_HOME", "/huggingface/hub"},
                                                                    {"HOME", "/.cache/huggingface/hub"}};
  for (const auto& [variable, below] : kPlaces) {
    const auto at = variables.find(variable);
    if (at == variables.end() || at->second.empty()) continue;
    std::string dir = at->second;
    if (const auto home = variables.find("HOME"); dir.starts_with("~/") && home != variables.end()) {
      dir = home->second + dir.substr(1);
    }
    return dir + below;
  }
  return "";
}

std::string without_revision(const std::string& hub_name) { return hub_name.substr(0, hub_name.find('@')); }

bool is_hub_name(const std::string& text) {
  const std::string name = without_revision(text);
  const std::size_t slash = name.find('/');
  if (slash == std::string::npos || !is_part(name.substr(0, slash), "-_.") || !is_part(name.substr(slash + 1), "-_.")) {
    return false;
  }
  return name.size() == text.size() || is_part(text.substr(name.size() + 1), "-_./");
}

Result<std::string> find_model(const std::string& flag, const std::string& text, const std::string& cache_dir) {
  std::error_code ignored;
  if (fs::exists(text, ignored) || !is_hub_name(text)) return text;
  const std::string name = without_revision(text);
  const std::string revision = name.size() == text.size() ? "main" : text.substr(name.size() + 1);
  const std::string fetch = "run: hf download " + name + (name.size() == text.size() ? "" : " --revision " + revision);
  if (cache_dir.empty()) {
    return error(Code::kNotFound, flag, ": there is no folder '", text,
                 "', and no Hugging Face cache to look in: set HF_HUB_CACHE, HF_HOME or HOME");
  }
  std::string folder = "models--" + name;
  folder.replace(folder.find('/'), 1, "--");
  const fs::path model = fs::path(cache_dir) / folder;
  if (!is_folder(model)) {
    return error(Code::kNotFound, flag, ": there is no folder '", text, "', and the Hugging Face cache '", cache_dir,
                 "' has no model of this name; ", fetch);
  }
  const std::vector<std::string> commits = snapshots(model);
  const std::string commit = read_ref(model / "refs" / revision);
  if (!commit.empty() && std::binary_search(commits.begin(), commits.end(), commit)) {
    return (model / "snapshots" / commit).string();
  }
  std::vector<std::string> alike;
  constexpr std::size_t kLeastDigits = 4;  // of a shortened commit
  for (const std::string& known : commits) {
    if (known == revision) return (model / "snapshots" / known).string();
    if (revision.size() >= kLeastDigits && known.starts_with(revision)) alike.push_back(known);
  }
  if (alike.size() == 1) return (model / "snapshots" / alike.front()).string();
  if (alike.size() > 1) {
    return error(Code::kInvalidArgument, flag, ": '", text, "' is the beginning of ", alike.size(),
                 " commits, want more of it");
  }
  if (commits.empty()) {
    return error(Code::kNotFound, flag, ": '", model.string(), "' holds no snapshot of ", name, "; ", fetch);
  }
  return error(Code::kNotFound, flag, ": the Hugging Face cache has ", name, " but not its revision '", revision,
               "'; choose ", choices(name, commits), ", or ", fetch);
}

}  // namespace cadre::cli
