// cadre logits: the logits of whole sequences, as a safetensors file.
#include <algorithm>
#include <cstdio>
#include <limits>
#include <utility>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/signals.h"
#include "engine/memory_plan.h"
#include "io/json.h"
#include "io/safetensors.h"

namespace cadre::cli {
namespace {

using Ids = std::vector<std::int32_t>;

// An array of arrays of ids.
Result<std::vector<Ids>> read_prompts(const std::string& path) {
  CADRE_ASSIGN(const Json json, Json::parse_file(path));
  if (!json.is_array() || json.items().empty()) {
    return error(Code::kInvalidFile, path, ": is ", describe(json), ", want an array of arrays of token ids");
  }
  std::vector<Ids> prompts;
  for (const Json& item : json.items()) {
    const std::string where = path + ": prompt " + std::to_string(prompts.size());
    if (!item.is_array() || item.items().empty()) {
      return error(Code::kInvalidFile, where, " is ", item.is_array() ? "empty" : describe(item),
                   ", want an array of token ids");
    }
    Ids& ids = prompts.emplace_back();
    for (const Json& id : item.items()) {
      CADRE_ASSIGN(const std::int64_t value, id.as_int(where, std::numeric_limits<std::int32_t>::min(),
                                                       std::numeric_limits<std::int32_t>::max()));
      ids.push_back(static_cast<std::int32_t>(value));
    }
  }
  return prompts;
}

constexpr std::int64_t kNoLimit = std::int64_t{1} << 50;  // the most that EngineOptions::kv_cache_memory takes

std::int64_t longest(const std::vector<Ids>& prompts) {
  std::size_t length = 0;
  for (const Ids& ids : prompts) length = std::max(length, ids.size());
  return static_cast<std::int64_t>(length);
}

// All logits are kept until the file is written, since its header names every tensor and the file is there whole or
// not at all. One sequence more at the peak: the engine's copy of it.
Status check_size(const std::vector<Ids>& prompts, std::int64_t vocab) {
  std::int64_t tokens = longest(prompts);
  for (const Ids& ids : prompts) tokens += static_cast<std::int64_t>(ids.size());
  const double need = static_cast<double>(tokens) * static_cast<double>(vocab) * sizeof(float);
  const std::int64_t available = available_memory();
  if (available <= 0 || need <= static_cast<double>(available)) return {};
  constexpr double kGib = 1 << 30;
  char text[96];
  std::snprintf(text, sizeof text, "need %.1f GiB of memory, and %.1f GiB are free", need / kGib,
                static_cast<double>(available) / kGib);
  return error(Code::kOutOfMemory, "the logits of all sequences together ", text,
               "; give fewer sequences at a time, each to a file of its own");
}

// What to do stands at the end of a message, and the engine's advice is about limits that this command does not have.
Status too_long(const Status& failure, std::int64_t tokens) {
  const std::string& message = failure.message();
  return error(failure.code(), "with sequences of up to ", tokens, " tokens, ", message.substr(0, message.rfind("; ")),
               "; give shorter ones, or use a machine with more memory");
}

Status write_logits(const LogitsCommand& command, const Engine& engine, const std::vector<Ids>& prompts,
                    const std::vector<std::vector<float>>& logits) {
  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    NamedTensor& tensor = tensors.emplace_back();
    tensor.name = command.ids ? "logits" : "logits." + std::to_string(i);
    tensor.dtype = DType::kF32;
    tensor.shape = {static_cast<std::int64_t>(prompts[i].size()), engine.vocab_size()};
    tensor.data = std::as_bytes(std::span(logits[i]));
  }
  const std::pair<std::string, std::string> metadata[] = {{"backend", engine.backend_names()}};
  const InterruptScope scope;  // a file that is being written is finished first
  return write_safetensors(command.out, tensors, metadata);
}

}  // namespace

int execute(const LogitsCommand& command) {
  std::vector<Ids> prompts;
  if (command.ids) {
    prompts.push_back(*command.ids);
  } else {
    Result<std::vector<Ids>> read = read_prompts(command.prompts_file);
    if (!read.ok()) return report(std::move(read).status().with_context("--prompts"));
    prompts = *std::move(read);
  }
  EngineOptions options = command.engine;
  // The request decides, not the model's context; whether the machine has the memory is checked by the engine.
  options.max_model_len = longest(prompts);
  options.kv_cache_memory = kNoLimit;
  Result<std::unique_ptr<Engine>> opened = open_engine(std::move(options));
  if (!opened.ok()) {
    return report(opened.status().code() == Code::kOutOfMemory ? too_long(opened.status(), longest(prompts))
                                                               : opened.status());
  }
  Engine& engine = **opened;
  if (const Status status = check_size(prompts, engine.vocab_size()); !status.ok()) return report(status);
  std::vector<std::vector<float>> logits;
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    Result<std::vector<float>> rows = engine.logits(prompts[i], command.adapter, command.step ? 1 : 0);
    if (!rows.ok()) {
      const std::string where = command.ids ? "--ids" : command.prompts_file + ": prompt " + std::to_string(i);
      return report(std::move(rows).status().with_context(where));
    }
    logits.push_back(*std::move(rows));
  }
  if (const Status status = write_logits(command, engine, prompts, logits); !status.ok()) return report(status);
  return 0;
}

}  // namespace cadre::cli
