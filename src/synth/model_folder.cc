#include "synth/model_folder.h"

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/result.h"
#include "base/size_text.h"
#include "model/tensor_plan.h"
#include "synth/adapter_files.h"
#include "synth/random_file.h"
#include "synth/tokenizer_files.h"

namespace cadre {
namespace {

namespace fs = std::filesystem;

struct Shard {
  std::string file;
  std::vector<SafetensorsWriter::Entry> entries;
};

std::vector<Shard> divide(const Checkpoint& plan, std::uint64_t most) {
  std::vector<Shard> shards(1);
  std::uint64_t bytes = 0;
  for (const TensorInfo& tensor : plan.made_tensors()) {
    if (bytes > 0 && bytes + tensor.nbytes > most) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += tensor.nbytes;
    shards.back().entries.push_back({tensor.name, tensor.dtype, tensor.shape, tensor.nbytes});
  }
  if (shards.size() == 1) {
    shards[0].file = "model.safetensors";
    return shards;
  }
  for (std::size_t i = 0; i < shards.size(); ++i) {
    char name[64];
    std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", i + 1, shards.size());
    shards[i].file = name;
  }
  return shards;
}

// The folder, which was empty or not there. Where the model is not completed, it is so again.
class OutFolder {
 public:
  explicit OutFolder(fs::path path) : path_(std::move(path)) {}
  ~OutFolder() {
    if (!ours_) return;
    std::error_code ignored;
    std::vector<fs::path> inside;
    for (const fs::directory_entry& entry : fs::directory_iterator(path_, ignored)) inside.push_back(entry.path());
    for (const fs::path& path : inside) fs::remove_all(path, ignored);
    if (made_) fs::remove(path_, ignored);
  }
  OutFolder(const OutFolder&) = delete;
  OutFolder& operator=(const OutFolder&) = delete;

  Status prepare(std::uint64_t bytes) {
    std::error_code failure;
    made_ = fs::create_directories(path_, failure);
    if (failure || !fs::is_directory(path_, failure)) {
      return error(Code::kInvalidArgument, "--out: cannot create folder '", path_.string(), "'",
                   failure ? ": " + failure.message() : ", a file is in its place");
    }
    const fs::directory_iterator first(path_, failure);
    if (failure) {
      return error(Code::kInvalidArgument, "--out: cannot read folder '", path_.string(), "': ", failure.message());
    }
    if (first != fs::directory_iterator()) {
      return error(Code::kInvalidArgument, "--out: '", path_.string(), "' is not empty (it holds ",
                   first->path().filename().string(), "); name another folder, or empty it first");
    }
    ours_ = true;
    const fs::space_info space = fs::space(path_, failure);
    if (!failure && space.available < bytes) {
      return error(Code::kLimitExceeded, "--out: the model takes ", size_text(bytes),
                   " with its adapters, and the disk of '", path_.string(), "' has ", size_text(space.available),
                   " left; use fewer layers (--layers), or another disk");
    }
    return {};
  }
  void keep() { ours_ = false; }

 private:
  fs::path path_;
  bool made_ = false, ours_ = false;
};

std::string index_text(const std::vector<Shard>& shards, std::uint64_t bytes) {
  std::vector<Json::Member> map;
  for (const Shard& shard : shards) {
    for (const SafetensorsWriter::Entry& entry : shard.entries) map.emplace_back(entry.name, shard.file);
  }
  return Json::object(
             {{"metadata", Json::object({{"total_size", bytes}})}, {"weight_map", Json::object(std::move(map))}})
             .dump({.indent = 2}) +
         "\n";
}

using Texts = std::vector<std::pair<std::string, std::string>>;

Status write_texts(const Texts& texts, const fs::path& folder) {
  for (const auto& [name, text] : texts) CADRE_TRY(write_text_file(folder / name, text));
  return {};
}

Status write_config(const Json& config, const fs::path& folder) {
  return write_text_file(folder / "config.json",
                         config.dump({.indent = 2, .non_finite = JsonDumpOptions::NonFinite::kPython}) + "\n");
}

}  // namespace

Result<SynthReport> write_synth_model(const SynthOptions& o) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(o.config));
  CADRE_ASSIGN(const TensorPlan plan, plan_tensors(config, "the model"));
  CADRE_ASSIGN(const Texts texts, make_tokenizer_files(config));
  AdapterTensors tensors;
  if (o.adapters > 0) {
    CADRE_ASSIGN(tensors, adapter_tensors(plan.targets, o.adapter_rank, o.adapter_layout));
  }
  SynthReport report;
  report.bytes = plan.checkpoint->tensor_bytes();
  report.tensors = plan.checkpoint->tensor_count();
  report.moe_layers = static_cast<int>(plan.moe_layers.size());
  const std::vector<Shard> shards = divide(*plan.checkpoint, o.max_shard_bytes);
  report.shards = static_cast<int>(shards.size());
  const std::uint64_t all = report.bytes + static_cast<std::uint64_t>(o.adapters) * tensors.bytes;
  OutFolder out(o.out);
  CADRE_TRY(out.prepare(all));

  std::uint64_t done = 0;
  const auto wrote = [&](std::uint64_t bytes) {
    done += bytes;
    return o.progress ? o.progress(done, all) : Status{};
  };
  for (const Shard& shard : shards) CADRE_TRY(write_random_file(o.out / shard.file, shard.entries, o.seed, wrote));
  if (shards.size() > 1) {
    CADRE_TRY(write_text_file(o.out / "model.safetensors.index.json", index_text(shards, report.bytes)));
  }
  CADRE_TRY(write_texts(texts, o.out));
  fs::path base = fs::absolute(o.out).lexically_normal();
  if (!base.has_filename()) base = base.parent_path();
  for (int i = 0; i < o.adapters; ++i) {
    const fs::path folder = o.out / "adapters" / ("adapter_" + std::to_string(i));
    const SynthAdapter adapter{.rank = o.adapter_rank,
                               .seed = o.seed + 1 + static_cast<std::uint64_t>(i),
                               .base_model = base.filename().string()};
    CADRE_TRY(write_synth_adapter(folder, tensors, adapter, wrote));
    report.adapters.push_back(folder.string());
  }
  CADRE_TRY(write_config(o.config, o.out));
  out.keep();
  return report;
}

Status write_synth_texts(const Json& json, const fs::path& folder, bool tokenizer) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
  if (tokenizer) {
    CADRE_ASSIGN(const Texts texts, make_tokenizer_files(config));
    CADRE_TRY(write_texts(texts, folder));
  }
  return write_config(json, folder);
}

}  // namespace cadre
