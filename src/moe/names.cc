#include <array>

#include "moe/record.h"

namespace cadre {
namespace {

// A list with a name too few or too many does not compile; a value that is no enumerator has no name.
template <std::size_t N, class E>
std::string_view at(const std::array<std::string_view, N>& names, E value) {
  static_assert(N == static_cast<std::size_t>(kCountOf<E>));
  return static_cast<std::size_t>(value) < N ? names[static_cast<std::size_t>(value)] : "?";
}

template <class... N>
constexpr std::array<std::string_view, sizeof...(N)> names(N... name) {
  return {name...};
}

}  // namespace

// Names as in JSON specs and messages, in the order of each enum.
std::string_view to_string(Activation a) {
  static constexpr auto kNames = names("silu", "gelu", "gelu_tanh", "relu2", "swiglu_oai");
  return at(kNames, a);
}
std::string_view to_string(Routing r) {
  static constexpr auto kNames = names("softmax_topk", "topk_softmax", "sigmoid_topk", "sparsemixer", "sigmoid_input");
  return at(kNames, r);
}
std::string_view to_string(WeightType t) {
  static constexpr auto kNames = names("bfloat16", "float16", "float32", "float8_e4m3", "mxfp4");
  return at(kNames, t);
}
std::string_view to_string(WeightScheme s) {
  static constexpr auto kNames = names("plain", "block_scaled");
  return at(kNames, s);
}
std::string_view to_string(DeviceKind k) {
  static constexpr auto kNames = names("cpu", "cuda", "rocm", "xpu", "tpu", "out_of_tree");
  return at(kNames, k);
}
std::string_view to_string(ActivationFormat f) {
  static constexpr auto kNames = names("standard", "batched");
  return at(kNames, f);
}
std::string_view to_string(ExpertParallelKind k) {
  static constexpr auto kNames =
      names("none", "allgather_reducescatter", "all_to_all", "deepep_high_throughput", "deepep_low_latency", "nixl",
            "flashinfer_one_sided", "flashinfer_two_sided", "mori_high_throughput", "mori_low_latency");
  return at(kNames, k);
}
std::string_view to_string(CpuIsa isa) {
  static constexpr auto kNames = names("any", "avx2", "avx512", "avx512_bf16", "amx_bf16");
  return at(kNames, isa);
}

}  // namespace cadre
