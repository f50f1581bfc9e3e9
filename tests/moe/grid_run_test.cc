// Points of the grid that a backend other than the reference admits, executed on small sizes: each meets the reference
// within its bound. The gate's word is worth what the kernel then does.
#include "moe/grid.h"
#include "moe/moe_random.h"
#include "moe/presets.h"

namespace cadre::test {
namespace {

// The largest value up to `limit` that is as far from a multiple of 32 as `value`.
std::int64_t shrink(std::int64_t value, std::int64_t limit) {
  return value <= limit ? value : value % 32 + (limit - value % 32) / 32 * 32;
}

// The same kind of point, small enough to run by the thousand.
Point small(Point p, unsigned seed) {
  LayerSpec& s = p.spec;
  Deployment& d = p.deployment;
  d.tensor_parallel = std::min(d.tensor_parallel, 2);
  d.expert_parallel = std::min(d.expert_parallel, 2);
  if (d.expert_parallel == 1) d.expert_parallel_kind = ExpertParallelKind::kNone;
  s.experts = std::min(s.experts, 6);
  s.top_k = std::min({s.top_k, s.experts, 4});
  s.routing.groups = s.routing.topk_groups = 1;
  s.hidden = shrink(s.hidden, 96);
  s.latent = shrink(s.latent, 64);
  s.intermediate = shrink(s.intermediate, 96);
  s.shared_experts = 0;
  s.shared_intermediate = 0;
  d.max_tokens = 1 + static_cast<int>(seed % 7);
  d.token_mix.clear();
  d.workspace_limit = 0;
  d.adapters.max_adapters = std::min(d.adapters.max_adapters, 3);
  d.adapters.max_rank = std::min(d.adapters.max_rank, 1 + static_cast<int>(seed % 11));
  if (!s.activation.gated) d.adapters.projections &= kUp | kDown;
  // This machine, with no more instruction sets than the described one.
  const DeviceCaps mine = here().device, theirs = d.device;
  d.device = mine;
  d.device.avx2 = mine.avx2 && theirs.avx2;
  d.device.avx512 = mine.avx512 && theirs.avx512;
  d.device.avx512_bf16 = mine.avx512_bf16 && theirs.avx512_bf16;
  d.device.amx_bf16 = mine.amx_bf16 && theirs.amx_bf16;
  return p;
}

bool admits(const MoeBackend& backend, const Point& p) {
  for (const Refusal& refusal : backend.check(p.spec, p.deployment)) {
    const bool here_only = refusal.code == Reason::kDeviceAbsent || refusal.code == Reason::kInstructionSet;
    if (!here_only || !p.deployment.device.described) return false;
  }
  return true;
}

void run_point(const MoeBackend& backend, const Point& p, unsigned seed) {
  RandomCase c;
  c.spec = p.spec;
  c.deployment = p.deployment;
  c.tensor_rank = static_cast<int>(seed) % p.deployment.tensor_parallel;
  c.expert_rank = static_cast<int>(seed / 2) % p.deployment.expert_parallel;
  c.tokens = p.deployment.max_tokens;
  c.ids = static_cast<Ids>(seed % 3);
  c.storage = static_cast<Storage>(seed % (p.spec.activation.gated ? 3 : 2));
  if (p.deployment.adapters.any()) {
    c.adapters.assign(static_cast<std::size_t>(p.deployment.adapters.max_adapters), shape_of(p.deployment.adapters));
  }
  SCOPED_TRACE(std::string(backend.name()) + ", seed " + std::to_string(seed) + ": " + describe(p.spec) + " | " +
               describe(p.deployment));
  const CaseData data(c, seed);
  const auto run = [&](const std::string& name) {
    return run_moe("require " + name, c.spec, c.deployment, data.weights, data.adapters, data.batch, {"cpu", 1},
                   c.tensor_rank, c.expert_rank);
  };
  const Result<Floats> got = run(backend.name()), want = run("cpu_reference");
  ASSERT_TRUE(got.ok()) << got.status().message();
  ASSERT_TRUE(want.ok()) << want.status().message();
  const ExpertShard shard{c.tensor_rank, c.deployment.tensor_parallel, c.expert_rank, c.deployment.expert_parallel};
  std::vector<Exact> bound = moe_exact(c.spec, data.weights, data.adapters, data.batch, shard);
  ASSERT_EQ(want->size(), bound.size());
  for (std::size_t i = 0; i < bound.size(); ++i) bound[i].value = (*want)[i];
  ASSERT_NO_FATAL_FAILURE(expect_close(*got, bound, 3e-6));
}

TEST(GridRun, AdmittedPointsMeetTheReference) {
  constexpr int kWanted = 3000;
  int points = 0, adapted = 0, plain = 0, split = 0, padded = 0;
  for (const Recorded& r : built_in_records()) {
    if (std::string_view(r.backend->name()) == "cpu_reference") continue;
    int mine = 0;
    for (int i = 0; i < kRandomPoints && mine < kWanted; ++i) {
      const Point point = random_point(i);
      if (point.deployment.device.kind != DeviceKind::kCpu || !admits(*r.backend, point)) continue;
      const Point p = small(point, static_cast<unsigned>(i));
      // Small in the same way: what was admitted stays so, unless this machine lacks an instruction set.
      if (!admits(*r.backend, p)) continue;
      ASSERT_NO_FATAL_FAILURE(run_point(*r.backend, p, static_cast<unsigned>(i)));
      ++mine;
      adapted += p.deployment.adapters.any();
      plain += !p.spec.activation.gated;
      split += p.deployment.tensor_parallel > 1 || p.deployment.expert_parallel > 1;
      padded += !padding_remedies(*r.record, p.spec, p.deployment).empty();
    }
    std::printf("%s: %d points executed\n", r.backend->name(), mine);
    points += mine;
  }
  std::printf("with adapters %d, without a gate %d, split %d, padded %d\n", adapted, plain, split, padded);
  EXPECT_GE(points, kWanted);
  for (const int kind : {adapted, plain, split, padded}) EXPECT_GE(kind * 20, points);
}

}  // namespace
}  // namespace cadre::test
