// A family: how one model_type of Hugging Face transformers is built. One file each; the registry lists them.
#pragma once

#include <string_view>
#include <vector>

#include "model/builder.h"

namespace cadre {

struct Family {
  std::string_view model_type;
  Status (*build)(Builder& builder, Network& network);
  // Ends of names that published checkpoints have, where `build` asks the loader which of several forms there is.
  std::vector<std::string_view> published = {};
  // Whether the head is the embedding's table where the config does not say and there is no file to look into.
  bool ties_head = false;
};

Status build_deepseek_v2(Builder& builder, Network& network);
Status build_deepseek_v3(Builder& builder, Network& network);  // and kimi_k2
Status build_gpt_oss(Builder& builder, Network& network);
Status build_granite_moe(Builder& builder, Network& network);
Status build_granite_moe_hybrid(Builder& builder, Network& network);
Status build_granite_moe_shared(Builder& builder, Network& network);
Status build_dots1(Builder& builder, Network& network);
Status build_ernie4_5_moe(Builder& builder, Network& network);
Status build_flex_olmo(Builder& builder, Network& network);
Status build_gemma4(Builder& builder, Network& network);
Status build_glm4_moe(Builder& builder, Network& network);
Status build_hunyuan_v1_moe(Builder& builder, Network& network);
Status build_lfm2_moe(Builder& builder, Network& network);
Status build_llama4(Builder& builder, Network& network);
Status build_minimax_m2(Builder& builder, Network& network);
Status build_mixtral(Builder& builder, Network& network);
Status build_nemotron_h(Builder& builder, Network& network);
Status build_olmoe(Builder& builder, Network& network);
Status build_phimoe(Builder& builder, Network& network);
Status build_qwen2_moe(Builder& builder, Network& network);
Status build_qwen3_5_moe_text(Builder& builder, Network& network);
Status build_qwen3_moe(Builder& builder, Network& network);
Status build_qwen3_next(Builder& builder, Network& network);

// All families, by name.
const std::vector<Family>& families();
// An unknown model_type lists the known.
Result<const Family*> find_family(std::string_view model_type);

}  // namespace cadre
