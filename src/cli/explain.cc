// cadre explain: which backend runs which MoE layers, and why not the others.
#include <fstream>
#include <utility>

#include "base/result.h"
#include "cli/commands.h"
#include "engine/plan.h"
#include "io/json.h"
#include "model/tensor_plan.h"
#include "synth/model_spec.h"

namespace cadre::cli {
namespace {

constexpr std::size_t kMaxSpecBytes = std::size_t{4} << 20;

// A config.json, or layers.
Status read_spec(const std::string& path, PlanOptions* plan) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(Code::kNotFound, "--spec: cannot open '", path, "'");
  std::string text;
  char piece[1 << 16];
  while (file.read(piece, sizeof piece) || file.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxSpecBytes) {
      return error(Code::kLimitExceeded, "--spec: '", path, "' has more than ", kMaxSpecBytes, " bytes");
    }
  }
  if (file.bad()) return error(Code::kInvalidFile, "--spec: cannot read '", path, "'");
  if (const Result<Json> json = Json::parse(text, path); json.ok() && json->has("model_type")) {
    plan->config_json = std::move(text);
    return {};
  }
  if (const Result<Json> json = Json::parse(text, path); json.ok() && json->has("hidden_size")) {
    return error(Code::kInvalidFile, json->where("model_type"), " is missing, want the name of a model family");
  }
  Result<ModelSpec> spec = model_spec_from_json(text);
  // What is wrong with the text is wrong with the file here.
  if (!spec.ok()) return Status(Code::kInvalidFile, spec.status().message()).with_context(path);
  plan->spec = *std::move(spec);
  return {};
}

Status check_config(const std::string& path, const std::string& overrides) {
  CADRE_ASSIGN(const Json json, read_config_file(path));
  CADRE_ASSIGN(const ModelConfig config, parse_model_config(json, overrides));
  return plan_tensors(config, path).status();
}

}  // namespace

int execute(const ExplainCommand& command) {
  PlanOptions options = command.plan;
  std::string title;
  if (!command.spec_file.empty()) {
    if (const Status status = read_spec(command.spec_file, &options); !status.ok()) return report(status);
    title = command.spec_file;
  } else {
    title = options.model_dir;
  }
  const Result<Plan> planned = plan(options);
  if (!planned.ok()) {
    // What is wrong with a config is said under its file's name.
    Status failure = options.config_json.empty() ? Status() : check_config(command.spec_file, options.hf_overrides);
    return report(failure.ok() ? planned.status() : failure);
  }
  for (const std::string& text : planned->notes) note("note: " + text);
  Output out;
  if (command.json) {
    JsonDumpOptions pretty;
    pretty.indent = 2;
    out.write(to_json_value(*planned).dump(pretty) + "\n");
  } else {
    const std::string name = planned->name.empty() ? "" : planned->name + " in ";
    out.write("model   " + name + title + "\n" + explain_text(planned->layers, command.verbose));
  }
  return out.exit_code(planned->no_backend.ok() ? 0 : report(planned->no_backend));
}

}  // namespace cadre::cli
