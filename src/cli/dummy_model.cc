#include "cli/dummy_model.h"

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "cli/hf_cache.h"
#include "cli/output.h"
#include "cli/signals.h"
#include "cli/values.h"
#include "model/config.h"
#include "model/config_overrides.h"
#include "model/families/family.h"
#include "model/tensor_plan.h"
#include "synth/model_folder.h"
#include "synth/model_spec.h"

namespace cadre::cli {
namespace {

namespace fs = std::filesystem;

// What belongs to a tokenizer, of a model's folder.
constexpr const char* kTokenizerFiles[] = {"tokenizer.json", "tokenizer_config.json", "chat_template.jinja",
                                           "chat_template.json", "generation_config.json"};

class Folders {
 public:
  ~Folders() { drop(); }
  void add(fs::path path) { paths_.push_back(std::move(path)); }
  void drop() {
    std::error_code ignored;
    for (const fs::path& path : paths_) fs::remove_all(path, ignored);
    paths_.clear();
  }

 private:
  std::vector<fs::path> paths_;
};
Folders& folders() {
  static Folders all;
  return all;
}

// TMPDIR/cadre-dummy-XXXXXX/NAME, which is the model's name to whoever asks the server.
Result<fs::path> make_folder(const std::string& name) {
  std::error_code failure;
  const fs::path parent = fs::temp_directory_path(failure);
  if (failure) {
    const char* named = std::getenv("TMPDIR");
    return error(Code::kInvalidArgument, "--dummy-weights: TMPDIR, '", named != nullptr ? named : "/tmp",
                 "', is no folder: ", failure.message());
  }
  std::string pattern = (parent / "cadre-dummy-XXXXXX").string();
  if (::mkdtemp(pattern.data()) == nullptr) {
    return error(Code::kInvalidArgument, "--dummy-weights: cannot create folder '", pattern,
                 "': ", std::generic_category().message(errno), "; set TMPDIR to a folder that can be written");
  }
  folders().add(pattern);
  fs::path folder = fs::path(pattern) / name;
  remove_at_signal((folder / "config.json").string());
  for (const char* file : kTokenizerFiles) remove_at_signal((folder / file).string());
  remove_at_signal(folder.string());
  remove_at_signal(pattern);
  fs::create_directory(folder, failure);
  if (failure) {
    return error(Code::kInvalidArgument, "--dummy-weights: cannot create folder '", folder.string(),
                 "': ", failure.message());
  }
  return folder;
}

}  // namespace

void add_dummy(Flags& flags) {
  flags.toggle("--dummy-weights",
               "random weights, made in memory: --model may then be a folder without weights, a config.json, or a "
               "family's name such as qwen3_moe for a small model of it");
  flags.value("--layers", "N", "with --dummy-weights: the first N layers of the model; default: all");
}

Status read_dummy(const Flags& flags, const Environment& environment, EngineOptions* engine) {
  CADRE_ASSIGN(const std::string text, flags.required("--model"));
  std::optional<std::int64_t> layers;
  CADRE_TRY(flags.number("--layers", &layers, 1, kMaxLayers));
  engine->dummy_weights = true;
  std::error_code ignored;
  Json config;
  fs::path source;  // a folder
  std::string name = text;
  if (!fs::exists(text, ignored) && find_family(text).ok()) {
    CADRE_ASSIGN(config, small_family_config(text));
  } else {
    CADRE_ASSIGN(const std::string path, find_model("--model", text, hf_cache_dir(environment.variables)));
    const bool is_file = fs::exists(path, ignored) && !fs::is_directory(path, ignored);
    if (!is_file) source = path;
    const fs::path file = is_file ? fs::path(path) : source / "config.json";
    if (!fs::exists(path, ignored)) {
      std::string known;
      for (const Family& family : families()) known += (known.empty() ? "" : ", ") + std::string(family.model_type);
      return error(Code::kNotFound, "--model: '", text, "' is no folder, no config file and no family; families are ",
                   known);
    }
    CADRE_ASSIGN(config, read_config_file(file.string()));
    name = is_file ? fs::path(path).stem().string() : folder_name(path);
  }
  const bool has_tokenizer = !source.empty() && fs::exists(source / "tokenizer.json", ignored);
  if (has_tokenizer && !layers) {
    engine->model_dir = source.string();
    return {};
  }
  // The folder's config has the overrides in it; a wrapper's would not fit its text part.
  CADRE_ASSIGN(const Json overrides, parse_overrides(engine->hf_overrides));
  if (!overrides.members().empty()) note("note: " + overrides_note(config, overrides));
  CADRE_ASSIGN(config, synth_config(config, engine->hf_overrides, layers));
  engine->hf_overrides.clear();
  // What is wrong with it is said of the file that the user named.
  CADRE_ASSIGN(const ModelConfig parsed, parse_model_config(config));
  CADRE_TRY(plan_tensors(parsed, text).status());
  CADRE_ASSIGN(const fs::path folder, make_folder(name));
  CADRE_TRY(write_synth_texts(config, folder, /*tokenizer=*/!has_tokenizer));
  for (const char* file : kTokenizerFiles) {
    if (!has_tokenizer || !fs::exists(source / file, ignored)) continue;
    std::error_code failure;
    fs::copy_file(source / file, folder / file, failure);
    if (failure) {
      return error(Code::kInvalidFile, "cannot copy '", (source / file).string(), "': ", failure.message());
    }
  }
  engine->model_dir = folder.string();
  return {};
}

void drop_dummy_folders() {
  folders().drop();
  keep_at_signal();
}

}  // namespace cadre::cli
