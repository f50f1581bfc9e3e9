// DeepSeek's families beyond the goldens: published-style configs (Kimi K2, V2-Lite) with YaRN in the softmax scale,
// the rotation in halves, layers that predict further tokens, what a latent cache costs, and what is refused.
#include <cadre/engine.h>
#include <gtest/gtest.h>

#include <fstream>
#include <thread>

#include "model/golden.h"
#include "model/model_files.h"
#include "support/temp_dir.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

// ---- tests/data/extra/models: configs that go with a golden's weights --------------------------------------------

class DeepseekConfig : public testing::TestWithParam<std::string> {
 protected:
  DeepseekConfig() {
    std::ifstream(folder() / "weights.txt") >> weights_;
    fs::copy_file(folder() / "config.json", dir_ / "config.json");
    fs::create_symlink(golden_dir(weights_) / "model.safetensors", dir_ / "model.safetensors");
    setup_.model_dir = dir_.path();
    answers_.push_back(read_golden(folder() / "golden.safetensors"));
    for (const std::string& name : folder_names(folder() / "adapters")) {
      setup_.adapters.push_back({name, golden_dir(weights_) / "adapters" / name});
      answers_.push_back(read_golden(folder() / "adapters" / name / "golden.safetensors"));
    }
  }
  fs::path folder() const { return extra_dir() / "models" / GetParam(); }

  TempDir dir_;
  std::string weights_;
  GoldenSetup setup_;
  std::vector<std::vector<GoldenCase>> answers_;  // of the base, then by slot
};

TEST_P(DeepseekConfig, GivesTheGoldenLogits) {
  auto model = open_golden(setup_);
  ASSERT_THAT(model, Succeeds());
  for (std::size_t i = 0; i < answers_.size(); ++i) {
    const auto slot = static_cast<std::int32_t>(i) - 1;
    SCOPED_TRACE("slot " + std::to_string(slot));
    expect_golden(*model, slot, answers_[i]);
    const GoldenCase& longest = answers_[i][2];
    EXPECT_EQ(model->logits(longest.ids, slot, {256}), model->logits(longest.ids, slot, {5, 1, 17, 2}));
  }
  // Another model than the golden whose weights it has.
  const auto own = read_golden(golden_dir(weights_) / "golden.safetensors");
  EXPECT_GT(relative_error(answers_[0][2].logits, own[2].logits), 0.1);
}

TEST_P(DeepseekConfig, OnTwoRanks) {
  const auto communicators = make_in_process_communicators(2);
  std::vector<GoldenModel> ranks;
  for (int rank = 0; rank < 2; ++rank) {
    setup_.ranks = {.rank = rank, .size = 2};
    setup_.communicator = communicators[static_cast<std::size_t>(rank)].get();
    setup_.threads = 1;
    auto model = open_golden(setup_);
    ASSERT_THAT(model, Succeeds());
    ranks.push_back(std::move(model).value());
  }
  std::vector<std::thread> threads;
  for (GoldenModel& model : ranks) {
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < answers_.size(); ++i) {
        expect_golden(model, static_cast<std::int32_t>(i) - 1, answers_[i]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

INSTANTIATE_TEST_SUITE_P(Models, DeepseekConfig, testing::Values("kimi_k2", "deepseek_v2_lite", "deepseek_v3_halves"),
                         [](const auto& test) { return test.param; });

// ---- the checkpoint ----------------------------------------------------------------------------------------------

Result<std::unique_ptr<Model>> load(const fs::path& dir) {
  ModelOptions options;
  options.dir = dir;
  options.device = make_cpu_device();
  return Model::load(options);
}

// A golden with changes, config and weights.
class Deepseek : public testing::Test {
 protected:
  void open(const std::string& model) { files_ = ModelFiles::read(golden_dir(model)); }
  Result<std::unique_ptr<Model>> load_changed() {
    files_.write(dir_.path());
    return load(dir_.path());
  }

  ModelFiles files_;
  TempDir dir_;
};

TEST_F(Deepseek, LayersThatPredictFurtherTokensAreNotUsed) {
  open("deepseek_v3");
  const HostTensor some = files_.tensors.at("model.layers.1.input_layernorm.weight");
  files_.tensors["model.layers.3.input_layernorm.weight"] = some;
  files_.tensors["model.layers.3.eh_proj.weight"] = some;
  EXPECT_THAT(load_changed(), Succeeds());  // num_nextn_predict_layers is 1
  files_.set("num_nextn_predict_layers", 0);
  EXPECT_THAT(load_changed(), FailsWith(Code::kInvalidFile, "model.layers.3.eh_proj.weight"));
}

TEST_F(Deepseek, BiasesOfTheAttention) {
  open("deepseek_v3");
  files_.set("attention_bias", true);
  EXPECT_THAT(load_changed(), FailsWith(Code::kInvalidFile, "model.layers.0.self_attn.q_a_proj.bias"));
}

TEST_F(Deepseek, ALatentCacheHoldsOneVectorForEachToken) {
  const auto model = load(golden_dir("deepseek_v3"));
  ASSERT_THAT(model, Succeeds());
  const std::vector<StateSpec>& states = (*model)->state_specs();
  ASSERT_EQ(states.size(), 3u);
  for (const StateSpec& state : states) {
    EXPECT_EQ(state.kind, StateSpec::Kind::kLatentKv);
    EXPECT_EQ(state.latent, 32 + 8);
  }
  EXPECT_EQ(StatePool::page_bytes(states), 3 * kPageSize * 40 * 4);
}

// Pages of the latent cache that two prompts share are computed once, and kept apart by adapter.
TEST_F(Deepseek, ThePrefixCacheHoldsLatentPages) {
  EngineOptions options;
  options.model_dir = golden_dir("deepseek_v3");
  options.adapters = {{.name = "attn", .dir = golden_dir("deepseek_v3") / "adapters/attn"}};
  options.need_tokenizer = false;
  options.backend = {.kind = PolicyKind::kRequire, .names = {"cpu_reference"}};
  auto engine = Engine::open(options);
  ASSERT_THAT(engine, Succeeds());
  for (const std::string adapter : {"", "attn"}) {
    const fs::path dir = golden_dir("deepseek_v3") / (adapter.empty() ? "" : "adapters/attn");
    const GoldenCase want = read_golden(dir / "golden.safetensors")[2];
    for (const std::int64_t cached : {std::int64_t{0}, 2 * kPageSize}) {
      Request request;
      request.prompt_ids = want.ids;
      request.adapter = adapter;
      request.sampling.max_tokens = static_cast<int>(want.greedy.size());
      request.sampling.ignore_eos = true;
      request.sampling.temperature = 0;
      ASSERT_THAT((*engine)->submit(request), Succeeds());
      Ids got;
      std::int64_t found = -1;
      while (!(*engine)->idle()) {
        const auto events = (*engine)->step();
        ASSERT_THAT(events, Succeeds());
        for (const Event& event : *events) {
          if (!event.token) continue;
          if (got.empty()) found = event.cached_tokens;
          got.push_back(*event.token);
        }
      }
      EXPECT_EQ(got, want.greedy) << adapter;
      EXPECT_EQ(found, cached) << adapter;
    }
  }
}

// ---- refusals ----------------------------------------------------------------------------------------------------

struct Refusal {
  std::string model, key;
  Json value;
  Code code;
  std::string message;
};

Json yarn(Json factor) {
  return Json::object({{"type", "yarn"},
                       {"factor", std::move(factor)},
                       {"mscale_all_dim", 1.0},
                       {"original_max_position_embeddings", 16}});
}

TEST_F(Deepseek, FieldsThatMeanAnotherModelAreRefused) {
  const std::vector<Refusal> refusals = {
      {"deepseek_v2", "topk_method", "noaux_tc", Code::kUnsupported, "want greedy or group_limited_greedy"},
      {"deepseek_v2", "scoring_func", "sigmoid", Code::kUnsupported, "'scoring_func' is 'sigmoid', want softmax"},
      {"deepseek_v2", "norm_topk_prob", true, Code::kUnsupported, "'norm_topk_prob' is true, want false"},
      {"deepseek_v2", "moe_layer_freq", 2, Code::kUnsupported, "'moe_layer_freq' is 2, want 1"},
      {"deepseek_v2", "topk_group", nullptr, Code::kInvalidFile, "topk_group"},
      {"deepseek_v2", "mlp_bias", true, Code::kInvalidFile, "model.layers.0.mlp.gate_proj.bias"},
      {"deepseek_v3", "topk_method", "greedy", Code::kUnsupported, "'topk_method' is 'greedy', want noaux_tc"},
      {"deepseek_v3", "scoring_func", "softmax", Code::kUnsupported, "'scoring_func' is 'softmax', want sigmoid"},
      {"deepseek_v3", "moe_layer_freq", 2, Code::kUnsupported, "'moe_layer_freq' is 2, want 1"},
      {"deepseek_v3", "num_key_value_heads", 2, Code::kUnsupported, "'num_key_value_heads' is 2"},
      {"deepseek_v3", "partial_rotary_factor", 0.5, Code::kUnsupported, "leaves 4 of the 8 dimensions"},
      {"deepseek_v3", "topk_group", 1, Code::kOk, ""},  // the four experts of one group are just enough
      {"deepseek_v3", "n_group", 3, Code::kInvalidFile, "n_group 3"},
      {"deepseek_v3", "kv_lora_rank", 0, Code::kInvalidFile, "kv_lora_rank"},
      {"deepseek_v3", "v_head_dim", 1 << 20, Code::kInvalidFile, "v_head_dim"},
      {"deepseek_v3", "q_lora_rank", nullptr, Code::kInvalidFile, "self_attn.q_proj.weight"},
      {"deepseek_v3", "rope_parameters", yarn(1e308), Code::kOk, ""},
      {"deepseek_v3", "rope_parameters", yarn("many"), Code::kInvalidFile, "factor"},
  };
  for (const Refusal& r : refusals) {
    SCOPED_TRACE(r.model + ", " + r.key);
    open(r.model);
    files_.set(r.key, r.value);
    const auto loaded = load_changed();
    if (r.code == Code::kOk) {
      EXPECT_THAT(loaded, Succeeds());
    } else {
      EXPECT_THAT(loaded, FailsWith(r.code, r.message));
    }
  }
}

TEST_F(Deepseek, HeadsThatRanksCannotDivide) {
  ModelOptions options;
  options.dir = golden_dir("deepseek_v3");
  options.device = make_cpu_device();
  options.ranks = {.rank = 0, .size = 3};
  EXPECT_THAT(Model::load(options), FailsWith(Code::kUnsupported, "num_attention_heads is 4"));
}

}  // namespace
}  // namespace cadre::test
