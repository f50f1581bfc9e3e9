// Prompts: everything between text and token ids for one model. Any thread.
#pragma once

#include <cadre/engine.h>

#include <memory>

#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace cadre {

// The chat templates of a folder as they were when it was read, without tools and with. Null where it has none;
// `broken` says why it has none that can be used.
struct Templates {
  std::shared_ptr<const ChatTemplate> plain, with_tools;
  Status broken;
  bool any() const { return plain != nullptr || with_tools != nullptr || !broken.ok(); }
};
Templates read_templates(const std::string& dir);

class Prompts {
 public:
  // Reads tokenizer.json of the folder where it is wanted, and the templates.
  static Result<Prompts> open(const std::string& model_dir, bool need_tokenizer);

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  Result<const Tokenizer*> require_tokenizer() const;
  // The conversation as text. An adapter's own templates come before the model's; null for the base model.
  Result<std::string> chat_text(const ChatInput& chat, const Templates* adapter) const;
  static ChatInput to_input(const std::vector<ChatMessage>& messages);

 private:
  std::string dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
  Templates templates_;
  Result<std::vector<std::pair<std::string, std::string>>> special_tokens_ =
      std::vector<std::pair<std::string, std::string>>{};
};

}  // namespace cadre
