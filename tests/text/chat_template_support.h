#pragma once

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "text/chat_template/chat_template.h"

namespace cadre {

inline RenderInput plain_input() {
  RenderInput input;
  input.messages_json = R"([{"role": "user", "content": "Grüße"}, {"role": "assistant", "content": "Hi"}])";
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  return input;
}

// The rendered text, or the message of the failure after "error: ".
inline std::string render(const std::string& source, const RenderInput& input = plain_input()) {
  auto parsed = ChatTemplate::parse(source, "t.jinja");
  if (!parsed.ok()) return "error: " + parsed.status().message();
  auto text = (*parsed)->render(input);
  return text.ok() ? *text : "error: " + text.status().message();
}

inline Code render_code(const std::string& source, const RenderInput& input = plain_input()) {
  auto parsed = ChatTemplate::parse(source, "t.jinja");
  return parsed.ok() ? (*parsed)->render(input).status().code() : parsed.status().code();
}

}  // namespace cadre
