// The demo models end to end: their recorded answers, and the elements.
#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <map>

#include "io/json.h"

namespace cadre {
namespace {

std::string demo(const std::string& path) { return std::string(CADRE_SOURCE) + "/examples/models/" + path; }

std::unique_ptr<Engine> open_demo(const std::string& model, const std::string& policy) {
  EngineOptions options;
  options.backend = *parse_policy(policy, "test");
  options.model_dir = demo(model);
  for (const char* name : {"elements", "jargon", "spanish"}) {
    options.adapters.push_back({.name = name, .dir = demo(model + "/adapters/" + name)});
  }
  options.threads = 2;
  options.max_num_seqs = 16;
  auto engine = Engine::open(options);
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  return engine.ok() ? std::move(*engine) : nullptr;
}

struct Answer {
  std::vector<std::int32_t> ids;
  std::string text;
  FinishReason finish = FinishReason::kNone;
};

// Runs everything that is queued.
std::map<std::uint64_t, Answer> run(Engine& engine) {
  std::map<std::uint64_t, Answer> answers;
  while (!engine.idle()) {
    const auto events = engine.step();
    EXPECT_TRUE(events.ok());
    for (const Event& event : *events) {
      Answer& answer = answers[event.request];
      if (event.token) answer.ids.push_back(*event.token);
      answer.text += event.text;
      answer.finish = event.finish;
    }
  }
  return answers;
}

class Demo : public testing::TestWithParam<std::pair<const char*, int>> {};

// All recorded prompts at once, base and every adapter in one batch. The recorded tokens are the reference's.
TEST_P(Demo, RecordedAnswers) {
  const auto engine = open_demo(GetParam().first, "require cpu_reference");
  ASSERT_NE(engine, nullptr);
  const auto reference = Json::parse_file(demo(std::string(GetParam().first) + "/reference.json"));
  ASSERT_TRUE(reference.ok()) << reference.status().message();
  std::map<std::uint64_t, const Json*> expected;
  for (const Json& row : reference->items()) {
    Request request;
    request.prompt = *row.get_string("prompt");
    request.adapter = *row.get_string_or("adapter", "");
    request.sampling.max_tokens = 32;
    const auto prompt = engine->prompt_ids(request);
    ASSERT_TRUE(prompt.ok()) << prompt.status().message();
    const auto want = *row.get_int_list("prompt_ids");
    EXPECT_EQ(std::vector<std::int64_t>(prompt->begin(), prompt->end()), want);
    const auto id = engine->submit(request);
    ASSERT_TRUE(id.ok()) << id.status().message();
    expected.emplace(*id, &row);
  }
  const auto answers = run(*engine);
  EXPECT_GT(expected.size(), 10u);
  for (const auto& [id, row] : expected) {
    const Answer& answer = answers.at(id);
    const auto greedy = *row->get_int_list("greedy");
    EXPECT_EQ(std::vector<std::int64_t>(answer.ids.begin(), answer.ids.end()), greedy) << *row->get_string("prompt");
    // The recorded text has special tokens; an answer's text does not.
    const auto text = engine->decode(answer.ids, /*skip_special_tokens=*/false);
    ASSERT_TRUE(text.ok());
    EXPECT_EQ(*text, *row->get_string("text"));
    EXPECT_EQ(answer.text, *engine->decode(answer.ids, /*skip_special_tokens=*/true));
  }
}

TEST_P(Demo, Elements) {
  const auto engine = open_demo(GetParam().first, "auto");
  ASSERT_NE(engine, nullptr);
  const auto elements = Json::parse_file(demo("elements.json"));
  ASSERT_TRUE(elements.ok());
  std::map<std::uint64_t, std::string> with_adapter, base;
  for (const Json& element : elements->items()) {
    for (const char* adapter : {"elements", ""}) {
      Request request;
      request.chat = {{"user", "Element: " + *element.get_string("element")}};
      request.adapter = adapter;
      request.sampling.max_tokens = 32;
      const auto id = engine->submit(request);
      ASSERT_TRUE(id.ok()) << id.status().message();
      (adapter[0] != '\0' ? with_adapter : base)[*id] =
          *element.get_string("symbol") + ", number " + std::to_string(*element.get_int("number"));
    }
  }
  const auto answers = run(*engine);
  const auto right = [&](const std::map<std::uint64_t, std::string>& want) {
    int n = 0;
    for (const auto& [id, text] : want) n += answers.at(id).text == text ? 1 : 0;
    return n;
  };
  EXPECT_EQ(with_adapter.size(), 108u);
  EXPECT_GE(right(with_adapter), GetParam().second);
  EXPECT_EQ(right(base), 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Demo, testing::Values(std::pair("qwen3_moe", 105), std::pair("nemotron_h", 106)),
                         [](const auto& test) { return std::string(test.param.first); });

}  // namespace
}  // namespace cadre
