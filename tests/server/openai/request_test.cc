#include "server/openai/request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "server/openai/compact.h"

namespace cadre::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::string chat_body(const std::string& more) {
  return R"({"messages": [{"role": "user", "content": "hi"}])" + (more.empty() ? "" : ", " + more) + "}";
}
std::string text_body(const std::string& more) {
  return R"({"prompt": "hi")" + (more.empty() ? "" : ", " + more) + "}";
}

ChatRequest chat(const std::string& more) {
  const auto request = parse_chat_request(chat_body(more));
  EXPECT_TRUE(request.ok()) << more << ": " << (request.ok() ? "" : request.error().message);
  return request.ok() ? *request : ChatRequest();
}
CompletionRequest completion(const std::string& more) {
  const auto request = parse_completion_request(text_body(more));
  EXPECT_TRUE(request.ok()) << more << ": " << (request.ok() ? "" : request.error().message);
  return request.ok() ? *request : CompletionRequest();
}

TEST(Request, EveryCommonField) {
  const std::string fields = R"("model": "base", "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05,
      "presence_penalty": -2, "frequency_penalty": 2, "repetition_penalty": 1.1, "seed": -1, "stop": ["a", "b"],
      "stop_token_ids": [7, 8], "logit_bias": {"12": -100, "3": 1.5}, "min_tokens": 2, "max_tokens": 9,
      "ignore_eos": true, "include_stop_str_in_output": true, "n": 3, "best_of": 3, "stream": true,
      "stream_options": {"include_usage": true, "continuous_usage_stats": true}, "priority": -4, "cache_salt": "s",
      "add_special_tokens": true, "skip_special_tokens": true, "response_format": {"type": "text"}, "user": "u",
      "metadata": {"k": "v"}, "store": true, "service_tier": "auto")";
  const auto check = [](const GenerationRequest& r) {
    EXPECT_EQ(r.model, "base");
    EXPECT_EQ(r.sampling.temperature, 0.5);
    EXPECT_EQ(r.sampling.top_p, 0.9);
    EXPECT_EQ(r.sampling.top_k, 40);
    EXPECT_EQ(r.sampling.min_p, 0.05);
    EXPECT_EQ(r.sampling.presence_penalty, -2);
    EXPECT_EQ(r.sampling.frequency_penalty, 2);
    EXPECT_EQ(r.sampling.repetition_penalty, 1.1);
    EXPECT_EQ(r.sampling.seed, std::numeric_limits<std::uint64_t>::max());
    EXPECT_THAT(r.sampling.stop, ElementsAre("a", "b"));
    EXPECT_THAT(r.sampling.stop_token_ids, ElementsAre(7, 8));
    EXPECT_EQ(r.sampling.logit_bias, (std::map<std::int32_t, float>{{3, 1.5f}, {12, -100.0f}}));
    EXPECT_EQ(r.sampling.min_tokens, 2);
    EXPECT_EQ(r.sampling.max_tokens, 9);
    EXPECT_EQ(r.sampling.ignore_eos, true);
    EXPECT_EQ(r.sampling.include_stop, true);
    EXPECT_FALSE(r.sampling.logprobs);
    EXPECT_EQ(r.n, 3);
    EXPECT_TRUE(r.stream && r.include_usage && r.continuous_usage);
    EXPECT_EQ(r.priority, -4);
    EXPECT_EQ(r.cache_salt, "s");
    EXPECT_EQ(r.add_special_tokens, true);
  };
  check(chat(fields));
  check(completion(fields));
}

TEST(Request, AbsentAndNullAreTheSame) {
  for (const std::string fields :
       {"", R"("model": null, "temperature": null, "top_k": null, "stop": null, "seed": null, "logit_bias": null,
                "max_tokens": null, "n": null, "stream": null, "stream_options": null, "logprobs": null,
                "response_format": null, "user": null, "functions": null, "suffix": null, "skip_special_tokens": null,
                "chat_template": null)"}) {
    const ChatRequest c = chat(fields);
    EXPECT_EQ(c.model, "");
    EXPECT_FALSE(c.sampling.temperature || c.sampling.top_k || c.sampling.seed || c.sampling.max_tokens);
    EXPECT_FALSE(c.sampling.ignore_eos || c.sampling.logprobs || c.prompt_logprobs || c.add_special_tokens);
    EXPECT_THAT(c.sampling.stop, IsEmpty());
    EXPECT_EQ(c.n, 1);
    EXPECT_FALSE(c.stream || c.include_usage || c.parse_tools);
    EXPECT_TRUE(c.chat.add_generation_prompt && c.parallel_tools);
    const CompletionRequest t = completion(fields);
    EXPECT_EQ(t.sampling.max_tokens, 16);
    EXPECT_FALSE(t.echo || t.prompt_only || t.engine_prompt_logprobs());
  }
}

TEST(Request, Spellings) {
  EXPECT_THAT(chat(R"("stop": "end")").sampling.stop, ElementsAre("end"));
  EXPECT_EQ(chat(R"("seed": 9223372036854775807)").sampling.seed, 0x7fffffffffffffffu);
  EXPECT_EQ(chat(R"("seed": -9223372036854775808)").sampling.seed, 0x8000000000000000u);
  EXPECT_EQ(chat(R"("max_completion_tokens": 5)").sampling.max_tokens, 5);
  EXPECT_EQ(chat(R"("max_completion_tokens": 5, "max_tokens": 5)").sampling.max_tokens, 5);
  EXPECT_EQ(chat(R"("temperature": 1)").sampling.temperature, 1.0);
  EXPECT_EQ(chat(R"("logprobs": true)").sampling.logprobs, 0);
  EXPECT_EQ(chat(R"("logprobs": true, "top_logprobs": 5)").sampling.logprobs, 5);
  EXPECT_FALSE(chat(R"("logprobs": false, "top_logprobs": 0)").sampling.logprobs);
  EXPECT_EQ(chat(R"("prompt_logprobs": 2)").prompt_logprobs, 2);
  EXPECT_EQ(completion(R"("logprobs": 3)").sampling.logprobs, 3);
  EXPECT_EQ(completion(R"("logprobs": 0)").sampling.logprobs, 0);
}

TEST(Request, Echo) {
  const CompletionRequest scored = completion(R"("echo": true, "max_tokens": 0, "logprobs": 2, "prompt_logprobs": 1)");
  EXPECT_TRUE(scored.echo && scored.prompt_only);
  EXPECT_EQ(scored.sampling.max_tokens, 1);
  EXPECT_EQ(scored.engine_prompt_logprobs(), 2);
  EXPECT_EQ(scored.prompt_logprobs, 1);
  EXPECT_EQ(completion(R"("echo": true, "prompt_logprobs": 1)").engine_prompt_logprobs(), 1);
  EXPECT_FALSE(completion(R"("logprobs": 2)").engine_prompt_logprobs());
}

TEST(Request, Prompts) {
  using Ids = std::vector<std::int32_t>;
  const auto prompts = [](const std::string& prompt) {
    const auto request = parse_completion_request(R"({"prompt": )" + prompt + "}");
    EXPECT_TRUE(request.ok()) << prompt;
    return request.ok() ? request->prompts : std::vector<Prompt>();
  };
  EXPECT_THAT(prompts(R"("one")"), ElementsAre(Prompt("one")));
  EXPECT_THAT(prompts(R"("")"), ElementsAre(Prompt("")));
  EXPECT_THAT(prompts(R"(["one", "two"])"), ElementsAre(Prompt("one"), Prompt("two")));
  EXPECT_THAT(prompts("[1, 2, 3]"), ElementsAre(Prompt(Ids{1, 2, 3})));
  EXPECT_THAT(prompts("[[1], [2, 3]]"), ElementsAre(Prompt(Ids{1}), Prompt(Ids{2, 3})));
}

struct Bad {
  std::string fields;
  std::string param;
  std::string message;  // a part of it
};

void expect_refused(const ApiError& error, const Bad& bad) {
  EXPECT_EQ(error.status, 400) << bad.fields;
  EXPECT_EQ(error.type, "invalid_request_error") << bad.fields;
  EXPECT_EQ(error.param, bad.param) << bad.fields << ": " << error.message;
  EXPECT_THAT(error.message, AllOf(HasSubstr(bad.param), HasSubstr(bad.message))) << bad.fields;
}

TEST(Request, BothRoutesRefuse) {
  const std::vector<Bad> cases = {
      {R"("model": 3)", "model", "is 3, want a string"},
      {R"("temperature": "hot")", "temperature", "is \"hot\", want a number of at least 0"},
      {R"("temperature": -0.1)", "temperature", "is -0.1"},
      {R"("temperature": 1e999)", "temperature", "want a number"},
      {R"("temperature": true)", "temperature", "is true"},
      {R"("top_p": 1.5)", "top_p", "want a number from 0 to 1"},
      {R"("min_p": [0])", "min_p", "is an array"},
      {R"("top_k": -2)", "top_k", "want an integer from -1"},
      {R"("top_k": 1.5)", "top_k", "is 1.5"},
      {R"("top_k": 3000000000)", "top_k", "is 3000000000"},
      {R"("presence_penalty": 3)", "presence_penalty", "from -2 to 2"},
      {R"("frequency_penalty": -3)", "frequency_penalty", "from -2 to 2"},
      {R"("repetition_penalty": 0)", "repetition_penalty", "above 0"},
      {R"("seed": 1e30)", "seed", "want an integer"},
      {R"("seed": "1")", "seed", "want an integer"},
      {R"("n": 0)", "n", "from 1 to 128"},
      {R"("n": 129)", "n", "from 1 to 128"},
      {R"("n": 2, "best_of": 3)", "best_of", "is 3, want 2"},
      {R"("stop": 5)", "stop", "is 5, want a string or a list"},
      {R"("stop": ["a", 5])", "stop", "has 5"},
      {R"("stop": [""])", "stop", "empty string"},
      {R"("stop": ["1","2","3","4","5","6","7","8","9","10","11","12","13","14","15","16","17","18","19","20","21","22",
           "23","24","25","26","27","28","29","30","31","32","33","34","35","36","37","38","39","40","41","42","43",
           "44","45","46","47","48","49","50","51","52","53","54","55","56","57","58","59","60","61","62","63","64",
           "65"])",
       "stop", "has 65 strings, want at most 64"},
      {R"("stop_token_ids": [1, "2"])", "stop_token_ids", "has \"2\""},
      {R"("stop_token_ids": [-1])", "stop_token_ids", "has -1"},
      {R"("stop_token_ids": 1)", "stop_token_ids", "want an array"},
      {R"("logit_bias": [1])", "logit_bias", "want an object"},
      {R"("logit_bias": {"x": 1})", "logit_bias", "has the key \"x\""},
      {R"("logit_bias": {"-1": 1})", "logit_bias", "has the key \"-1\""},
      {R"("logit_bias": {"1": 101})", "logit_bias", "of token 1 is 101"},
      {R"("logit_bias": {"1": "5"})", "logit_bias", "of token 1 is \"5\""},
      {R"("logit_bias": {"1": 1, "01": 2})", "logit_bias", "twice"},
      {R"("min_tokens": -1)", "min_tokens", "is -1"},
      {R"("ignore_eos": 1)", "ignore_eos", "is 1, want true or false"},
      {R"("stream": "yes")", "stream", "want true or false"},
      {R"("stream_options": {"include_usage": true})", "stream_options", "'stream': true"},
      {R"("stream": true, "stream_options": {"include_usage": 1})", "stream_options.include_usage", "is 1"},
      {R"("stream": true, "stream_options": {"x": 1})", "stream_options.x", "not known"},
      {R"("prompt_logprobs": 21)", "prompt_logprobs", "from 0 to 20"},
      {R"("prompt_logprobs": 1, "stream": true)", "prompt_logprobs", "stream"},
      {R"("max_tokens": -1)", "max_tokens", "is -1"},
      {R"("max_tokens": 0)", "max_tokens", "is 0"},
      {R"("skip_special_tokens": false)", "skip_special_tokens", "is not true"},
      {R"("response_format": {"type": "json_object"})", "response_format", "\"json_object\""},
      {R"("response_format": {"type": "json_schema", "json_schema": {}})", "response_format", "\"json_schema\""},
      {R"("response_format": {})", "response_format", "absent"},
      {R"("response_format": "text")", "response_format", "want an object"},
      {R"("guided_json": {"type": "object"})", "guided_json", "does not constrain"},
      {R"("guided_choice": ["a"])", "guided_choice", "does not constrain"},
      {R"("structured_outputs": {"regex": "a"})", "structured_outputs", "does not constrain"},
      {R"("use_beam_search": true)", "use_beam_search", "no beam search"},
      {R"("suffix": "x")", "suffix", "after the prompt only"},
      {R"("chat_template": "{{ messages }}")", "chat_template", "own template"},
      {R"("continue_final_message": true)", "continue_final_message", "not supported"},
      {R"("truncate_prompt_tokens": 5)", "truncate_prompt_tokens", "not supported"},
      {R"("cache_salt": 5)", "cache_salt", "want a string"},
      {R"("temprature": 0.5)", "temprature", "is not known to this server"},
      {R"("unknown": null)", "unknown", "is not known to this server"},
  };
  for (const Bad& bad : cases) {
    const auto in_chat = parse_chat_request(chat_body(bad.fields));
    ASSERT_FALSE(in_chat.ok()) << bad.fields;
    expect_refused(in_chat.error(), bad);
    const auto in_completion = parse_completion_request(text_body(bad.fields));
    ASSERT_FALSE(in_completion.ok()) << bad.fields;
    expect_refused(in_completion.error(), bad);
  }
}

TEST(Request, NeutralValuesOfRefusedFieldsPass) {
  chat(R"("use_beam_search": false, "guided_json": null, "functions": [], "logits_processors": [], "bad_words": [],
          "include_reasoning": true, "modalities": ["text"], "echo": false)");
  completion(R"("suffix": "", "use_beam_search": false, "length_penalty": 1.0, "best_of": 1)");
}

TEST(Request, CompletionsRefuse) {
  const std::vector<Bad> cases = {
      {R"({})", "prompt", "missing"},
      {R"({"prompt": null})", "prompt", "missing"},
      {R"({"prompt": 5})", "prompt", "is 5"},
      {R"({"prompt": []})", "prompt", "empty"},
      {R"({"prompt": [[]]})", "prompt", "empty list"},
      {R"({"prompt": [1, "a"]})", "prompt", "has \"a\""},
      {R"({"prompt": ["a", 1]})", "prompt", "has 1"},
      {R"({"prompt": [1.5]})", "prompt", "has 1.5"},
      {R"({"prompt": [1.0]})", "prompt", "has 1.0"},
      {R"({"prompt": [-1]})", "prompt", "has -1"},
      {R"({"prompt": [[1], [4294967296]]})", "prompt", "has 4294967296"},
      {R"({"prompt": "a", "logprobs": true})", "logprobs", "is true"},
      {R"({"prompt": "a", "logprobs": 21})", "logprobs", "is 21"},
      {R"({"prompt": "a", "messages": []})", "messages", "not known"},
      {R"({"prompt": "a", "tools": []})", "tools", "not known"},
      {R"({"prompt": ["a","b","c","d","e","f","g","h","i"], "n": 128})", "n", "1152, want at most 1024"},
  };
  for (const Bad& bad : cases) {
    const auto request = parse_completion_request(bad.fields);
    ASSERT_FALSE(request.ok()) << bad.fields;
    expect_refused(request.error(), bad);
  }
}

TEST(Request, BodiesThatAreNoJson) {
  for (const std::string body :
       {"", "{", "[]", "null", "nan", R"({"a": NaN})", R"({"n": 1, "n": 2})", "{} x", "{\"prompt\": \"\xff\"}"}) {
    const auto request = parse_completion_request(body);
    ASSERT_FALSE(request.ok()) << body;
    EXPECT_EQ(request.error().status, 400) << body;
    EXPECT_EQ(request.error().code, "invalid_json") << body;
    EXPECT_THAT(request.error().message, HasSubstr("body")) << body;
  }
}

TEST(Request, Limits) {
  RequestLimits limits;
  limits.max_body_bytes = 100;
  EXPECT_EQ(parse_chat_request(chat_body(R"("user": ")" + std::string(100, 'x') + "\""), limits).error().status, 413);
  limits = {};
  limits.max_values = 10;
  const auto many = parse_completion_request(R"({"prompt": [1,2,3,4,5,6,7,8,9,10,11]})", limits);
  ASSERT_FALSE(many.ok());
  EXPECT_EQ(many.error().code, "invalid_json");
  limits = {};
  limits.max_prompts = 2;
  EXPECT_TRUE(parse_completion_request(R"({"prompt": ["a", "b"]})", limits).ok());
  EXPECT_THAT(parse_completion_request(R"({"prompt": ["a", "b", "c"]})", limits).error().message,
              HasSubstr("has 3 prompts, want at most 2"));
  const std::string deep = std::string(80, '[') + std::string(80, ']');
  EXPECT_FALSE(parse_chat_request(chat_body(R"("metadata": )" + deep)).ok());
}

TEST(Request, LongNamesAreShortened) {
  const auto bias = parse_chat_request(chat_body(R"("logit_bias": {")" + std::string(100000, '0') + R"(1": 1000})"));
  ASSERT_FALSE(bias.ok());
  EXPECT_LT(bias.error().message.size(), 300u);
  const auto request = parse_chat_request(chat_body("\"" + std::string(100000, 'x') + "\": 1"));
  ASSERT_FALSE(request.ok());
  EXPECT_LT(request.error().message.size(), 300u);
  EXPECT_LT(request.error().param.size(), 100u);
}

TEST(OtherRequests, Tokenize) {
  const auto text = parse_tokenize_request(R"({"model": "m", "prompt": "a b", "return_token_strs": true})");
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(text->model, "m");
  EXPECT_EQ(std::get<std::string>(text->input), "a b");
  EXPECT_TRUE(text->add_special_tokens && text->return_token_strs);

  const auto messages = parse_tokenize_request(
      R"({"messages": [{"role": "user", "content": "x"}], "add_generation_prompt": false,
          "chat_template_kwargs": {"enable_thinking": false}})");
  ASSERT_TRUE(messages.ok()) << messages.error().message;
  const ChatInput& chat_input = std::get<ChatInput>(messages->input);
  EXPECT_EQ(compact(chat_input.messages_json), R"([{"role":"user","content":"x"}])");
  EXPECT_EQ(compact(chat_input.kwargs_json), R"({"enable_thinking":false})");
  EXPECT_FALSE(chat_input.add_generation_prompt || messages->add_special_tokens);

  EXPECT_EQ(parse_tokenize_request("{}").error().param, "prompt");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt": "a", "messages": [{"role": "user", "content": "x"}]})").error().param,
            "prompt");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt": "a", "temperature": 1})").error().param, "temperature");
  EXPECT_EQ(parse_tokenize_request(R"({"prompt": ["a"]})").error().param, "prompt");
}

TEST(OtherRequests, Detokenize) {
  const auto request = parse_detokenize_request(R"({"model": "m", "tokens": [1, 2]})");
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(request->tokens, ElementsAre(1, 2));
  EXPECT_TRUE(parse_detokenize_request(R"({"tokens": []})")->tokens.empty());
  EXPECT_EQ(parse_detokenize_request("{}").error().param, "tokens");
  EXPECT_EQ(parse_detokenize_request(R"({"tokens": [-1]})").error().param, "tokens");
}

TEST(OtherRequests, Adapters) {
  const auto load = parse_load_adapter_request(
      R"({"lora_name": "a", "lora_path": "x/y", "load_inplace": true, "pinned": true, "options": "b_order=rank_major"})");
  ASSERT_TRUE(load.ok());
  EXPECT_EQ(load->name, "a");
  EXPECT_EQ(load->path, "x/y");
  EXPECT_EQ(load->options, "b_order=rank_major");
  EXPECT_TRUE(load->replace && load->pinned);
  const auto plain = parse_load_adapter_request(R"({"lora_name": "a", "lora_path": "x"})");
  EXPECT_FALSE(plain->replace || plain->pinned);
  EXPECT_EQ(parse_load_adapter_request(R"({"lora_name": "", "lora_path": "x"})").error().param, "lora_name");
  EXPECT_EQ(parse_load_adapter_request(R"({"lora_name": "a"})").error().param, "lora_path");
  EXPECT_EQ(parse_load_adapter_request(R"({"lora_name": "a", "lora_path": "x", "base": 1})").error().param, "base");
  EXPECT_EQ(parse_unload_adapter_request(R"({"lora_name": "a", "lora_int_id": 3})")->name, "a");
  EXPECT_EQ(parse_unload_adapter_request(R"({"name": "a"})").error().param, "lora_name");
}

}  // namespace
}  // namespace cadre::server
