#include "synth/model_folder.h"

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/result.h"
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

Status prepare_folder(const fs::path& out, std::uint64_t bytes) {
  std::error_code failure;
  fs::create_directories(out, failure);
  if (failure || !fs::is_directory(out, failure)) {
    return error(Code::kInvalidArgument, "--out: cannot create folder '", out.string(), "'",
                 failure ? ": " + failure.message() : ", a file is in its place");
  }
  for (const fs::directory_entry& entry : fs::directory_iterator(out, failure)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name.ends_with(".safetensors") || name == "model.safetensors.index.json") {
      return error(Code::kInvalidArgument, "--out: '", out.string(), "' holds a model already (", name,
                   "); name another folder, or remove it first");
    }
  }
  const fs::space_info space = fs::space(out, failure);
  if (!failure && space.available < bytes) {
    return error(Code::kLimitExceeded, "--out: the model takes ", bytes >> 20, " MiB, and the disk of '", out.string(),
                 "' has ", space.available >> 20, " MiB left; use fewer layers (--layers), or another disk");
  }
  return {};
}

// Removes the weights again where anything after them fails.
struct Weights {
  const fs::path& out;
  const std::vector<Shard>& shards;
  bool keep = false;
  ~Weights() {
    if (keep) return;
    std::error_code ignored;
    for (const Shard& shard : shards) fs::remove(out / shard.file, ignored);
    fs::remove(out / "model.safetensors.index.json", ignored);
  }
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

Status write_tokenizer(const ModelConfig& config, const fs::path& folder) {
  CADRE_ASSIGN(const auto files, make_tokenizer_files(config));
  for (const auto& [name, text] : files) CADRE_TRY(write_text_file(folder / name, text));
  return {};
}

Status write_config(const Json& config, const fs::path& folder) {
  return write_text_file(folder / "config.json",
                         config.dump({.indent = 2, .non_finite = JsonDumpOptions::NonFinite::kPython}) + "\n");
}

}  // namespace

Result<SynthReport> write_synth_model(const SynthOptions& o) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(o.config));
  CADRE_ASSIGN(const TensorPlan plan, plan_tensors(config, o.out.string()));
  SynthReport report;
  report.bytes = plan.checkpoint->tensor_bytes();
  report.tensors = plan.checkpoint->tensor_count();
  report.moe_layers = static_cast<int>(plan.moe_layers.size());
  const std::vector<Shard> shards = divide(*plan.checkpoint, o.max_shard_bytes);
  report.shards = static_cast<int>(shards.size());
  CADRE_TRY(prepare_folder(o.out, report.bytes));

  Weights weights{o.out, shards};
  std::uint64_t done = 0;
  for (const Shard& shard : shards) {
    CADRE_TRY(write_random_file(o.out / shard.file, shard.entries, o.seed, [&](std::uint64_t bytes) {
      done += bytes;
      return o.progress ? o.progress(done, report.bytes) : Status{};
    }));
  }
  if (shards.size() > 1) {
    CADRE_TRY(write_text_file(o.out / "model.safetensors.index.json", index_text(shards, report.bytes)));
  }
  CADRE_TRY(write_tokenizer(config, o.out));
  for (int i = 0; i < o.adapters; ++i) {
    const fs::path folder = o.out / "adapters" / ("adapter_" + std::to_string(i));
    CADRE_TRY(write_synth_adapter(folder, plan.targets,
                                  {.name = folder.filename().string(),
                                   .rank = o.adapter_rank,
                                   .layout = o.adapter_layout,
                                   .seed = o.seed + 1 + static_cast<std::uint64_t>(i),
                                   .base_model = fs::absolute(o.out).filename().string()}));
    report.adapters.push_back(folder.string());
  }
  CADRE_TRY(write_config(o.config, o.out));
  weights.keep = true;
  return report;
}

Status write_synth_texts(const Json& json, const fs::path& folder, bool tokenizer) {
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(json));
  if (tokenizer) CADRE_TRY(write_tokenizer(config, folder));
  return write_config(json, folder);
}

}  // namespace cadre
