#include "cli/shared_flags.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "base/result.h"
#include "cli/dummy_model.h"
#include "cli/hf_cache.h"
#include "cli/values.h"
#include "model/config_overrides.h"

namespace cadre::cli {
namespace {

Status read_rehearse(const Flags& flags, EngineOptions* engine) {
  static constexpr std::pair<std::string_view, Rehearse> kWords[] = {
      {"off", Rehearse::kOff}, {"quick", Rehearse::kQuick}, {"full", Rehearse::kFull}};
  const auto text = flags.text("--rehearse");
  if (!text) return {};
  for (const auto& [word, meant] : kWords) {
    if (*text != word) continue;
    engine->rehearse = meant;
    return {};
  }
  return error(Code::kInvalidArgument, "--rehearse is '", *text, "', want off, quick or full");
}

}  // namespace

void add_overrides(Flags& flags) {
  flags.value(
      "--hf-overrides", "JSON",
      "fields of config.json in place of the file's, as an object: {\"rope_scaling\": null}; null takes one out");
}

void add_model(Flags& flags) {
  flags.group("Model");
  flags.value(
      "--model", "DIR|ORG/NAME",
      "folder of the checkpoint: config.json, *.safetensors, tokenizer.json; or a model of the local Hugging Face "
      "cache, ORG/NAME@REVISION too (required)");
  add_overrides(flags);
}

void add_adapters(Flags& flags) {
  flags.values("--adapter", "NAME=DIR[,option=value]...",
               "load a PEFT adapter under this name, with the options orientation=auto|peft|swapped, "
               "b_order=peft|expert_major, check_weights=true|false");
}

void add_one_adapter(Flags& flags, const char* help) { flags.value("--adapter", "DIR[,option=value]...", help); }

void add_machine(Flags& flags, const char* default_policy, PolicySource source) {
  flags.group("Machine");
  flags.value(
      "--backend", "POLICY",
      "which backend runs the MoE layers: auto, NAME, 'require NAME', 'prefer NAME' or 'exclude NAME[,NAME]'; "
      "default: " +
          std::string(source == PolicySource::kFlag ? "" : "CADRE_MOE_BACKEND from the environment, otherwise ") +
          default_policy);
  flags.value("--threads", "N", "compute threads, 1 to 1024; default: the machine's hardware threads");
}

void add_limits(Flags& flags) {
  flags.value("--max-model-len", "N", "tokens of prompt and answer together; default: the model's context");
  flags.value("--max-num-seqs", "N",
              "sequences in one batch, others wait; default: 8, or as many as --use asks for; in a chat 1");
  flags.value("--kv-cache-memory", "SIZE",
              "memory for the state of sequences, in bytes or with K, M or G for powers of 1024; default: what the "
              "sequences need, up to 4G");
  flags.value("--max-loras", "N", "be ready for this many adapters at the same time; default: those given");
  flags.value("--max-lora-rank", "R", "be ready for this rank on experts; default: that of the adapters given");
  flags.toggle("--check-weights", "look for NaN and infinity in every tensor of the model while loading");
}

void add_sampling(Flags& flags) {
  flags.group("Generation (what is not given comes from the model's generation_config.json)");
  flags.value("--max-tokens", "N", "tokens of the answer at most; default: until the context is full");
  flags.value("--temperature", "X", "0 takes the most likely token (greedy); higher draws more freely");
  flags.value("--top-k", "N", "draw among the N most likely tokens; 0 and -1 are all");
  flags.value("--top-p", "X", "draw among the most likely tokens that reach this probability together, 0 to 1");
  flags.value("--min-p", "X", "drop tokens below this share of the best token's probability, 0 to 1");
  flags.value("--repetition-penalty", "X", "divide the logits of tokens seen in prompt or answer; 1 is none");
  flags.value("--presence-penalty", "X", "subtract from the logits of tokens that the answer has, -2 to 2");
  flags.value("--frequency-penalty", "X", "subtract for each time the answer has the token, -2 to 2");
  flags.values("--logit-bias", "ID=BIAS", "add BIAS, -100 to 100, to a token's logit");
  flags.values("--stop", "TEXT", "end before this text");
  flags.value("--seed", "N", "the same seed draws the same tokens; default: a new one each time");
  flags.toggle("--ignore-eos", "go on after the model's end tokens, up to --max-tokens");
}

Result<std::string> read_model(const Flags& flags, const Environment& environment) {
  CADRE_ASSIGN(const std::string text, flags.required("--model"));
  CADRE_ASSIGN(std::string dir, find_model("--model", text, hf_cache_dir(environment.variables)));
  CADRE_TRY(want_folder("--model", dir));
  return dir;
}

Result<std::string> read_overrides(const Flags& flags) {
  const std::string text = flags.text("--hf-overrides").value_or("");
  CADRE_TRY(parse_overrides(text).status());
  return text;
}

Result<std::vector<AdapterSource>> read_adapters(const Flags& flags) {
  std::vector<AdapterSource> adapters;
  for (const std::string& text : flags.all("--adapter")) {
    CADRE_ASSIGN(AdapterSource source, parse_adapter("--adapter", text));
    for (const AdapterSource& other : adapters) {
      if (other.name == source.name) {
        return error(Code::kInvalidArgument, "--adapter: two adapters are named '", source.name, "', in '", other.dir,
                     "' and '", source.dir, "'; give them different names");
      }
    }
    adapters.push_back(std::move(source));
  }
  return adapters;
}

Result<Policy> read_policy(const Flags& flags, const Environment& environment, const char* otherwise) {
  if (const auto policy = flags.text("--backend")) return parse_policy(*policy, "--backend");
  if (!environment.backend.empty()) return parse_policy(environment.backend, "CADRE_MOE_BACKEND");
  return parse_policy(otherwise, "default");
}

Result<EngineOptions> read_engine(const Flags& flags, const Environment& environment, const char* default_policy) {
  EngineOptions engine;
  CADRE_ASSIGN(engine.hf_overrides, read_overrides(flags));
  if (flags.kind("--dummy-weights") && flags.given("--dummy-weights")) {
    CADRE_TRY(read_dummy(flags, environment, &engine));
  } else {
    if (flags.kind("--layers") && flags.given("--layers")) {
      return error(Code::kInvalidArgument, "--layers goes with --dummy-weights");
    }
    CADRE_ASSIGN(engine.model_dir, read_model(flags, environment));
  }
  CADRE_ASSIGN(engine.backend, read_policy(flags, environment, default_policy));
  std::optional<int> threads;
  CADRE_TRY(flags.number("--threads", &threads, 1, kMaxThreads));
  const auto hardware = static_cast<int>(std::min<std::int64_t>(std::thread::hardware_concurrency(), kMaxThreads));
  engine.threads = threads.value_or(std::max(1, hardware));
  return engine;
}

void add_start(Flags& flags) {
  flags.value("--rehearse", "off|quick|full",
              "run each chosen backend once on the layer's weights and compare it with the reference: on a small call "
              "(quick, the default), or on all sizes up to the largest batch (full)");
  flags.toggle("--verbose", "say at the start which backend runs which MoE layers and how its rehearsal went");
}

Status read_limits(const Flags& flags, int default_sequences, EngineOptions* engine) {
  std::optional<std::int64_t> length;
  CADRE_TRY(flags.number("--max-model-len", &length, 1));
  engine->max_model_len = length.value_or(0);
  std::optional<int> sequences, loras, rank;
  CADRE_TRY(flags.number("--max-num-seqs", &sequences, 1, kMaxSequences));
  CADRE_TRY(flags.number("--max-loras", &loras, 1, kMaxLoras));
  CADRE_TRY(flags.number("--max-lora-rank", &rank, 1, kMaxLoraRank));
  engine->max_num_seqs = sequences.value_or(default_sequences);
  engine->max_loras = loras.value_or(0);
  engine->max_lora_rank = rank.value_or(0);
  if (const auto size = flags.text("--kv-cache-memory")) {
    CADRE_ASSIGN(engine->kv_cache_memory, parse_bytes("--kv-cache-memory", *size));
  }
  engine->check_weights = flags.given("--check-weights");
  return read_rehearse(flags, engine);
}

Result<SamplingRequest> read_sampling(const Flags& flags) {
  SamplingRequest sampling;
  CADRE_TRY(flags.number("--max-tokens", &sampling.max_tokens, 1));
  CADRE_TRY(flags.number("--temperature", &sampling.temperature));
  CADRE_TRY(flags.number("--top-k", &sampling.top_k, -1));
  CADRE_TRY(flags.number("--top-p", &sampling.top_p));
  CADRE_TRY(flags.number("--min-p", &sampling.min_p));
  CADRE_TRY(flags.number("--repetition-penalty", &sampling.repetition_penalty));
  CADRE_TRY(flags.number("--presence-penalty", &sampling.presence_penalty));
  CADRE_TRY(flags.number("--frequency-penalty", &sampling.frequency_penalty));
  for (const std::string& text : flags.all("--logit-bias")) {
    CADRE_TRY(parse_logit_bias("--logit-bias", text, &sampling.logit_bias));
  }
  sampling.stop = flags.all("--stop");
  if (const auto seed = flags.text("--seed")) {
    CADRE_ASSIGN(sampling.seed, parse_seed("--seed", *seed));
  }
  if (flags.given("--ignore-eos")) sampling.ignore_eos = true;
  return sampling;
}

}  // namespace cadre::cli
