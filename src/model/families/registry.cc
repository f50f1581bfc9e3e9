#include "base/result.h"
#include "model/families/family.h"

namespace cadre {

const std::vector<Family>& families() {
  static const std::vector<Family> kFamilies = {
      {"deepseek_v2", build_deepseek_v2},
      {"deepseek_v3", build_deepseek_v3},
      {"gpt_oss", build_gpt_oss},
      {"granitemoe", build_granite_moe},
      {"granitemoehybrid", build_granite_moe_hybrid},
      {"granitemoeshared", build_granite_moe_shared},
      {"kimi_k2", build_deepseek_v3},
      {"mixtral", build_mixtral},
      {"nemotron_h", build_nemotron_h},
      {"olmoe", build_olmoe},
      {"phimoe", build_phimoe},
      {"qwen2_moe", build_qwen2_moe},
      {"qwen3_moe", build_qwen3_moe},
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
