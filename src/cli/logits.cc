// cadre logits: the logits of whole sequences, as a safetensors file.
#include <limits>
#include <utility>

#include "base/dtype.h"
#include "base/result.h"
#include "cli/commands.h"
#include "cli/signals.h"
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
  Result<std::unique_ptr<Engine>> opened = open_engine(command.engine);
  if (!opened.ok()) return report(opened.status());
  Engine& engine = **opened;
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
