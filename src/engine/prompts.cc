#include "engine/prompts.h"

#include <ctime>
#include <filesystem>

#include "base/result.h"
#include "io/json.h"

namespace cadre {
namespace {

Result<std::shared_ptr<const ChatTemplate>> read_template(const std::string& dir, bool with_tools) {
  CADRE_ASSIGN(const std::optional<ChatTemplateFile> file, find_chat_template(dir, with_tools));
  if (!file) return std::shared_ptr<const ChatTemplate>();
  // Messages reach people who ask over a network: the file's name is for them, its folder is not.
  return ChatTemplate::parse(file->source, std::filesystem::path(file->path).filename().string());
}

}  // namespace

Templates read_templates(const std::string& dir) {
  Templates out;
  Result<std::shared_ptr<const ChatTemplate>> plain = read_template(dir, false), tools = read_template(dir, true);
  if (plain.ok()) out.plain = *std::move(plain);
  if (tools.ok()) out.with_tools = *std::move(tools);
  if (!plain.ok()) out.broken = std::move(plain).status();
  if (!tools.ok() && out.broken.ok()) out.broken = std::move(tools).status();
  return out;
}

Result<Prompts> Prompts::open(const std::string& model_dir, bool need_tokenizer) {
  Prompts prompts;
  prompts.dir_ = model_dir;
  if (need_tokenizer) {
    CADRE_ASSIGN(prompts.tokenizer_, Tokenizer::load(model_dir));
  }
  // A template that cannot be used matters to those who chat, and only to them.
  prompts.templates_ = read_templates(model_dir);
  prompts.special_tokens_ = read_special_tokens(model_dir);
  return prompts;
}

Result<const Tokenizer*> Prompts::require_tokenizer() const {
  if (tokenizer_ == nullptr) {
    return error(Code::kInvalidArgument, dir_, ": opened without a tokenizer, want token ids (--prompt-ids)");
  }
  return tokenizer_.get();
}

ChatInput Prompts::to_input(const std::vector<ChatMessage>& messages) {
  std::vector<Json> list;
  list.reserve(messages.size());
  for (const ChatMessage& message : messages) {
    list.push_back(Json::object({{"role", message.role}, {"content", message.content}}));
  }
  return {.messages_json = Json::array(std::move(list)).dump()};
}

Result<std::string> Prompts::chat_text(const ChatInput& chat, const Templates* adapter) const {
  const Templates& templates = adapter != nullptr && adapter->any() ? *adapter : templates_;
  const std::shared_ptr<const ChatTemplate>& chosen = chat.tools_json.empty() ? templates.plain : templates.with_tools;
  if (chosen == nullptr && !templates.broken.ok()) return templates.broken;
  if (chosen == nullptr) {
    return error(Code::kUnsupported, "the model has no chat template (chat_template.jinja, or chat_template in ",
                 "tokenizer_config.json); give the prompt as text, as the model was trained on it (--prompt, ",
                 "the completions route)");
  }
  if (!special_tokens_.ok()) return special_tokens_.status();
  RenderInput input;
  input.messages_json = chat.messages_json;
  input.tools_json = chat.tools_json;
  input.extra_json = chat.kwargs_json;
  input.add_generation_prompt = chat.add_generation_prompt;
  input.special_tokens = *special_tokens_;
  input.now = static_cast<std::int64_t>(std::time(nullptr));
  return chosen->render(input);
}

}  // namespace cadre
