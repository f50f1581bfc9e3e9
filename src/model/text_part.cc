#include "model/text_part.h"

#include <algorithm>
#include <map>

#include "base/result.h"

namespace cadre {
namespace {

// Tried in order; the first that a name begins with counts.
constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {
    {"model.language_model.", "model."},  // transformers 5, Qwen3.5, Gemma 4, GLM-4.5V
    {"language_model.", ""},              // Llama 4, Kimi-VL, InternVL: a whole model below
    {"lm_head.", "lm_head."},             // beside the first
};

// Parts that are no text, where the text part's names have no prefix of their own.
constexpr std::string_view kOtherParts[] = {
    "visual",       "vision_tower", "vision_model", "vision_encoder", "audio_tower",  "multi_modal_projector",
    "mm_projector", "embed_vision", "embed_audio",  "mlp1",           "image_newline"};

std::string_view without_model(std::string_view name) {
  constexpr std::string_view kModel = "model.";
  return name.starts_with(kModel) ? name.substr(kModel.size()) : name;
}

// "model.visual.blocks.0.norm" -> "visual".
std::string part_of(std::string_view name) {
  const std::string_view rest = without_model(name);
  return std::string(rest.substr(0, rest.find('.')));
}

std::optional<std::string> with_prefix(std::string_view name) {
  for (const auto& [file, model] : kPrefixes) {
    if (name.starts_with(file)) return std::string(model) + std::string(name.substr(file.size()));
  }
  return std::nullopt;
}

std::optional<std::string> without_prefix(std::string_view name) {
  const std::string part = part_of(name);
  const bool other = std::find(std::begin(kOtherParts), std::end(kOtherParts), part) != std::end(kOtherParts);
  return other ? std::nullopt : std::optional(std::string(name));
}

}  // namespace

Result<std::shared_ptr<Checkpoint>> open_model_weights(const std::string& dir, const ModelConfig& config,
                                                       std::vector<std::string>* notes) {
  CADRE_ASSIGN(std::shared_ptr<Checkpoint> checkpoint, Checkpoint::open(dir));
  if (config.wrapper.empty()) return checkpoint;
  const std::vector<std::string_view> names = checkpoint->names();
  const bool prefixed = std::any_of(names.begin(), names.end(), [](std::string_view name) {
    return without_model(name).starts_with("language_model.");
  });
  CADRE_ASSIGN(const std::vector<std::string> left_out, checkpoint->rename(prefixed ? with_prefix : without_prefix));
  if (notes == nullptr) return checkpoint;
  std::map<std::string, int> parts;
  for (const std::string& name : left_out) ++parts[part_of(name)];
  std::string list;
  for (const auto& [part, count] : parts) {
    list += (list.empty() ? " (" : ", ") + part + " " + std::to_string(count);
  }
  notes->push_back("only the text part (" + config.model_type + ") of this " + config.wrapper + " model is used; " +
                   (left_out.empty()
                        ? "nothing lies beside it"
                        : std::to_string(left_out.size()) + " tensors beside it are not read" + list + ")"));
  return checkpoint;
}

std::vector<std::pair<std::string, std::string>> text_part_aliases() {
  return {{"model.language_model.", "model."}, {"language_model.", ""}};
}

}  // namespace cadre
