#include "engine/prompts.h"

#include <ctime>

#include "base/result.h"
#include "io/json.h"

namespace cadre {

Result<Prompts> Prompts::open(const std::string& model_dir, bool need_tokenizer) {
  Prompts prompts;
  prompts.dir_ = model_dir;
  if (need_tokenizer) {
    CADRE_ASSIGN(prompts.tokenizer_, Tokenizer::load(model_dir));
  }
  return prompts;
}

Result<const Tokenizer*> Prompts::require_tokenizer() const {
  if (tokenizer_ == nullptr) {
    return error(Code::kInvalidArgument, dir_, ": opened without a tokenizer, want token ids (--prompt-ids)");
  }
  return tokenizer_.get();
}

Result<std::string> Prompts::chat_text(const std::vector<ChatMessage>& messages, const std::string& adapter_dir) const {
  std::optional<ChatTemplateFile> file;
  if (!adapter_dir.empty()) {
    CADRE_ASSIGN(file, find_chat_template(adapter_dir, false));
  }
  if (!file) {
    CADRE_ASSIGN(file, find_chat_template(dir_, false));
  }
  if (!file) {
    return error(Code::kUnsupported, dir_, " has no chat template (chat_template.jinja, or chat_template in ",
                 "tokenizer_config.json); use --prompt with the text as the model was trained on it");
  }
  CADRE_ASSIGN(auto chat_template, ChatTemplate::parse(file->source, file->path));
  RenderInput input;
  std::vector<Json> list;
  for (const ChatMessage& message : messages) {
    list.push_back(Json::object({{"role", message.role}, {"content", message.content}}));
  }
  input.messages_json = Json::array(std::move(list)).dump();
  CADRE_ASSIGN(input.special_tokens, read_special_tokens(dir_));
  input.now = static_cast<std::int64_t>(std::time(nullptr));
  return chat_template->render(input);
}

}  // namespace cadre
