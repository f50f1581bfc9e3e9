// Prompts: everything between text and token ids for one model.
#pragma once

#include <cadre/engine.h>

#include "text/chat_template/chat_template.h"
#include "text/tokenizer/tokenizer.h"

namespace cadre {

class Prompts {
 public:
  // Reads tokenizer.json of the folder where it is wanted.
  static Result<Prompts> open(const std::string& model_dir, bool need_tokenizer);

  const Tokenizer* tokenizer() const { return tokenizer_.get(); }
  Result<const Tokenizer*> require_tokenizer() const;
  // The conversation as text; the template of `adapter_dir`, where given and there, comes first.
  Result<std::string> chat_text(const std::vector<ChatMessage>& messages, const std::string& adapter_dir) const;

 private:
  std::string dir_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

}  // namespace cadre
