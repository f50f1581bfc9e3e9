#include <array>

#include "moe/record.h"

namespace cadre {
namespace {

template <std::size_t N, class E>
std::string_view at(const std::array<std::string_view, N>& names, E value) {
  return names[static_cast<std::size_t>(value)];
}

}  // namespace

// Names as in JSON specs and messages, in the order of each enum.
std::string_view to_string(Activation a) {
  static constexpr std::array<std::string_view, 5> kNames = {"silu", "gelu", "gelu_tanh", "relu2", "swiglu_oai"};
  return at(kNames, a);
}
std::string_view to_string(Routing r) {
  static constexpr std::array<std::string_view, 5> kNames = {"softmax_topk", "topk_softmax", "sigmoid_topk",
                                                             "sparsemixer", "sigmoid_input"};
  return at(kNames, r);
}
std::string_view to_string(WeightType t) {
  static constexpr std::array<std::string_view, 5> kNames = {"bfloat16", "float16", "float32", "float8_e4m3", "mxfp4"};
  return at(kNames, t);
}
std::string_view to_string(WeightScheme s) {
  static constexpr std::array<std::string_view, 2> kNames = {"plain", "block_scaled"};
  return at(kNames, s);
}
std::string_view to_string(DeviceKind k) {
  static constexpr std::array<std::string_view, 6> kNames = {"cpu", "cuda", "rocm", "xpu", "tpu", "out_of_tree"};
  return at(kNames, k);
}
std::string_view to_string(ActivationFormat f) {
  static constexpr std::array<std::string_view, 2> kNames = {"standard", "batched"};
  return at(kNames, f);
}
std::string_view to_string(ExpertParallelKind k) {
  static constexpr std::array<std::string_view, 3> kNames = {"none", "allgather_reducescatter", "all_to_all"};
  return at(kNames, k);
}
std::string_view to_string(CpuIsa isa) {
  static constexpr std::array<std::string_view, 5> kNames = {"any", "avx2", "avx512", "avx512_bf16", "amx_bf16"};
  return at(kNames, isa);
}

}  // namespace cadre
