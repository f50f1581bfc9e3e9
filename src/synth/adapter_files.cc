#include "synth/adapter_files.h"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include "base/result.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "synth/random_file.h"

namespace cadre {
namespace {

using Shape = std::vector<std::int64_t>;

constexpr std::int64_t kMaxRank = 65536;

struct Writer {
  AdapterTensors tensors;
  std::int64_t rank = 0;

  void add(const std::string& module, std::string_view part, Shape shape) {
    std::uint64_t bytes = 2;
    for (const std::int64_t size : shape) bytes *= static_cast<std::uint64_t>(size);
    tensors.bytes += bytes;
    tensors.entries.push_back(
        {"base_model.model." + module + "." + std::string(part) + ".weight", DType::kBF16, std::move(shape), bytes});
  }
  void pair(const std::string& module, Shape a, Shape b) {
    add(module, "lora_A", std::move(a));
    add(module, "lora_B", std::move(b));
  }
  void plain(const std::string& module, std::int64_t in, std::int64_t out) { pair(module, {rank, in}, {out, rank}); }
};

std::string_view last_part(std::string_view module) { return module.substr(module.rfind('.') + 1); }

// PEFT's stacked wrappers, see lora/formats/peft_stacked.cc: gate and up are the inner one.
void stacked(Writer& w, const ExpertsTarget& t) {
  const std::int64_t all = w.rank * t.experts, up = t.intermediate * (t.gated ? 2 : 1);
  w.pair(t.module + ".base_layer", {all, t.width}, {up, all});
  w.pair(t.module, {all, t.intermediate}, {t.width, all});
  w.tensors.parameters.insert(std::string(last_part(t.module)) + "." + t.stacked_up_name);
  w.tensors.parameters.insert(std::string(last_part(t.module)) + "." + t.stacked_down_name);
}

void per_expert(Writer& w, const ExpertsTarget& t) {
  for (int e = 0; e < t.experts; ++e) {
    const std::string expert = t.module + "." + std::to_string(e) + ".";
    if (t.gated) w.plain(expert + t.gate_name, t.width, t.intermediate);
    w.plain(expert + t.up_name, t.width, t.intermediate);
    w.plain(expert + t.down_name, t.intermediate, t.width);
  }
  for (const std::string& name : {t.gate_name, t.up_name, t.down_name}) {
    if (!name.empty()) w.tensors.modules.insert(name);
  }
}

// Names of gate, up and down where experts have a dimension of their own, see lora/formats/packed.h. Empty: there is
// none, or it comes with the one before.
void packed(Writer& w, const ExpertsTarget& t, const std::array<std::string, 3>& names, bool gate_with_up) {
  const std::int64_t e = t.experts, r = w.rank;
  const auto put = [&](const std::string& name, std::int64_t in, std::int64_t out) {
    w.pair(t.module + "." + name, {e, r, in}, {e, out, r});
    w.tensors.modules.insert(name);
  };
  if (!names[0].empty()) put(names[0], t.width, t.intermediate * (gate_with_up ? 2 : 1));
  if (!names[1].empty()) put(names[1], t.width, t.intermediate);
  put(names[2], t.intermediate, t.width);
}

void megatron(Writer& w, const ExpertsTarget& t) {
  if (t.gated) return packed(w, t, {"gate_up_proj", "", "down_proj"}, true);
  packed(w, t, {"", "up_proj", "down_proj"}, false);
}

void sglang(Writer& w, const ExpertsTarget& t) {
  packed(w, t, {t.gated ? "gate_proj" : "", "up_proj", "down_proj"}, false);
}

void tinker(Writer& w, const ExpertsTarget& t) {
  if (t.gated) return packed(w, t, {"w1", "w3", "w2"}, false);
  packed(w, t, {"", "w1", "w2"}, false);
  w.pair(t.module + ".w3", {0}, {0});  // a placeholder without elements
}

struct Layout {
  std::string_view name;
  void (*add)(Writer& writer, const ExpertsTarget& target);
};
constexpr Layout kLayouts[] = {
    {"stacked", stacked}, {"per_expert", per_expert}, {"megatron", megatron}, {"sglang", sglang}, {"tinker", tinker}};

const Layout* find_layout(std::string_view name) {
  const auto* at =
      std::find_if(std::begin(kLayouts), std::end(kLayouts), [&](const Layout& l) { return l.name == name; });
  return at == std::end(kLayouts) ? nullptr : at;
}

bool is_router(std::string_view module) {
  static constexpr std::array<std::string_view, 5> kNames = {"gate", "router", "wg", "layer", "shared_expert_gate"};
  return std::find(kNames.begin(), kNames.end(), last_part(module)) != kNames.end() ||
         module.find(".router.") != module.npos;
}

}  // namespace

const std::vector<std::string>& adapter_layouts() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Layout& layout : kLayouts) names.emplace_back(layout.name);
    return names;
  }();
  return kNames;
}

Status check_adapter_layout(const std::string& name) {
  if (find_layout(name) != nullptr) return {};
  std::string known;
  for (const std::string& layout : adapter_layouts()) known += (known.empty() ? "" : ", ") + layout;
  return error(Code::kInvalidArgument, "--layout is '", name, "', want one of: ", known);
}

Result<AdapterTensors> adapter_tensors(const AdapterTargets& targets, int rank, const std::string& layout) {
  CADRE_TRY(check_adapter_layout(layout));
  if (rank < 1 || rank > kMaxRank) return error(Code::kInvalidArgument, "--rank is ", rank, ", want 1 to ", kMaxRank);
  Writer w;
  w.rank = rank;
  for (const DenseTarget& t : targets.dense) {
    if (t.embedding || t.tied || t.module == "lm_head" || is_router(t.module)) continue;
    w.plain(t.module, t.in, t.out);
    w.tensors.modules.insert(std::string(last_part(t.module)));
  }
  for (const ExpertsTarget& t : targets.experts) find_layout(layout)->add(w, t);
  return std::move(w.tensors);
}

Status write_synth_adapter(const std::filesystem::path& folder, const AdapterTensors& tensors,
                           const SynthAdapter& adapter, const std::function<Status(std::uint64_t bytes)>& wrote) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) {
    return error(Code::kInvalidArgument, "cannot create folder '", folder.string(), "': ", failure.message());
  }
  CADRE_TRY(write_random_file(folder / "adapter_model.safetensors", tensors.entries, adapter.seed, wrote));
  const auto list = [](const std::set<std::string>& names) {
    return names.empty() ? Json() : Json::array(std::vector<std::string>(names.begin(), names.end()));
  };
  const Json config = Json::object({{"peft_type", "LORA"},
                                    {"peft_version", "0.19.0"},
                                    {"task_type", "CAUSAL_LM"},
                                    {"base_model_name_or_path", adapter.base_model},
                                    {"inference_mode", true},
                                    {"r", adapter.rank},
                                    {"lora_alpha", adapter.rank},
                                    {"lora_dropout", 0.0},
                                    {"bias", "none"},
                                    {"fan_in_fan_out", false},
                                    {"use_rslora", false},
                                    {"use_dora", false},
                                    {"target_modules", list(tensors.modules)},
                                    {"target_parameters", list(tensors.parameters)}});
  return write_text_file(folder / "adapter_config.json", config.dump({.indent = 2}) + "\n");
}

}  // namespace cadre
