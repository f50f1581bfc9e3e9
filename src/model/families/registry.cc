#include "base/result.h"
#include "model/families/family.h"

namespace cadre {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"deepseek_v2", build_deepseek_v2},
      {"deepseek_v3", build_deepseek_v3},
      {"dots1", build_dots1},
      {"ernie4_5_moe", build_ernie4_5_moe, {}, true},
      {"flex_olmo", build_flex_olmo},
      {"gemma4_text", build_gemma4, {".experts.gate_up_proj", ".layer_scalar"}, true},
      {"glm4_moe", build_glm4_moe},
      {"gpt_oss", build_gpt_oss, {".experts.gate_up_proj"}},
      {"granitemoe", build_granite_moe, {".input_linear.weight"}},
      {"granitemoehybrid", build_granite_moe_hybrid, {".input_linear.weight"}},
      {"granitemoeshared", build_granite_moe_shared, {".input_linear.weight"}},
      {"hunyuan_v1_moe", build_hunyuan_v1_moe},
      {"kimi_k2", build_deepseek_v3},
      {"lfm2_moe", build_lfm2_moe, {}, true},
      {"llama4_text", build_llama4, {".experts.gate_up_proj"}},
      {"minimax_m2", build_minimax_m2},
      {"mixtral", build_mixtral},
      {"nemotron_h", build_nemotron_h},
      {"olmoe", build_olmoe},
      {"phimoe", build_phimoe},
      {"qwen2_moe", build_qwen2_moe},
      {"qwen3_5_moe_text", build_qwen3_5_moe_text, {".experts.gate_up_proj"}},
      {"qwen3_moe", build_qwen3_moe},
      {"qwen3_next", build_qwen3_next},
  };
  return kFamilies;
}

Result<const Family*> find_family(std::string_view model_type) {
  std::string known;
  for (const Family& family : families()) {
    if (family.model_type == model_type) return &family;
    known += (known.empty() ? "" : ", ") + std::string(family.model_type);
  }
  return error(Code::kUnsupported, "model_type '", model_type, "' is not a known family, want one of: ", known);
}

}  // namespace cadre
