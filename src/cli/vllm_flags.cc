#include "cli/vllm_flags.h"

#include "base/result.h"

namespace cadre::cli {
namespace {

struct OtherName {
  const char *vllm, *cadre;
};
constexpr OtherName kOtherNames[] = {
    {"--kv-cache-memory-bytes", "--kv-cache-memory"},
    {"--uvicorn-log-level", "--log-level"},
    {"--shutdown-timeout", "--drain-timeout"},
    {"--disable-log-requests", "--no-enable-log-requests"},
};

struct Foreign {
  const char* name;
  bool is_toggle;
  const char* harmless;  // values that ask for nothing else than what cadre does, with commas; "*": any
  const char* hint;
};
constexpr Foreign kForeign[] = {
    {"--enable-lora", true, "", "adapters are always on"},
    {"--enable-chunked-prefill", true, "", "prompts are always computed in pieces"},
    {"--enable-auto-tool-choice", true, "", "calls are parsed wherever a request has tools"},
    {"--enable-prompt-tokens-details", true, "", "usage always has them"},
    {"--enable-request-id-headers", true, "", "replies always have x-request-id"},
    {"--trust-remote-code", true, "", "no code of a checkpoint is ever run"},
    {"--enforce-eager", true, "", "there are no graphs to turn off"},
    {"--tool-call-parser", false, "hermes,qwen", "calls in the style of Hermes and Qwen are parsed, others stay text"},
    {"--scheduling-policy", false, "fcfs,priority", "priorities of requests always count"},
    {"--dtype", false, "auto,bfloat16", "weights are kept in the element type of their file"},
    {"--lora-dtype", false, "auto", "adapters are kept in the element type of their file"},
    {"--kv-cache-dtype", false, "auto", "the type of the cache is the backend's"},
    {"--load-format", false, "auto,safetensors", "checkpoints are safetensors; for random weights say --dummy-weights"},
    {"--generation-config", false, "auto", "generation_config.json of the model's folder counts"},
    {"--device", false, "auto,cpu", "this version runs on CPUs"},
    {"--tensor-parallel-size", false, "1", "one process uses this machine's cores, see --threads"},
    {"--pipeline-parallel-size", false, "1", "one process uses this machine's cores, see --threads"},
    {"--data-parallel-size", false, "1", "start a server for each part of the machine, behind a proxy"},
    {"--quantization", false, "", "a checkpoint says in its config.json how it is quantised"},
    {"--gpu-memory-utilization", false, "", "give the memory of the cache in bytes, with --kv-cache-memory"},
    {"--cpu-offload-gb", false, "", "weights are in main memory as it is"},
    {"--swap-space", false, "", "sequences that gave way are computed again; --kv-cache-memory makes that rare"},
    {"--revision", false, "", "write it behind the model's name: org/name@revision"},
    {"--download-dir", false, "", "nothing is downloaded; HF_HUB_CACHE says where models are"},
    {"--tokenizer", false, "", "tokenizer.json of the model's folder counts"},
    {"--chat-template", false, "", "chat_template.jinja of the model's or the adapter's folder counts"},
    {"--reasoning-parser", false, "", "reasoning stays in the text; --default-chat-template-kwargs may turn it off"},
    {"--speculative-config", false, "", "there is no speculative decoding in this version"},
    {"--seed", false, "", "give each request its own: seed"},
    {"--ssl-keyfile", false, "", "put a proxy in front that speaks TLS"},
    {"--ssl-certfile", false, "", "put a proxy in front that speaks TLS"},
    {"--uds", false, "", "listen on an address: --host, --port"},
    {"--root-path", false, "", "let the proxy in front strip it"},
    {"--allowed-origins", false, "", "let the proxy in front answer browsers"},
    {"--h11-max-incomplete-event-size", false, "", "see --max-header-bytes and --max-body-bytes"},
};

bool is_harmless(std::string_view values, std::string_view got) {
  while (!values.empty()) {
    const std::size_t comma = values.find(',');
    if (values.substr(0, comma) == got) return true;
    values.remove_prefix(comma == std::string_view::npos ? values.size() : comma + 1);
  }
  return false;
}

std::string alternatives(std::string_view values) {
  std::string text;
  for (const char c : values) text += c == ',' ? std::string(" or ") : std::string(1, c);
  return text;
}

}  // namespace

void add_vllm_flags(Flags& flags) {
  flags.group("");
  for (const OtherName& other : kOtherNames) {
    if (flags.kind(other.cadre) == Flags::Kind::kToggle) {
      flags.toggle(other.vllm, "");
    } else {
      flags.value(other.vllm, "", "");
    }
  }
  for (const Foreign& foreign : kForeign) {
    if (foreign.is_toggle) {
      flags.toggle(foreign.name, "");
    } else {
      flags.value(foreign.name, "", "");
    }
  }
}

Status read_vllm_flags(Flags* flags, std::vector<std::string>* notes) {
  for (const OtherName& other : kOtherNames) {
    if (!flags->given(other.vllm)) continue;
    if (flags->given(other.cadre)) {
      return error(Code::kInvalidArgument, other.vllm, " is ", other.cadre, " by vLLM's name, and both are given");
    }
    const bool is_toggle = flags->kind(other.cadre) == Flags::Kind::kToggle;
    flags->supply(other.cadre, {is_toggle ? "true" : *flags->text(other.vllm)}, other.vllm);
  }
  for (const Foreign& foreign : kForeign) {
    if (!flags->given(foreign.name)) continue;
    if (!foreign.is_toggle && !is_harmless(foreign.harmless, *flags->text(foreign.name))) {
      const std::string want = alternatives(foreign.harmless);
      return error(Code::kInvalidArgument, foreign.name, " is '", *flags->text(foreign.name),
                   "', which cadre cannot do", want.empty() ? "" : ", want " + want, "; ", foreign.hint);
    }
    notes->push_back(std::string(foreign.name) + " has no effect: " + foreign.hint);
  }
  return {};
}

}  // namespace cadre::cli
