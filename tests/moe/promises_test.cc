// The three promises about bits, for every backend that makes them.
#include "moe/moe_random.h"
#include "moe/record.h"

namespace cadre::test {
namespace {

// A layer that every backend admits, with adapters of all kinds that all admit, one slot left empty.
RandomCase mixed_case(bool gated) {
  RandomCase c;
  c.spec.experts = 6;
  c.spec.top_k = 3;
  c.spec.hidden = 320;
  c.spec.intermediate = 96;
  c.spec.activation.gated = gated;
  c.spec.activation.kind = gated ? Activation::kSilu : Activation::kRelu2;
  c.deployment = here();
  c.deployment.adapters = {4, 20, kGate | kUp | kDown, kPerExpert | kSharedGateUpA};
  AdapterShape plain, shared, wide;
  shared.layout = kSharedGateUpA;
  shared.min_rank = 0;
  wide.min_rank = wide.max_rank = 20;
  c.adapters = {plain, shared, wide};
  c.tokens = 45;
  return c;
}

// Calls `body` with experts that have the case's adapters attached, for every backend that makes the promise.
template <class F>
void for_backends(const RandomCase& c, const CaseData& data, bool Deployment::* promise, F&& body) {
  int count = 0;
  for (const MoeBackend* backend : built_in_backends()) {
    Deployment d = c.deployment;
    d.*promise = true;
    if (!backend->check(c.spec, d).empty()) continue;
    for (const Machine& machine : {Machine{"cpu", 1}, Machine{"cpu", 3}, Machine{"test", 2}}) {
      SCOPED_TRACE(std::string(backend->name()) + " on " + machine.device);
      const auto experts =
          PreparedExperts::make(std::string("require ") + backend->name(), c.spec, d, data.weights, machine);
      ASSERT_TRUE(experts.ok()) << experts.status().message();
      for (const auto& [slot, adapter] : data.adapters) ASSERT_TRUE((*experts)->attach(slot, *adapter).ok());
      body(**experts);
    }
    ++count;
  }
  EXPECT_GE(count, 1);
}

Floats rows_of(const Floats& all, const std::vector<std::int64_t>& rows, std::int64_t width) {
  Floats out;
  for (const std::int64_t row : rows) out.insert(out.end(), all.begin() + row * width, all.begin() + (row + 1) * width);
  return out;
}

TEST(MoePromises, TheSameCallGivesTheSameBits) {
  for (const bool gated : {true, false}) {
    const RandomCase c = mixed_case(gated);
    const CaseData data(c, 1);
    std::map<std::string, Floats> first;
    for_backends(c, data, &Deployment::need_repeatable, [&](PreparedExperts& experts) {
      Floats& bits = first[experts.selection().chosen];  // the same on every number of threads, too
      if (bits.empty()) bits = experts.run(data.batch);
      for (int i = 0; i < 3; ++i) expect_same_bits(experts.run(data.batch), bits, "call");
    });
  }
}

TEST(MoePromises, AdaptersOfOtherRowsDoNotTouchABaseRow) {
  for (const bool gated : {true, false}) {
    const RandomCase c = mixed_case(gated);
    const CaseData data(c, 2);
    MoeBatch none = data.batch;
    std::fill(none.slots.begin(), none.slots.end(), -1);
    std::vector<std::int64_t> base;
    for (std::int64_t t = 0; t < c.tokens; ++t) {
      if (data.batch.slots[static_cast<std::size_t>(t)] < 0) base.push_back(t);
    }
    ASSERT_GT(base.size(), 3u);
    for_backends(c, data, &Deployment::need_adapter_isolation, [&](PreparedExperts& experts) {
      const Floats mixed = experts.run(data.batch);
      const Floats plain = experts.run(none, false);
      const Floats declared = experts.run(none, true);
      expect_same_bits(rows_of(mixed, base, data.batch.width), rows_of(plain, base, data.batch.width), "base rows");
      expect_same_bits(declared, plain, "no row uses an adapter");
      // What is attached, or no longer, does not matter either.
      experts.experts().detach(0);
      experts.experts().detach(2);
      const Floats fewer = experts.run(data.batch);
      expect_same_bits(rows_of(fewer, base, data.batch.width), rows_of(plain, base, data.batch.width),
                       "fewer adapters");
      EXPECT_NE(fewer, mixed);
    });
  }
}

TEST(MoePromises, AnUnplannedLayerGivesABaseRowTheSameBits) {
  const RandomCase c = mixed_case(true);
  const CaseData data(c, 3);
  MoeBatch none = data.batch;
  std::fill(none.slots.begin(), none.slots.end(), -1);
  Deployment without = c.deployment;
  without.adapters = {};
  for (const MoeBackend* backend : built_in_backends()) {
    const std::string policy = std::string("require ") + backend->name();
    const Floats planned = run_moe(policy, c.spec, c.deployment, data.weights, data.adapters, none).value();
    const Floats bare = run_moe(policy, c.spec, without, data.weights, {}, none).value();
    expect_same_bits(planned, bare, backend->name());
  }
}

TEST(MoePromises, ARowDoesNotDependOnItsBatch) {
  for (const bool gated : {true, false}) {
    const RandomCase c = mixed_case(gated);
    const CaseData data(c, 4);
    for_backends(c, data, &Deployment::need_batch_invariance, [&](PreparedExperts& experts) {
      const Floats all = experts.run(data.batch);
      for (std::int64_t t = 0; t < c.tokens; ++t) {
        const Floats alone = experts.run(take_rows(data.batch, {t}));
        expect_same_bits(alone, rows_of(all, {t}, data.batch.width), "row " + std::to_string(t) + " alone");
      }
      // In chunks of every size, and in another order.
      for (std::int64_t chunk = 2; chunk < c.tokens; chunk += 5) {
        for (std::int64_t begin = 0; begin < c.tokens; begin += chunk) {
          std::vector<std::int64_t> rows;
          for (std::int64_t t = std::min(c.tokens, begin + chunk) - 1; t >= begin; --t) rows.push_back(t);
          expect_same_bits(experts.run(take_rows(data.batch, rows)), rows_of(all, rows, data.batch.width), "chunk");
        }
      }
    });
  }
}

// NaN in one row stays there.
TEST(MoePromises, ARowOfNanSpoilsOnlyItself) {
  const RandomCase c = mixed_case(true);
  const CaseData data(c, 5);
  MoeBatch bad = data.batch;
  constexpr std::int64_t kRow = 7;
  for (std::int64_t i = 0; i < bad.width; ++i) {
    bad.x[static_cast<std::size_t>(kRow * bad.width + i)] =
        i % 2 == 0 ? std::nanf("") : std::numeric_limits<float>::infinity();
  }
  std::vector<std::int64_t> others;
  for (std::int64_t t = 0; t < c.tokens; ++t) {
    if (t != kRow) others.push_back(t);
  }
  for_backends(c, data, &Deployment::need_repeatable, [&](PreparedExperts& experts) {
    const Floats clean = experts.run(data.batch), spoiled = experts.run(bad);
    expect_same_bits(rows_of(spoiled, others, bad.width), rows_of(clean, others, bad.width), "other rows");
    for (const float y : rows_of(spoiled, {kRow}, bad.width)) ASSERT_TRUE(std::isnan(y));
  });
}

}  // namespace
}  // namespace cadre::test
