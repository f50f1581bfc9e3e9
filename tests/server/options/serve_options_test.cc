#include "cli/serve_options.h"

#include <gmock/gmock.h>

#include <map>
#include <string>
#include <vector>

#include "cli/options.h"
#include "files.h"

namespace cadre::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using Variables = std::map<std::string, std::string>;

class ServeOptions : public ::testing::Test {
 protected:
  Result<Command> parse(std::vector<std::string> words, const Variables& variables = {}) {
    words.insert(words.begin(), {"cadre", "serve"});
    std::vector<const char*> argv;
    for (const std::string& word : words) argv.push_back(word.c_str());
    Environment environment;
    environment.variables = variables;
    if (variables.contains("CADRE_MOE_BACKEND")) environment.backend = variables.at("CADRE_MOE_BACKEND");
    return parse_command_line(static_cast<int>(argv.size()), argv.data(), environment);
  }
  ServeCommand serve(const std::vector<std::string>& words, const Variables& variables = {}) {
    const Result<Command> command = parse(words, variables);
    EXPECT_TRUE(command.ok()) << command.status().message();
    if (!command.ok() || !std::holds_alternative<ServeCommand>(*command)) return {};
    return std::get<ServeCommand>(*command);
  }
  // With a model before the words.
  ServeCommand with(std::vector<std::string> words, const Variables& variables = {}) {
    words.insert(words.begin(), {"--model", model_});
    return serve(words, variables);
  }
  std::string refused(std::vector<std::string> words, const Variables& variables = {}) {
    words.insert(words.begin(), {"--model", model_});
    const Result<Command> command = parse(words, variables);
    EXPECT_FALSE(command.ok()) << words.back();
    return command.status().message();
  }

  TempFolder files_;
  std::string model_ = files_.folder("tiny-moe");
  std::string a_ = files_.folder("adapters/a"), b_ = files_.folder("adapters/b");
};

TEST_F(ServeOptions, Defaults) {
  const ServeCommand command = with({});
  EXPECT_EQ(command.engine.model_dir, model_);
  EXPECT_EQ(command.engine.max_num_seqs, 32);
  EXPECT_EQ(command.engine.max_num_batched_tokens, 512);
  EXPECT_TRUE(command.engine.enable_prefix_caching);
  EXPECT_FALSE(command.engine.loras_on_experts);
  EXPECT_EQ(command.server.host, "127.0.0.1");
  EXPECT_EQ(command.server.port, 8000);
  EXPECT_TRUE(command.server.log_requests);
  EXPECT_THAT(command.server.served_model_names, ElementsAre("tiny-moe"));  // not the path
  EXPECT_THAT(command.server.api_keys, IsEmpty());
  EXPECT_THAT(command.notes, IsEmpty());
}

TEST_F(ServeOptions, TheModelMayStandAlone) {
  EXPECT_EQ(serve({model_, "--port", "1"}).engine.model_dir, model_);
  EXPECT_EQ(serve({"--port", "1", model_}).engine.model_dir, model_);
  const auto both = parse({model_, "--model", model_});
  EXPECT_FALSE(both.ok());
  EXPECT_THAT(parse({}).status().message(), HasSubstr("--model DIR|ORG/NAME is missing"));
  EXPECT_THAT(parse({model_, model_}).status().message(), HasSubstr("unexpected"));
}

TEST_F(ServeOptions, AModelOfTheCache) {
  files_.file("cache/models--acme--moe/refs/main", "abcdef");
  files_.file("cache/models--acme--moe/snapshots/abcdef/config.json", "{}");
  const Variables variables = {{"HF_HUB_CACHE", files_.path("cache")}};
  for (const char* name : {"acme/moe", "acme/moe@main", "acme/moe@abcd"}) {
    const ServeCommand command = serve({name}, variables);
    EXPECT_EQ(command.engine.model_dir, files_.path("cache/models--acme--moe/snapshots/abcdef"));
    EXPECT_THAT(command.server.served_model_names, ElementsAre("acme/moe"));
  }
  EXPECT_THAT(parse({"acme/none"}, variables).status().message(), HasSubstr("hf download acme/none"));
}

TEST_F(ServeOptions, EveryValue) {
  const ServeCommand command = with({"--host",
                                     "0.0.0.0",
                                     "--port",
                                     "0",
                                     "--served-model-name",
                                     "one",
                                     "two",
                                     "--max-loras",
                                     "4",
                                     "--max-lora-rank",
                                     "64",
                                     "--max-cpu-loras",
                                     "9",
                                     "--max-model-len",
                                     "2048",
                                     "--max-num-seqs",
                                     "16",
                                     "--max-num-batched-tokens",
                                     "256",
                                     "--kv-cache-memory",
                                     "2G",
                                     "--no-enable-prefix-caching",
                                     "--api-key",
                                     "k1",
                                     "k2",
                                     "--admin-key",
                                     "root",
                                     "--keys",
                                     "keys.json",
                                     "--adapter-dir",
                                     files_.path("adapters"),
                                     "--share-prefix-cache",
                                     "--backend",
                                     "require cpu_reference",
                                     "--threads",
                                     "3",
                                     "--rehearse",
                                     "off",
                                     "--batch-invariant",
                                     "--request-timeout",
                                     "1.5",
                                     "--drain-timeout",
                                     "0",
                                     "--max-queued-requests",
                                     "7",
                                     "--max-adapter-bytes",
                                     "1M",
                                     "--max-adapters",
                                     "5",
                                     "--default-chat-template-kwargs",
                                     "{\"enable_thinking\": false}",
                                     "--log-format",
                                     "json",
                                     "--log-level",
                                     "debug",
                                     "--no-enable-log-requests",
                                     "--max-header-bytes",
                                     "8K",
                                     "--max-body-bytes",
                                     "1M",
                                     "--max-connections",
                                     "10",
                                     "--header-timeout",
                                     "1",
                                     "--body-timeout",
                                     "2",
                                     "--idle-timeout",
                                     "3",
                                     "--write-timeout",
                                     "4",
                                     "--check-weights",
                                     "--verbose"});
  const EngineOptions& engine = command.engine;
  EXPECT_EQ(engine.max_loras, 4);
  EXPECT_EQ(engine.max_lora_rank, 64);
  EXPECT_EQ(engine.max_cpu_loras, 9);
  EXPECT_EQ(engine.max_model_len, 2048);
  EXPECT_EQ(engine.max_num_seqs, 16);
  EXPECT_EQ(command.server.max_num_seqs, 16);
  EXPECT_EQ(engine.max_num_batched_tokens, 256);
  EXPECT_EQ(engine.kv_cache_memory, std::int64_t{2} << 30);
  EXPECT_FALSE(engine.enable_prefix_caching);
  EXPECT_EQ(engine.threads, 3);
  EXPECT_EQ(engine.rehearse, Rehearse::kOff);
  EXPECT_TRUE(engine.batch_invariant && engine.check_weights && engine.loras_on_experts);
  const server::ServeOptions& s = command.server;
  EXPECT_EQ(s.host, "0.0.0.0");
  EXPECT_EQ(s.port, 0);
  EXPECT_THAT(s.served_model_names, ElementsAre("one", "two"));
  EXPECT_THAT(s.api_keys, ElementsAre("k1", "k2"));
  EXPECT_EQ(s.admin_key, "root");
  EXPECT_EQ(s.keys_file, "keys.json");
  EXPECT_EQ(s.adapter_dir, files_.path("adapters"));
  EXPECT_TRUE(s.share_prefix_cache);
  EXPECT_EQ(s.request_timeout_s, 1.5);
  EXPECT_EQ(s.drain_timeout_s, 0);
  EXPECT_EQ(s.max_queued_requests, 7);
  EXPECT_EQ(s.max_adapter_bytes, 1 << 20);
  EXPECT_EQ(s.max_adapters, 5);
  EXPECT_EQ(s.default_chat_template_kwargs, "{\"enable_thinking\": false}");
  EXPECT_EQ(s.log_format, "json");
  EXPECT_EQ(s.log_level, "debug");
  EXPECT_FALSE(s.log_requests);
  EXPECT_EQ(s.http.max_header_bytes, 8u << 10);
  EXPECT_EQ(s.http.max_body_bytes, 1u << 20);
  EXPECT_EQ(s.http.max_connections, 10);
  EXPECT_EQ(s.http.header_timeout_s + s.http.body_timeout_s + s.http.idle_timeout_s + s.http.write_timeout_s, 10);
  EXPECT_TRUE(command.verbose);
}

TEST_F(ServeOptions, Adapters) {
  const ServeCommand command =
      with({"--adapter", "a=" + a_ + ",check_weights=false", "--lora-modules", "b=" + b_,
            "{\"name\": \"c\", \"path\": \"" + b_ + "\", \"base_model_name\": \"tiny-moe\"}", "--pin-adapter", "c"});
  const auto& adapters = command.engine.adapters;
  ASSERT_EQ(adapters.size(), 3u);
  EXPECT_EQ(adapters[0].options, "check_weights=false");
  EXPECT_EQ(adapters[1].dir, b_);
  EXPECT_EQ(adapters[2].name, "c");
  EXPECT_TRUE(adapters[2].pinned && !adapters[0].pinned);
  EXPECT_THAT(command.notes, IsEmpty());
  const ServeCommand other =
      with({"--lora-modules", "{\"name\": \"c\", \"path\": \"" + b_ + "\", \"base_model_name\": \"large\"}"});
  ASSERT_EQ(other.notes.size(), 1u);
  EXPECT_THAT(other.notes[0], HasSubstr("'large'"));
  EXPECT_THAT(refused({"--adapter", "a=" + a_, "--lora-modules", "a=" + b_}), HasSubstr("two models are named 'a'"));
  EXPECT_THAT(refused({"--adapter", "tiny-moe=" + a_}), HasSubstr("two models are named 'tiny-moe'"));
  EXPECT_THAT(refused({"--lora-modules", "base=" + a_}), HasSubstr("cannot be named 'base'"));
  EXPECT_THAT(refused({"--lora-modules", "{\"name\": \"all\", \"path\": \"x\"}"}), HasSubstr("cannot be named 'all'"));
  EXPECT_THAT(refused({"--lora-modules", "{\"name\": \"x\", \"rank\": 1}"}), HasSubstr("unknown field 'rank'"));
  EXPECT_THAT(refused({"--lora-modules", "{\"name\": \"x\"}"}), HasSubstr("path"));
  EXPECT_THAT(refused({"--lora-modules", "{\"name\": "}), HasSubstr("--lora-modules"));
  EXPECT_THAT(refused({"--lora-modules", "{\"name\": \"x\", \"path\": \"\"}"}), HasSubstr("path of 'x' is empty"));
  EXPECT_THAT(refused({"--pin-adapter", "a"}), HasSubstr("no adapter is named 'a'"));
}

TEST_F(ServeOptions, ValuesThatCannotBe) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--port", "65536"}, "--port is '65536', want an integer from 0 to 65535"},
      {{"--port", "http"}, "--port is 'http'"},
      {{"--max-num-seqs", "0"}, "--max-num-seqs is '0'"},
      {{"--max-num-batched-tokens", "0"}, "--max-num-batched-tokens is '0'"},
      {{"--kv-cache-memory", "much"}, "--kv-cache-memory is 'much'"},
      {{"--request-timeout", "-1"}, "--request-timeout is '-1', want seconds, 0 to 604800"},
      {{"--header-timeout", "0"}, "want seconds, more than 0"},
      {{"--max-header-bytes", "1"}, "at least 1024 bytes"},
      {{"--log-format", "xml"}, "--log-format is 'xml', want text or json"},
      {{"--log-level", "loud"}, "want debug, info, warning or error"},
      {{"--rehearse", "twice"}, "want off, quick or full"},
      {{"--backend", "require"}, "--backend"},
      {{"--default-chat-template-kwargs", "[1]"}, "want an object"},
      {{"--default-chat-template-kwargs", "{"}, "--default-chat-template-kwargs"},
      {{"--adapter-dir", "nowhere"}, "--adapter-dir: the folder 'nowhere' is not there"},
      {{"--api-key", ""}, "--api-key is empty"},
      {{"--admin-key", ""}, "--admin-key is empty"},
      {{"--api-key", "same", "--admin-key", "same"}, "--admin-key is also an --api-key"},
      {{"--host", ""}, "--host ADDRESS is missing"},
      {{"--enable-prefix-caching", "--no-enable-prefix-caching"}, "both given"},
      {{"--port", "1", "--port", "2"}, "--port is given 2 times"},
      {{"--served-model-name", "a", "a"}, "'a' is given twice"},
      {{"--prot", "1"}, "unknown flag '--prot', did you mean '--port'?"},
      {{"--config", "nowhere.yaml"}, "there is no file 'nowhere.yaml'"},
  };
  for (const auto& [words, part] : cases) EXPECT_THAT(refused(words), HasSubstr(part));
  // A secret is not repeated.
  EXPECT_THAT(refused({"--api-key", "two words"}), Not(HasSubstr("two words")));
}

TEST_F(ServeOptions, OverridesOfTheConfig) {
  EXPECT_EQ(with({}).engine.hf_overrides, "");
  const std::string json = R"({"rope_scaling": null})";
  EXPECT_EQ(with({"--hf-overrides", json}).engine.hf_overrides, json);
  EXPECT_EQ(with({}, {{"CADRE_SERVE_HF_OVERRIDES", json}}).engine.hf_overrides, json);
  const std::string file =
      files_.file("overrides.yaml", "hf-overrides:\n  rope_scaling: null\n  text_config: {a: 1.5}\n");
  EXPECT_EQ(with({"--config", file}).engine.hf_overrides, R"({"rope_scaling": null, "text_config": {"a": 1.5}})");
  EXPECT_THAT(refused({"--hf-overrides", "[1]"}), HasSubstr("--hf-overrides is an array, want a JSON object"));
  EXPECT_THAT(refused({"--hf-overrides", "{"}), HasSubstr("--hf-overrides"));
}

TEST_F(ServeOptions, LineThenEnvironmentThenFile) {
  const std::string config = files_.file("serve.yaml",
                                         "port: 3\nmax_num_seqs: 3\nmax-queued-requests: 3\n"
                                         "enable-prefix-caching: false\nbatch-invariant: true\napi-key: [x, y]\n"
                                         "default_chat_template_kwargs: {enable_thinking: false}\n"
                                         "lora-modules:\n - a=" +
                                             a_ + "\n - {name: b, path: " + b_ + "}\n");
  const Variables variables = {{"CADRE_SERVE_PORT", "2"},
                               {"CADRE_SERVE_MAX_NUM_SEQS", "2"},
                               {"CADRE_SERVE_CONFIG", config},
                               {"CADRE_SERVE_HOST", ""}};
  ServeCommand command = with({"--port", "1"}, variables);
  EXPECT_EQ(command.server.port, 1);
  EXPECT_EQ(command.engine.max_num_seqs, 2);
  EXPECT_EQ(command.server.max_queued_requests, 3);
  EXPECT_EQ(command.server.host, "127.0.0.1");
  EXPECT_FALSE(command.engine.enable_prefix_caching);
  EXPECT_TRUE(command.engine.batch_invariant);
  EXPECT_THAT(command.server.api_keys, ElementsAre("x", "y"));
  EXPECT_EQ(command.server.default_chat_template_kwargs, "{\"enable_thinking\": false}");
  ASSERT_EQ(command.engine.adapters.size(), 2u);
  EXPECT_EQ(command.engine.adapters[1].dir, b_);
  EXPECT_THAT(command.notes, IsEmpty());

  command = with({"--enable-prefix-caching", "--api-key", "z"}, variables);
  EXPECT_TRUE(command.engine.enable_prefix_caching);
  EXPECT_THAT(command.server.api_keys, ElementsAre("z"));
  Variables more = variables;
  more["CADRE_SERVE_ENABLE_PREFIX_CACHING"] = "1";
  more["CADRE_SERVE_BATCH_INVARIANT"] = "false";
  command = with({}, more);
  EXPECT_TRUE(command.engine.enable_prefix_caching);
  EXPECT_FALSE(command.engine.batch_invariant);
  EXPECT_FALSE(with({"--no-enable-prefix-caching"}, more).engine.enable_prefix_caching);
  EXPECT_THAT(refused({}, {{"CADRE_MOE_BACKEND", "prefer"}}), HasSubstr("CADRE_MOE_BACKEND: "));
  // What comes first hides the rest, right or wrong.
  with({}, {{"CADRE_MOE_BACKEND", "prefer"}, {"CADRE_SERVE_BACKEND", "auto"}});
  // The model too.
  EXPECT_EQ(serve({}, {{"CADRE_SERVE_MODEL", model_}}).engine.model_dir, model_);
}

TEST_F(ServeOptions, SeveralValuesInAVariable) {
  EXPECT_THAT(with({}, {{"CADRE_SERVE_API_KEY", " k1 k2\n"}}).server.api_keys, ElementsAre("k1", "k2"));
  EXPECT_THAT(with({}, {{"CADRE_SERVE_API_KEY", "[\"k1\", \"k2\"]"}}).server.api_keys, ElementsAre("k1", "k2"));
  EXPECT_THAT(with({}, {{"CADRE_SERVE_API_KEY", " "}}).server.api_keys, IsEmpty());
  const std::string module = "{\"name\": \"c\", \"path\": \"" + b_ + "\"}";
  EXPECT_EQ(with({}, {{"CADRE_SERVE_LORA_MODULES", module}}).engine.adapters.size(), 1u);
  EXPECT_EQ(with({}, {{"CADRE_SERVE_LORA_MODULES", "[" + module + ", \"d=" + a_ + "\"]"}}).engine.adapters.size(), 2u);
  EXPECT_THAT(refused({}, {{"CADRE_SERVE_API_KEY", "[1]"}}), HasSubstr("CADRE_SERVE_API_KEY: the list has 1"));
}

TEST_F(ServeOptions, ErrorsSayWhereAValueComesFrom) {
  EXPECT_THAT(refused({}, {{"CADRE_SERVE_PORT", "x"}}), HasSubstr("CADRE_SERVE_PORT: --port is 'x'"));
  EXPECT_THAT(refused({}, {{"CADRE_SERVE_PORT", "tcp://10.0.0.1:8000"}}), HasSubstr("Kubernetes"));
  EXPECT_THAT(refused({}, {{"CADRE_SERVE_BATCH_INVARIANT", "maybe"}}), HasSubstr("want true or false"));
  const auto in_file = [&](const std::string& text) { return refused({"--config", files_.file("serve.yaml", text)}); };
  EXPECT_THAT(in_file("host: x\nport: y\n"), HasSubstr("serve.yaml:2: --port is 'y'"));
  EXPECT_THAT(in_file("prot: 1\n"), HasSubstr("serve.yaml:1: unknown key 'prot', did you mean 'port'?"));
  EXPECT_THAT(in_file("max-num-seqs: 1\nmax_num_seqs: 2\n"), HasSubstr("is the key 'max-num-seqs' again"));
  EXPECT_THAT(in_file("port: [1, 2]\n"), HasSubstr("'port' has a list, want one value"));
  EXPECT_THAT(in_file("batch-invariant: perhaps\n"), HasSubstr("want true or false"));
  EXPECT_THAT(in_file("config: other.yaml\n"), HasSubstr("unknown key 'config'"));
  EXPECT_THAT(in_file("port: 1\nport: 2\n"), HasSubstr("serve.yaml:2: 'port' is given again"));
  EXPECT_THAT(in_file("tensor-parallel-size: 4\n"), HasSubstr("serve.yaml:1: --tensor-parallel-size is '4'"));
  // A mistyped variable is said, and no error: it may be somebody else's.
  const ServeCommand command = with({}, {{"CADRE_SERVE_PROT", "1"}});
  ASSERT_EQ(command.notes.size(), 1u);
  EXPECT_THAT(command.notes[0], HasSubstr("CADRE_SERVE_PROT is not looked at"));
  EXPECT_THAT(command.notes[0], HasSubstr("did you mean '--port'?"));
}

TEST_F(ServeOptions, FlagsOfVllm) {
  ServeCommand command = with({"--enable-lora", "--tensor-parallel-size", "1", "--dtype", "auto"});
  EXPECT_EQ(command.notes.size(), 3u);
  EXPECT_THAT(command.notes[0], HasSubstr("--enable-lora has no effect"));
  command = with({"--kv-cache-memory-bytes", "1G", "--uvicorn-log-level", "error", "--disable-log-requests"});
  EXPECT_EQ(command.engine.kv_cache_memory, 1 << 30);
  EXPECT_EQ(command.server.log_level, "error");
  EXPECT_FALSE(command.server.log_requests);
  EXPECT_THAT(refused({"--tensor-parallel-size", "2"}), HasSubstr("which cadre cannot do, want 1; "));
  EXPECT_THAT(refused({"--dtype", "float16"}), HasSubstr("want auto or bfloat16"));
  EXPECT_THAT(refused({"--quantization", "awq"}), HasSubstr("config.json"));
  EXPECT_THAT(refused({"--gpu-memory-utilization", "0.9"}), HasSubstr("--kv-cache-memory"));
  EXPECT_THAT(refused({"--uvicorn-log-level", "loud"}), HasSubstr("--uvicorn-log-level: --log-level is 'loud'"));
  EXPECT_THAT(refused({"--kv-cache-memory-bytes", "1G", "--kv-cache-memory", "1G"}), HasSubstr("both are given"));
}

TEST_F(ServeOptions, WhatIsOpenIsSaid) {
  EXPECT_THAT(with({"--host", "0.0.0.0"}).notes, ElementsAre(HasSubstr("whoever reaches this address may ask")));
  EXPECT_THAT(with({"--host", "0.0.0.0", "--api-key", "k"}).notes, IsEmpty());
  EXPECT_THAT(with({"--host", "localhost"}).notes, IsEmpty());
  EXPECT_THAT(with({"--adapter-dir", files_.path("adapters")}).notes, ElementsAre(HasSubstr("--admin-key")));
}

}  // namespace
}  // namespace cadre::cli
