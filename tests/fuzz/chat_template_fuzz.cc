// Any text as a chat template, rendered with a fixed conversation under small limits.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "text/chat_template/chat_template.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view source(reinterpret_cast<const char*>(data), size);
  auto parsed = cadre::ChatTemplate::parse(source, "fuzz");
  if (!parsed.ok()) return 0;
  cadre::RenderInput input;
  input.messages_json =
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Grüße 👩‍🚀"}]},)"
      R"({"role": "assistant", "content": null, "tool_calls": [{"function": {"name": "f", "arguments": {"x": 1.5}}}]}])";
  input.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}])";
  input.extra_json = R"({"enable_thinking": false, "n": 3, "s": "<think>a</think>b", "d": {"k": [1, true]}})";
  input.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  input.now = 1'735'689'600;
  input.limits = {.max_steps = 100'000, .max_output = 1u << 20, .max_string = 1u << 20, .max_memory = 16u << 20};
  (void)(*parsed)->render(input).ok();
  return 0;
}
