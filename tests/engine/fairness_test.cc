// How long a flow can be kept waiting by others.
#include "engine/serving.h"

namespace cadre::test {
namespace {

// Others within their share have prompts in every step. A flow above its share comes after them, but it does come: four
// steps at most pass it over.
TEST(Fairness, PromptsAboveTheShareWaitABoundedTime) {
  EngineOptions options = options_for("qwen3_moe", {"attn", "experts"});
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  const auto engine = open(options);
  ASSERT_NE(engine, nullptr);
  // Six of eight places, and two flows.
  for (int i = 0; i < 5; ++i) submit(*engine, ask(prompt(8, i), "attn", 150));
  Answers answers;
  for (int i = 0; i < 3; ++i) step(*engine, &answers, i);
  ASSERT_EQ(engine->stats().running, 5);
  const std::uint64_t late = submit(*engine, ask(prompt(100, 50), "attn", 2));
  int steps = 0;
  // One token an answer: nothing but prompts.
  for (int i = 0; answers[late].ids.empty() && steps < 400; ++steps) {
    while (engine->stats().waiting < 3) submit(*engine, ask(prompt(90, 100 + i++), "experts", 1));
    step(*engine, &answers, steps);
  }
  // 100 tokens in pieces of 8 at least, one piece in five steps.
  EXPECT_LE(steps, 5 * 13) << "the others' prompts went first for ever";
  run(*engine);
  expect_all_returned(*engine);
}

}  // namespace
}  // namespace cadre::test
