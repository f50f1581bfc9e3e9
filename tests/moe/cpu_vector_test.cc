// What cpu_vector alone has: kernels for several instruction sets, packing, padding, a workspace bound, a cost model.
#include <gmock/gmock.h>

#include "moe/experts/cpu_vector/backend.h"
#include "moe/experts/cpu_vector/experts.h"
#include "moe/experts/cpu_vector/kernels.h"
#include "moe/experts/cpu_vector/record.h"
#include "moe/moe_random.h"

namespace cadre::test {
namespace {

using namespace cpu_vector;

std::vector<const VectorKernels*> available() {
  std::vector<const VectorKernels*> out;
  for (const VectorKernels* k : {base_kernels(), avx2_kernels(), avx512_kernels()}) {
    if (k != nullptr) out.push_back(k);
  }
  return out;
}

// Every tile shape of every instruction set against double precision, with sums of no, one and several chunks, and the
// same bits for a row in every tile.
TEST(CpuVectorKernels, EveryTileInDoublePrecision) {
  for (const VectorKernels* kernels : available()) {
    for (const DType dtype : {DType::kBF16, DType::kF32, DType::kF16}) {
      for (const int block : {kBlock, kRankBlock}) {
        for (const std::int64_t k : {0, 1, 7, 32, 256, 258, 700}) {
          SCOPED_TRACE(std::string(kernels->name) + ", " + std::to_string(block) + " columns, k " + std::to_string(k));
          const std::int64_t padded = round_up(k, 2), columns = 2 * block - 3;
          const PackedType type = packed_type(dtype);
          const Floats w = random_weights(dtype, 1, columns * k), x = random_floats(2, kMaxRows * padded);
          const std::vector<std::byte> bytes = to_bytes(dtype, w);
          std::vector<std::byte> packed(static_cast<std::size_t>(packed_bytes(type, columns, block, padded)) + 64);
          pack(View(const_cast<std::byte*>(bytes.data()), dtype, {columns, k}), type, block, padded, packed.data());
          Floats first;
          for (int rows = 1; rows <= kernels->max_rows; ++rows) {
            for (const int blocks : {1, 2}) {
              for (const bool add : {false, true}) {
                Floats y(static_cast<std::size_t>(2 * rows * block), add ? 0.5f : std::nanf(""));
                Tile tile{.x = x.data(), .x_step = kMaxRows, .rows = rows, .k = padded, .blocks = blocks};
                for (int b = 0; b < blocks; ++b) {
                  tile.w[b] = packed.data() + b * block * padded * element_bytes(type);
                  tile.y[b] = y.data() + b * rows * block;
                }
                tile.y_step = block;
                tile.add = add;
                block == kBlock ? kernels->multiply(type, tile) : kernels->multiply_rank(type, tile);
                Floats got;
                std::vector<Exact> want;
                for (int b = 0; b < blocks; ++b) {
                  for (int r = 0; r < rows; ++r) {
                    for (int n = 0; n < block; ++n) {
                      Exact sum;
                      if (add) sum.add(0.5);
                      for (std::int64_t i = 0; i < k && b * block + n < columns; ++i) {
                        sum.add(static_cast<double>(w[static_cast<std::size_t>((b * block + n) * k + i)]) *
                                static_cast<double>(x[static_cast<std::size_t>(i * kMaxRows + r)]));
                      }
                      want.push_back(sum);
                      got.push_back(y[static_cast<std::size_t>((b * rows + r) * block + n)]);
                    }
                  }
                }
                ASSERT_NO_FATAL_FAILURE(expect_close(got, want, 2e-6));
                if (add || blocks != 1) continue;
                if (first.empty()) first = Floats(got.begin(), got.begin() + block);
                ASSERT_NO_FATAL_FAILURE(expect_same_bits(Floats(got.begin(), got.begin() + block), first, "row 0"));
              }
            }
          }
        }
      }
    }
  }
}

TEST(CpuVectorKernels, ActivationsInDoublePrecision) {
  Floats x = random_floats(3, 4096, 12), u = random_floats(4, 4096, 2);
  const float edges[] = {0.0f, -0.0f, 1e-30f, -1e-30f, 86.9f, -86.9f, 200.0f, -200.0f, 1e4f, -1e4f};
  std::copy(std::begin(edges), std::end(edges), x.begin());
  for (const VectorKernels* kernels : available()) {
    for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu2}) {
      for (const bool gated : {true, false}) {
        Floats out(x.size());
        kernels->activate(kind, gated ? x.data() : nullptr, gated ? u.data() : x.data(), out.data(), 4096);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double v = x[i], s = 2 * std::sqrt(2 / std::acos(-1.0)) * (v + 0.044715 * v * v * v);
          double want = kind == Activation::kRelu2 ? (v > 0 ? v * v : 0)
                                                   : v / (1 + std::exp(kind == Activation::kSilu ? -v : -s));
          if (gated) want *= static_cast<double>(u[i]);
          // s itself is rounded: its error grows with its size.
          const double relative = 4e-7 * (1 + (kind == Activation::kGeluTanh ? std::min(std::fabs(s), 90.0) : 0));
          ASSERT_NEAR(out[i], want, relative * std::fabs(want) + 1e-30) << kernels->name << " of " << x[i];
        }
      }
    }
    // A NaN stays one, an infinity does not become a number that it is not.
    Floats odd(32, std::nanf(""));
    for (const Activation kind : {Activation::kSilu, Activation::kGeluTanh, Activation::kRelu2}) {
      Floats out(32, 0.0f);
      kernels->activate(kind, nullptr, odd.data(), out.data(), 32);
      for (const float y : out) ASSERT_TRUE(std::isnan(y)) << kernels->name;
      const Floats infinite(32, std::numeric_limits<float>::infinity());
      kernels->activate(kind, nullptr, infinite.data(), out.data(), 32);
      for (const float y : out) ASSERT_TRUE(std::isinf(y) && y > 0) << kernels->name;
    }
  }
}

// Whole layers with the kernels of every instruction set that runs here, not the widest alone: other tiles, the same
// promises.
TEST(CpuVectorKernels, WholeLayersOnEveryInstructionSet) {
  for (const VectorKernels* kernels : available()) {
    for (const bool gated : {true, false}) {
      RandomCase c;
      c.spec.experts = 3;
      c.spec.top_k = 2;
      c.spec.hidden = 288;
      c.spec.intermediate = 70;
      c.spec.activation.gated = gated;
      if (!gated) c.spec.activation.kind = Activation::kRelu2;
      c.deployment = here();
      c.deployment.adapters = {2, 19, kGate | kUp | kDown, kPerExpert | kSharedGateUpA};
      AdapterShape wide, shared;
      wide.max_rank = 19;
      shared.layout = kSharedGateUpA;
      c.adapters = {wide, shared};
      c.tokens = 37;
      const CaseData data(c, 3);
      SCOPED_TRACE(std::string(kernels->name) + (gated ? ", gated" : ""));
      const auto experts = PreparedExperts::make("require cpu_vector", c.spec, c.deployment, data.weights, {"cpu", 2},
                                                 0, 0, [&](const MoeAdmission& admission, const ExpertInputs& inputs) {
                                                   return prepare_cpu_vector(admission, inputs, kernels);
                                                 });
      ASSERT_TRUE(experts.ok()) << experts.status().message();
      for (const auto& [slot, adapter] : data.adapters) ASSERT_TRUE((*experts)->attach(slot, *adapter).ok());
      const Floats all = (*experts)->run(data.batch);
      ASSERT_NO_FATAL_FAILURE(expect_close(all, moe_exact(c.spec, data.weights, data.adapters, data.batch), 3e-6));
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const auto row = all.begin() + t * data.batch.width;
        ASSERT_NO_FATAL_FAILURE(expect_same_bits((*experts)->run(take_rows(data.batch, {t})),
                                                 Floats(row, row + data.batch.width), "alone"));
      }
    }
  }
}

LayerSpec qwen() {
  LayerSpec s;
  s.experts = 128;
  s.top_k = 8;
  s.hidden = 2048;
  s.intermediate = 768;
  return s;
}

TEST(CpuVector, IsChosenWhereAdmittedAndLargeEnough) {
  LayerSpec nemotron = qwen();
  nemotron.top_k = 6;
  nemotron.hidden = 2688;
  nemotron.intermediate = 1856;
  nemotron.activation = {Activation::kRelu2, false};
  for (const LayerSpec& spec : {qwen(), nemotron}) {
    for (const bool avx512 : {true, false}) {
      for (const int rank : {0, 64}) {
        Deployment d = here();
        d.device.avx512 = avx512;
        d.device.avx2 = true;
        if (rank > 0) d.adapters = {4, rank, kGate | kUp | kDown, kPerExpert};
        const auto choice = make_moe_gate().select(spec, d, {});
        ASSERT_TRUE(choice.ok()) << choice.status().message();
        EXPECT_EQ(choice->selection.chosen, "cpu_vector");
        const auto& candidates = choice->selection.candidates;
        for (const auto& [tokens, time] : candidates.at(0).predicted_us) {
          EXPECT_GT(time, 0) << tokens;
          EXPECT_GT(candidates.at(1).predicted_us.at(tokens), 1.3 * time) << tokens << " tokens";
        }
      }
    }
  }
}

TEST(CpuVector, PredictedTimeGrowsWithTheWork) {
  const MoeBackend& backend = cpu_vector_backend();
  Deployment d = here();
  double last = 0;
  for (const int tokens : {1, 8, 64, 512, 4096}) {
    const double time = backend.estimate(qwen(), d, tokens);
    EXPECT_GT(time, last);
    last = time;
  }
  Deployment faster = d;
  faster.device.cores *= 4;
  EXPECT_LT(backend.estimate(qwen(), faster, 64), backend.estimate(qwen(), d, 64));
  Deployment adapted = d;
  adapted.adapters = {4, 64, kGate | kUp | kDown, kPerExpert};
  EXPECT_GT(backend.estimate(qwen(), adapted, 64), backend.estimate(qwen(), d, 64));
  Deployment spread = d;
  spread.expert_parallel = 2;
  EXPECT_LT(backend.estimate(qwen(), spread, 64), backend.estimate(qwen(), d, 64));
}

TEST(CpuVector, PaddingIsShownWithItsCost) {
  LayerSpec s = qwen();
  EXPECT_TRUE(cpu_vector_backend().remedies(s, here()).empty());
  s.intermediate = 50;
  EXPECT_THAT(cpu_vector_backend().remedies(s, here()),
              ::testing::ElementsAre(
                  "pads the intermediate size on each rank from 50 to 64 with zeros: 28.0 % more memory and work"));
  // 768 over 4 ranks is 192: nothing to pad. Over 5 ranks it is 154.
  Deployment d = here();
  d.tensor_parallel = 4;
  EXPECT_TRUE(cpu_vector_backend().remedies(qwen(), d).empty());
  d.tensor_parallel = 5;
  EXPECT_THAT(cpu_vector_backend().remedies(qwen(), d).at(0), ::testing::HasSubstr("from 154 to 160"));
}

// What the record says is what a call takes: the gate refuses a byte too few, and the bytes suffice.
TEST(CpuVector, TheWorkspaceLimitIsWhatACallTakes) {
  RandomCase c;
  c.spec.experts = 5;
  c.spec.top_k = 3;
  c.spec.hidden = 96;
  c.spec.intermediate = 40;
  c.deployment = here();
  c.deployment.max_tokens = 21;
  c.deployment.adapters = {1, 9, kGate | kUp | kDown, kPerExpert};
  c.tokens = 21;
  const std::int64_t bytes = cpu_vector_workspace(c.spec, c.deployment);
  c.deployment.workspace_limit = bytes;
  EXPECT_TRUE(cpu_vector_backend().check(c.spec, c.deployment).empty());
  const CaseData data(c, 1);
  const auto experts = PreparedExperts::make("require cpu_vector", c.spec, c.deployment, data.weights).value();
  const std::size_t taken = experts->workspace(data.batch, true);
  EXPECT_LE(taken, static_cast<std::size_t>(bytes));
  EXPECT_GE(taken + 64 * 9, static_cast<std::size_t>(bytes));
  c.deployment.workspace_limit = bytes - 1;
  ASSERT_EQ(cpu_vector_backend().check(c.spec, c.deployment).size(), 1u);
  EXPECT_EQ(cpu_vector_backend().check(c.spec, c.deployment).at(0).code, Reason::kWorkspace);
}

TEST(CpuVector, AbsurdSizesDoNotOverflow) {
  LayerSpec s = qwen();
  Deployment d = here();
  d.adapters = {4, std::numeric_limits<int>::max(), kUp, kPerExpert};
  d.max_tokens = std::numeric_limits<int>::max();
  d.workspace_limit = 1;
  s.top_k = std::numeric_limits<int>::max();
  s.hidden = s.intermediate = std::int64_t{1} << 60;
  EXPECT_GT(cpu_vector_workspace(s, d), std::int64_t{1} << 60);
  EXPECT_FALSE(cpu_vector_backend().check(s, d).empty());
  EXPECT_GT(cpu_vector_backend().estimate(s, d, 512), 1.0);
}

// Weights of another type than the spec says are a bug of the caller that must not be read as BF16.
TEST(CpuVector, RefusesWeightsThatAreNotWhatTheSpecSays) {
  RandomCase c;
  c.spec.experts = 2;
  c.spec.top_k = 1;
  c.spec.hidden = c.spec.intermediate = 32;
  c.spec.weights.type = WeightType::kF32;
  c.deployment = here();
  const RandomWeights wrong(c.spec, 1);
  c.spec.weights.type = WeightType::kBF16;
  const auto experts = PreparedExperts::make("require cpu_vector", c.spec, c.deployment, wrong);
  ASSERT_FALSE(experts.ok());
  EXPECT_THAT(experts.status().message(), ::testing::HasSubstr("expert 0"));
}

}  // namespace
}  // namespace cadre::test
