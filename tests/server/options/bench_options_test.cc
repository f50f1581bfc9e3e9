// The flags of `cadre bench serve` and `cadre keys new`.
#include <gmock/gmock.h>

#include <string>
#include <vector>

#include "cli/options.h"
#include "files.h"

namespace cadre::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Result<Command> parse(std::vector<std::string> words, const std::map<std::string, std::string>& variables = {}) {
  words.insert(words.begin(), "cadre");
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  Environment environment;
  environment.variables = variables;
  return parse_command_line(static_cast<int>(argv.size()), argv.data(), environment);
}

template <class T>
T parsed(const std::vector<std::string>& words, const std::map<std::string, std::string>& variables = {}) {
  const Result<Command> command = parse(words, variables);
  EXPECT_TRUE(command.ok()) << command.status().message();
  return command.ok() && std::holds_alternative<T>(*command) ? std::get<T>(*command) : T();
}

TEST(BenchOptions, Defaults) {
  const server::LoadOptions load = parsed<BenchServeCommand>({"bench", "serve", "--model", "m"}).load;
  EXPECT_EQ(load.base_url, "http://127.0.0.1:8000");
  EXPECT_EQ(load.max_concurrency, 1);
  EXPECT_EQ(load.request_rate, 0);
  EXPECT_EQ(load.num_prompts, 100);
  EXPECT_TRUE(load.chat);
  EXPECT_EQ(load.targets.at(0).name, "m");
}

TEST(BenchOptions, Values) {
  TempFolder files;
  const BenchServeCommand bench = parsed<BenchServeCommand>({"bench",
                                                             "serve",
                                                             "--base-url",
                                                             "http://h:1/v1",
                                                             "--model",
                                                             "m=1",
                                                             "--adapter",
                                                             "a=2.5",
                                                             "b",
                                                             "--endpoint",
                                                             "completions",
                                                             "--request-rate",
                                                             "4",
                                                             "--duration",
                                                             "10",
                                                             "--input-len",
                                                             "8-16",
                                                             "--output-len",
                                                             "4",
                                                             "--seed",
                                                             "18446744073709551615",
                                                             "--ignore-eos",
                                                             "--goodput",
                                                             "ttft:200",
                                                             "tpot:50",
                                                             "e2el:2000",
                                                             "--json",
                                                             "--temperature",
                                                             "0",
                                                             "--save-json",
                                                             files.path("out.json")},
                                                            {{"OPENAI_API_KEY", "sk-env"}});
  const server::LoadOptions& load = bench.load;
  ASSERT_EQ(load.targets.size(), 3u);
  EXPECT_EQ(load.targets[1].name, "a");
  EXPECT_EQ(load.targets[1].share, 2.5);
  EXPECT_EQ(load.targets[2].share, 1);
  EXPECT_FALSE(load.chat);
  EXPECT_EQ(load.request_rate, 4);
  EXPECT_EQ(load.max_concurrency, 0);
  EXPECT_EQ(load.num_prompts, 0);
  EXPECT_EQ(load.duration_s, 10);
  EXPECT_EQ(load.input_len.min, 8);
  EXPECT_EQ(load.input_len.max, 16);
  EXPECT_EQ(load.output_len.max, 4);
  EXPECT_EQ(load.seed, ~std::uint64_t{0});
  EXPECT_EQ(load.api_key, "sk-env");
  EXPECT_TRUE(load.ignore_eos && bench.json);
  EXPECT_EQ(load.goodput.ttft_ms + load.goodput.tpot_ms + load.goodput.e2el_ms, 2250);
  EXPECT_EQ(load.temperature, 0);
  EXPECT_EQ(parsed<BenchServeCommand>({"bench", "serve", "--model", "m", "--api-key", "k"}, {{"OPENAI_API_KEY", "e"}})
                .load.api_key,
            "k");
  EXPECT_EQ(parsed<BenchServeCommand>({"bench", "serve", "--model", "m", "--request-rate", "inf"}).load.request_rate,
            0);
}

TEST(BenchOptions, ValuesThatCannotBe) {
  const std::vector<std::pair<std::vector<std::string>, const char*>> cases = {
      {{"--model", "m=0"}, "want NAME or NAME=SHARE"},
      {{"--model", "=1"}, "want NAME or NAME=SHARE"},
      {{"--model", "m", "--adapter", "m"}, "'m' is given twice"},
      {{"--model", "m", "--request-rate", "0"}, "--request-rate is '0', want a number above 0"},
      {{"--model", "m", "--duration", "-1"}, "--duration is '-1'"},
      {{"--model", "m", "--input-len", "9-8"}, "want an integer from 9"},
      {{"--model", "m", "--input-len", "0"}, "--input-len is '0'"},
      {{"--model", "m", "--input-len", "1-2-3"}, "--input-len is '2-3'"},
      {{"--model", "m", "--endpoint", "embed"}, "want chat or completions"},
      {{"--model", "m", "--goodput", "ttft"}, "want ttft:MS"},
      {{"--model", "m", "--goodput", "itl:5"}, "want ttft:MS"},
      {{"--model", "m", "--goodput", "ttft:0"}, "milliseconds above 0"},
      {{"--model", "m", "--temperature", "-1"}, "want 0 or more"},
      {{"--model", "m", "--prompts", "f", "--input-len", "3"}, "got --prompts"},
      {{"--model", "m", "--save-json", "/nowhere/at/all"}, "the folder '/nowhere/at' is not there"},
      {{}, "--model NAME[=SHARE] is missing"},
  };
  for (const auto& [flags, part] : cases) {
    std::vector<std::string> words = {"bench", "serve"};
    words.insert(words.end(), flags.begin(), flags.end());
    const Result<Command> command = parse(words);
    ASSERT_FALSE(command.ok()) << part;
    EXPECT_THAT(command.status().message(), HasSubstr(part));
  }
}

TEST(KeysOptions, Values) {
  const KeysNewCommand keys = parsed<KeysNewCommand>({"keys",       "new",
                                                      "--tenant",   "team-a",
                                                      "--adapters", "a-*",
                                                      "b",          "--requests-per-minute",
                                                      "60",         "--tokens-per-minute",
                                                      "1000",       "--max-concurrency",
                                                      "2",          "--priority",
                                                      "-3",         "--no-base",
                                                      "--expires",  "2027-01-31",
                                                      "--note",     "for a"});
  EXPECT_EQ(keys.grant.tenant, "team-a");
  EXPECT_THAT(keys.grant.adapters, ElementsAre("a-*", "b"));
  EXPECT_EQ(keys.grant.limits.requests_per_minute, 60);
  EXPECT_EQ(keys.grant.limits.tokens_per_minute, 1000);
  EXPECT_EQ(keys.grant.limits.max_concurrency, 2);
  EXPECT_EQ(keys.grant.priority, -3);
  EXPECT_FALSE(keys.grant.base);
  EXPECT_EQ(keys.grant.expires, 1801353600);
  EXPECT_EQ(keys.note, "for a");
  EXPECT_THAT(parse({"keys", "new"}).status().message(), HasSubstr("--tenant NAME is missing"));
  EXPECT_THAT(parse({"keys", "new", "--tenant", "a", "--priority", "1001"}).status().message(),
              HasSubstr("--priority is '1001'"));
  EXPECT_THAT(parse({"keys", "new", "--tenant", "a", "--expires", "soon"}).status().message(), HasSubstr("--expires"));
}

TEST(Commands, ParentsListWhatTheyHold) {
  const PrintCommand help = parsed<PrintCommand>({"--help"});
  EXPECT_THAT(help.text, HasSubstr("Commands about adapters: check."));
  EXPECT_THAT(help.text, HasSubstr("Measuring: serve."));
  EXPECT_THAT(parsed<PrintCommand>({"serve", "--help"}).text, testing::Not(HasSubstr("--tensor-parallel-size")));
}

}  // namespace
}  // namespace cadre::cli
