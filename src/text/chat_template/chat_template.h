// Chat templates: the subset of Jinja that published models use to turn a conversation into a prompt, rendered as
// Hugging Face transformers renders it (trim_blocks, lstrip_blocks, loop controls, its tojson). docs and tests compare
// with Jinja2. A template reads no file, environment or clock, and everything it can make grow has a limit.
#pragma once

#include <cadre/status.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace cadre {

namespace chat_template {
struct Template;
}

struct RenderLimits {
  std::uint64_t max_steps = 20'000'000;  // expressions, statements and elements walked: about a second
  std::size_t max_output = 16u << 20;    // bytes of the prompt
  std::size_t max_string = 16u << 20;    // bytes of any one string on the way
  std::size_t max_memory = 512u << 20;   // bytes of all values made, whether still used or not
  int max_call_depth = 50;               // macros calling macros
};

struct RenderInput {
  std::string messages_json;  // an array of {"role": ..., "content": ...}
  std::string tools_json;     // an array; "" for none
  std::string extra_json;     // an object of further variables, e.g. {"enable_thinking": false}; "" for none
  // bos_token, eos_token and other special tokens, by name.
  std::vector<std::pair<std::string, std::string>> special_tokens;
  bool add_generation_prompt = true;
  std::int64_t now = 0;  // seconds since 1970-01-01 UTC, for strftime_now
  RenderLimits limits;
};

class ChatTemplate {
 public:
  // `name` stands in messages: the file's name, or "chat_template of tokenizer_config.json".
  static Result<std::shared_ptr<const ChatTemplate>> parse(std::string_view source, std::string name);

  // The prompt. A template's own raise_exception comes back as invalid_argument with its message.
  Result<std::string> render(const RenderInput& input) const;
  const std::string& name() const { return name_; }
  ~ChatTemplate();

 private:
  ChatTemplate(std::string name, std::unique_ptr<const chat_template::Template> root);

  std::string name_;
  std::unique_ptr<const chat_template::Template> root_;
};

// The templates and special tokens of a model's folder.
struct ChatTemplateFile {
  std::string path;  // where the text stands, for messages
  std::string source;
};

// chat_template.jinja (with additional_chat_templates/NAME.jinja beside it), else `chat_template` of
// tokenizer_config.json, a string or a list of {name, template}. With tools, a template named "tool_use" comes before
// "default". Nothing where the folder has no template.
Result<std::optional<ChatTemplateFile>> find_chat_template(const std::string& folder, bool with_tools);

// bos_token, eos_token, ... of tokenizer_config.json, and of special_tokens_map.json where the former lacks them: each
// a string or {"content": ...}. Empty where the folder has neither file.
Result<std::vector<std::pair<std::string, std::string>>> read_special_tokens(const std::string& folder);

}  // namespace cadre
