// Bodies of the tokenizer and adapter routes, in vLLM's form.
#include "server/openai/parsing.h"

namespace cadre::server {
namespace {

using Kind = KnownField::Kind;

constexpr KnownField kKnownOfTokenize[] = {
    {"continue_final_message", Kind::kOnlyOff, "is not supported"},
    {"chat_template", Kind::kRefused,
     "is not accepted in a request: the model's or the adapter's own template is used"},
};

// The parsed body, or its error. `read` fills `out` from the fields.
template <class T, class Read>
ApiResult<T> parse(std::string_view body, const RequestLimits& limits, const Read& read) {
  const ApiResult<Json> json = parse_body(body, limits);
  if (!json.ok()) return json.error();
  T out;
  std::optional<ApiError> error;
  Fields fields(*json, "", error);
  read(fields, *json, out);
  if (error) return *std::move(error);
  return out;
}

void need(Fields& fields, std::string_view key, std::string& out) {
  out = fields.text(key).value_or("");
  if (out.empty()) fields.fail(key, "is missing");
}

}  // namespace

ApiResult<TokenizeRequest> parse_tokenize_request(std::string_view body, const RequestLimits& limits) {
  return parse<TokenizeRequest>(body, limits, [&](Fields& fields, const Json& json, TokenizeRequest& out) {
    out.model = fields.text("model").value_or("");
    const bool chat = json.has("messages");
    if (chat) {
      if (json.has("prompt")) return fields.fail("prompt", "is given beside 'messages', want one of them");
      ChatInput input;
      bool tools = false;
      read_chat(fields, limits, input, tools);
      out.input = std::move(input);
    } else {
      const auto prompt = fields.text("prompt");
      if (!prompt) fields.fail("prompt", "is missing, and so is 'messages'");
      out.input = prompt.value_or("");
    }
    out.add_special_tokens = fields.boolean("add_special_tokens").value_or(!chat);
    out.return_token_strs = fields.boolean("return_token_strs").value_or(false);
    fields.refuse_others(kKnownOfTokenize);
  });
}

ApiResult<DetokenizeRequest> parse_detokenize_request(std::string_view body, const RequestLimits& limits) {
  return parse<DetokenizeRequest>(body, limits, [&](Fields& fields, const Json&, DetokenizeRequest& out) {
    out.model = fields.text("model").value_or("");
    const Json* tokens = fields.array("tokens", limits.max_values);
    if (tokens == nullptr) return fields.fail("tokens", "is missing");
    out.tokens = read_ids(fields, "tokens", *tokens);
    fields.refuse_others();
  });
}

ApiResult<LoadAdapterRequest> parse_load_adapter_request(std::string_view body, const RequestLimits& limits) {
  return parse<LoadAdapterRequest>(body, limits, [&](Fields& fields, const Json&, LoadAdapterRequest& out) {
    need(fields, "lora_name", out.name);
    need(fields, "lora_path", out.path);
    out.options = fields.text("options").value_or("");
    out.replace = fields.boolean("load_inplace").value_or(false);
    out.pinned = fields.boolean("pinned").value_or(false);
    fields.refuse_others();
  });
}

ApiResult<UnloadAdapterRequest> parse_unload_adapter_request(std::string_view body, const RequestLimits& limits) {
  return parse<UnloadAdapterRequest>(body, limits, [&](Fields& fields, const Json&, UnloadAdapterRequest& out) {
    need(fields, "lora_name", out.name);
    // vLLM's number of the adapter beside its name.
    static constexpr KnownField kNumber[] = {{"lora_int_id", Kind::kIgnored, ""}};
    fields.refuse_others(kNumber);
  });
}

}  // namespace cadre::server
