// config.json as anyone may write it: parsed, its rotary embedding computed, and its family built on the weights of a
// golden of that family. Whatever is accepted must be usable: finite tables, sizes that the weights have.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>

#include "io/checkpoint.h"
#include "model/config_fields.h"
#include "model/families/family.h"
#include "model/rope_config.h"

namespace {

using namespace cadre;

void require(bool held) {
  if (!held) std::abort();
}

void try_rope(const Json& json, std::int64_t head_dim, std::int64_t max_context) {
  const auto rope = read_rope(json, head_dim, max_context);
  if (!rope.ok()) {
    require(!rope.status().message().empty());
    return;
  }
  require(rope->rope.dim > 0 && rope->rope.dim <= head_dim && std::isfinite(rope->rope.scale));
  require(rope->inv_freq.size() * 2 == static_cast<std::size_t>(rope->rope.dim));
  for (const float f : rope->inv_freq) require(std::isfinite(f));
  for (const float f : rope->long_inv_freq) require(std::isfinite(f));
}

// The goldens of one family, opened once: its variants need other tensors.
const std::vector<std::shared_ptr<Checkpoint>>& checkpoints(std::string_view model_type) {
  static const auto all = [] {
    std::map<std::string_view, std::vector<std::shared_ptr<Checkpoint>>> opened;
    for (const auto& [family, folder] : {std::pair{"mixtral", "mixtral"},
                                         {"deepseek_v2", "deepseek_v2"},
                                         {"deepseek_v3", "deepseek_v3"},
                                         {"dots1", "dots1"},
                                         {"ernie4_5_moe", "ernie4_5_moe"},
                                         {"flex_olmo", "flex_olmo"},
                                         {"gemma4_text", "gemma4_text"},
                                         {"glm4_moe", "glm4_moe"},
                                         {"gpt_oss", "gpt_oss"},
                                         {"granitemoe", "granitemoe"},
                                         {"granitemoehybrid", "granitemoehybrid"},
                                         {"granitemoeshared", "granitemoeshared"},
                                         {"hunyuan_v1_moe", "hunyuan_v1_moe"},
                                         {"kimi_k2", "deepseek_v3"},
                                         {"lfm2_moe", "lfm2_moe"},
                                         {"llama4_text", "llama4_text"},
                                         {"minimax_m2", "minimax_m2"},
                                         {"nemotron_h", "nemotron_h_groups"},
                                         {"nemotron_h", "nemotron_h_latent"},
                                         {"nemotron_h", "nemotron_h_mlp"},
                                         {"olmoe", "olmoe"},
                                         {"phimoe", "phimoe"},
                                         {"qwen2_moe", "qwen2_moe"},
                                         {"qwen3_5_moe_text", "qwen3_5_moe_text"},
                                         {"qwen3_moe", "qwen3_moe"},
                                         {"qwen3_moe", "qwen3_moe_mixed"},
                                         {"qwen3_next", "qwen3_next"}}) {
      auto checkpoint = Checkpoint::open(std::string(CADRE_GOLDENS "/models/") + folder);
      require(checkpoint.ok());
      opened[family].push_back(*checkpoint);
    }
    return opened;
  }();
  return all.at(model_type);
}

void try_family(const Family& family, const ModelConfig& config) {
  static const std::shared_ptr<Device> device = make_cpu_device();
  for (const auto& checkpoint : checkpoints(family.model_type)) {
    for (const Ranks& ranks : {Ranks{}, Ranks{.rank = 1, .size = 2}}) {
      WeightLoader loader(checkpoint, device, false);
      Builder builder(config, loader, ranks);
      Network network;
      const Status status = family.build(builder, network);
      if (!status.ok()) {
        require(!status.message().empty());
        continue;
      }
      if (const Status known = refuse_unknown_fields(config, builder.ignored_fields); !known.ok()) {
        require(known.message().find("--hf-overrides") != std::string::npos);
      }
      require(builder.targets.layers > 0 && !network.blocks.empty() && std::isfinite(network.final_norm.eps));
      for (const MoeLayer& layer : builder.moe_layers) {
        require(layer.spec.top_k >= 1 && layer.spec.top_k <= layer.spec.experts);
        require(std::isfinite(layer.spec.routing.scale));
        for (int e = 0; e < layer.spec.experts; ++e) {
          require(layer.weights->up(e)->dim(0) == layer.spec.intermediate &&
                  layer.weights->up(e)->dim(1) == layer.spec.expert_width());
        }
      }
      for (const StateSpec& state : builder.states) {
        require(state.kind == StateSpec::Kind::kPagedKv ? state.kv_heads > 0 && state.head_dim > 0
                : state.kind == StateSpec::Kind::kLatentKv
                    ? state.latent > 0
                    : state.channels > 0 && state.width > 1 && state.heads > 0 && state.state > 0);
      }
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = Json::parse({reinterpret_cast<const char*>(data), size}, "config.json");
  if (!json.ok()) return 0;
  for (const std::int64_t head_dim : {1, 16, 65536}) try_rope(*json, head_dim, 256);
  const auto config = parse_model_config(*json);
  if (!config.ok()) {
    require(!config.status().message().empty());
    return 0;
  }
  try_rope(*json, 16, config->max_context);
  if (const auto family = find_family(config->model_type); family.ok()) try_family(**family, *config);
  return 0;
}
