// Renders what chat_template_jinja2_test.py asks for: one JSON object on each line of standard input,
// {"template", "messages", "tools", "extra", "special_tokens", "add_generation_prompt", "now"}, answered by one line,
// {"text"} or {"error"}.
#include <cstdint>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "text/chat_template/chat_template.h"

namespace {

using Json = nlohmann::ordered_json;

cadre::Result<std::string> answer(const Json& request) {
  auto parsed = cadre::ChatTemplate::parse(request.at("template").get<std::string>(), "case");
  if (!parsed.ok()) return std::move(parsed).status();
  cadre::RenderInput input;
  input.messages_json = request.at("messages").dump();
  if (!request.at("tools").is_null()) input.tools_json = request.at("tools").dump();
  input.extra_json = request.at("extra").dump();
  for (const auto& [name, token] : request.at("special_tokens").items()) {
    input.special_tokens.emplace_back(name, token.get<std::string>());
  }
  input.add_generation_prompt = request.at("add_generation_prompt").get<bool>();
  input.now = request.at("now").get<std::int64_t>();
  return (*parsed)->render(input);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto text = answer(Json::parse(line));
    Json reply;
    reply[text.ok() ? "text" : "error"] = text.ok() ? *text : text.status().message();
    std::cout << reply.dump(-1, ' ', false, Json::error_handler_t::replace) << '\n';
  }
  return 0;
}
