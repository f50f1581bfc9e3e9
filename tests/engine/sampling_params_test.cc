// validate and resolve: what a request, a file and their absence mean together.
#include <cadre/sampling.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

namespace cadre {
namespace {

std::string refusal(const std::function<void(SamplingParams&)>& change) {
  SamplingParams params;
  change(params);
  const Status status = validate(params, 1000);
  if (!status.ok()) {
    EXPECT_EQ(status.code(), Code::kInvalidArgument);
  }
  return status.message();
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

TEST(Validate, TakesWhatItShould) {
  EXPECT_TRUE(validate({}, 1000).ok());
  EXPECT_EQ(refusal([](auto& p) {
              p.temperature = 100;
              p.top_k = -1;
              p.top_p = 0;
              p.min_p = 1;
              p.repetition_penalty = 0.001;
              p.presence_penalty = -2;
              p.frequency_penalty = 2;
              p.logit_bias = {{0, -100.0f}, {999, 100.0f}};
              p.stop = {"é", std::string(kMaxStopBytes, 'x')};
              p.stop_token_ids = {0, 999};
              p.eos_token_ids = {5000};
              p.max_tokens = 1;
              p.min_tokens = 1;
              p.logprobs = kMaxLogprobs;
            }),
            "");
}

TEST(Validate, NamesFieldValueAndWant) {
  const std::string temperature = ", want a finite number of at least 0 (0 is greedy)";
  EXPECT_EQ(refusal([](auto& p) { p.temperature = -0.5; }), "temperature is -0.5" + temperature);
  EXPECT_EQ(refusal([](auto& p) { p.temperature = kInf; }), "temperature is inf" + temperature);
  EXPECT_EQ(refusal([](auto& p) { p.temperature = kNan; }), "temperature is nan" + temperature);
  EXPECT_EQ(refusal([](auto& p) { p.top_k = -2; }), "top_k is -2, want at least 1, or 0 or -1 for all tokens");
  EXPECT_EQ(refusal([](auto& p) { p.top_p = 1.5; }), "top_p is 1.5, want between 0 and 1");
  EXPECT_EQ(refusal([](auto& p) { p.top_p = kNan; }), "top_p is nan, want between 0 and 1");
  EXPECT_EQ(refusal([](auto& p) { p.min_p = -0.1; }), "min_p is -0.1, want between 0 and 1");
  const std::string repetition = ", want a finite number above 0 (1 is none)";
  EXPECT_EQ(refusal([](auto& p) { p.repetition_penalty = 0; }), "repetition_penalty is 0" + repetition);
  EXPECT_EQ(refusal([](auto& p) { p.repetition_penalty = kInf; }), "repetition_penalty is inf" + repetition);
  EXPECT_EQ(refusal([](auto& p) { p.presence_penalty = 2.5; }), "presence_penalty is 2.5, want between -2 and 2");
  EXPECT_EQ(refusal([](auto& p) { p.frequency_penalty = -3; }), "frequency_penalty is -3, want between -2 and 2");
}

TEST(Validate, TokensAndBias) {
  const std::string id = ", want an id of at least 0 and below the vocabulary's 1000";
  EXPECT_EQ(refusal([](auto& p) { p.logit_bias = {{1000, 1.0f}}; }), "logit_bias has token 1000" + id);
  EXPECT_EQ(refusal([](auto& p) { p.stop_token_ids = {3, -1}; }), "stop_token_ids has token -1" + id);
  EXPECT_EQ(refusal([](auto& p) { p.logit_bias = {{3, 101.0f}}; }),
            "logit_bias of token 3 is 101, want between -100 and 100");
  EXPECT_EQ(refusal([](auto& p) { p.logit_bias = {{3, std::nanf("")}}; }),
            "logit_bias of token 3 is nan, want between -100 and 100");
  EXPECT_EQ(refusal([](auto& p) { p.stop_token_ids.assign(4097, 1); }),
            "stop_token_ids has 4097 ids, want at most 4096");
}

TEST(Validate, Lengths) {
  EXPECT_EQ(refusal([](auto& p) { p.max_tokens = 0; }), "max_tokens is 0, want at least 1");
  EXPECT_EQ(refusal([](auto& p) { p.min_tokens = -1; }), "min_tokens is -1, want at least 0");
  EXPECT_EQ(refusal([](auto& p) {
              p.max_tokens = 5;
              p.min_tokens = 6;
            }),
            "min_tokens is 6, want at most max_tokens, which is 5");
  EXPECT_EQ(refusal([](auto& p) { p.logprobs = -1; }), "logprobs is -1, want between 0 and 100");
  EXPECT_EQ(refusal([](auto& p) { p.logprobs = 101; }), "logprobs is 101, want between 0 and 100");
}

TEST(Validate, StopStrings) {
  EXPECT_EQ(refusal([](auto& p) { p.stop = {"a", ""}; }), "stop[1] is empty, want at least one character");
  EXPECT_EQ(refusal([](auto& p) { p.stop = {std::string(4097, 'x')}; }), "stop[0] has 4097 bytes, want at most 4096");
  EXPECT_EQ(refusal([](auto& p) { p.stop.assign(65, "x"); }), "stop has 65 strings, want at most 64");
  EXPECT_EQ(refusal([](auto& p) { p.stop = {"a\xc3"}; }), "stop[0] is not valid UTF-8 at byte 1, want UTF-8 text");
}

// One row of the table: what the file and the request say, and the four numbers that come out.
struct Row {
  const char* name;
  std::function<void(GenerationDefaults&)> file;
  std::function<void(SamplingRequest&)> request;
  double temperature;
  std::int32_t top_k;
  double top_p;
  double min_p;
};

void full(GenerationDefaults& file) {
  file.temperature = 0.6;
  file.top_k = 20;
  file.top_p = 0.95;
  file.min_p = 0.05;
}

TEST(Resolve, Table) {
  const auto nothing = [](auto&) {};
  const auto sampling = [](auto& f) { f.do_sample = true; };
  const auto greedy = [](auto& f) { f.do_sample = false; };
  const auto sampling_full = [](auto& f) { f.do_sample = true, full(f); };
  const auto greedy_full = [](auto& f) { f.do_sample = false, full(f); };
  const Row rows[] = {
      {"no file, no flags", nothing, nothing, 0, 0, 1, 0},
      {"do_sample false", greedy, nothing, 0, 0, 1, 0},
      {"do_sample false with values", greedy_full, nothing, 0, 0, 1, 0},
      {"values without do_sample", full, nothing, 0, 0, 1, 0},
      {"do_sample true alone: Hugging Face's defaults", sampling, nothing, 1, 50, 1, 0},
      {"do_sample true with values", sampling_full, nothing, 0.6, 20, 0.95, 0.05},
      {"do_sample true, top_k off in the file", [](auto& f) { f.do_sample = true, f.top_k = 0; }, nothing, 1, 0, 1, 0},
      {"do_sample true at temperature 0", [](auto& f) { f.do_sample = true, f.temperature = 0; }, nothing, 0, 0, 1, 0},
      {"flag temperature 0", sampling_full, [](auto& r) { r.temperature = 0; }, 0, 0, 1, 0},
      {"flag temperature 0 and a filter", sampling_full, [](auto& r) { r.temperature = 0, r.top_p = 0.5; }, 0, 0, 1, 0},
      {"flag temperature over the file's", sampling_full, [](auto& r) { r.temperature = 1.5; }, 1.5, 20, 0.95, 0.05},
      {"flag temperature, do_sample false", greedy, [](auto& r) { r.temperature = 0.8; }, 0.8, 0, 1, 0},
      {"flag temperature, no file", nothing, [](auto& r) { r.temperature = 0.8; }, 0.8, 0, 1, 0},
      {"flag temperature, file's filters", greedy_full, [](auto& r) { r.temperature = 0.8; }, 0.8, 20, 0.95, 0.05},
      {"flag top_p, no file", nothing, [](auto& r) { r.top_p = 0.9; }, 1, 0, 0.9, 0},
      {"flag top_k, do_sample false", greedy_full, [](auto& r) { r.top_k = 3; }, 0.6, 3, 0.95, 0.05},
      {"flag min_p, no file", nothing, [](auto& r) { r.min_p = 0.1; }, 1, 0, 1, 0.1},
      {"flag min_p, file greedy at 0", [](auto& f) { f.temperature = 0; }, [](auto& r) { r.min_p = 0.1; }, 1, 0, 1,
       0.1},
      {"flags that filter nothing", greedy, [](auto& r) { r.top_k = 0, r.top_p = 1, r.min_p = 0; }, 0, 0, 1, 0},
      {"flags turn the file's filters off", sampling_full, [](auto& r) { r.top_k = -1, r.top_p = 1, r.min_p = 0; }, 0.6,
       -1, 1, 0},
      {"a seed alone does not sample", nothing, [](auto& r) { r.seed = 3; }, 0, 0, 1, 0},
      {"wrong values are kept for validate", nothing,
       [](auto& r) { r.temperature = 0, r.top_k = -7, r.top_p = 2, r.min_p = -1; }, 0, -7, 2, -1},
  };
  for (const Row& row : rows) {
    SCOPED_TRACE(row.name);
    GenerationDefaults file;
    row.file(file);
    SamplingRequest request;
    row.request(request);
    const SamplingParams got = resolve(request, file);
    EXPECT_EQ(got.temperature, row.temperature);
    EXPECT_EQ(got.top_k, row.top_k);
    EXPECT_EQ(got.top_p, row.top_p);
    EXPECT_EQ(got.min_p, row.min_p);
  }
}

TEST(Resolve, PenaltiesAndLengthsApplyToGreedyToo) {
  GenerationDefaults file;
  file.repetition_penalty = 1.1;
  file.max_new_tokens = 100;
  file.min_new_tokens = 10;
  file.eos_token_ids = {2, 7};
  SamplingParams got = resolve({}, file);
  EXPECT_EQ(got.temperature, 0);
  EXPECT_EQ(got.repetition_penalty, 1.1);
  EXPECT_EQ(got.max_tokens, 100);
  EXPECT_EQ(got.min_tokens, 10);
  EXPECT_EQ(got.eos_token_ids, (std::vector<std::int32_t>{2, 7}));
  SamplingRequest request;
  request.repetition_penalty = 1;
  request.max_tokens = 4;
  got = resolve(request, file);
  EXPECT_EQ(got.repetition_penalty, 1);
  EXPECT_EQ(got.max_tokens, 4);
  EXPECT_EQ(got.min_tokens, 4);  // the file's gives way
  request.min_tokens = 5;        // the request's own contradiction does not
  EXPECT_EQ(resolve(request, file).min_tokens, 5);
  EXPECT_FALSE(validate(resolve(request, file), 10).ok());
}

TEST(Resolve, RequestFieldsArriveAsTheyAre) {
  SamplingRequest request;
  request.presence_penalty = 0.5;
  request.frequency_penalty = -0.5;
  request.logit_bias = {{4, 2.0f}};
  request.seed = 77;
  request.stop = {"x"};
  request.stop_token_ids = {9};
  request.ignore_eos = true;
  request.include_stop = true;
  request.logprobs = 3;
  const SamplingParams got = resolve(request, {});
  EXPECT_EQ(got.presence_penalty, 0.5);
  EXPECT_EQ(got.frequency_penalty, -0.5);
  EXPECT_EQ(got.logit_bias, request.logit_bias);
  EXPECT_EQ(got.seed, 77u);
  EXPECT_EQ(got.stop, request.stop);
  EXPECT_EQ(got.stop_token_ids, request.stop_token_ids);
  EXPECT_TRUE(got.ignore_eos);
  EXPECT_TRUE(got.include_stop);
  EXPECT_EQ(got.logprobs, 3);
  EXPECT_FALSE(got.max_tokens.has_value());
}

}  // namespace
}  // namespace cadre
