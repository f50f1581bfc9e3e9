// Every backend on every point of the grid. What is admitted and refused, and why, is counted and compared with a
// reviewed table: tests/moe/grid_counts.txt. After a change that is meant, write it anew and read the difference:
//   CADRE_WRITE_GRID_COUNTS=1 ./test_moe_grid --gtest_filter=Grid.CountsAreAsReviewed
#include "moe/grid.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "moe/presets.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

constexpr const char* kFile = CADRE_SOURCE "/tests/moe/grid_counts.txt";

bool waived(const Refusal& refusal, const Deployment& d) {
  return d.device.described && (refusal.code == Reason::kNotInThisBuild || refusal.code == Reason::kDeviceAbsent);
}

bool is_built_in(const Recorded& r) {
  const auto& list = built_in_backends();
  return std::find(list.begin(), list.end(), r.backend) != list.end();
}

// Counts by backend and code; also what must hold at every point.
struct Survey {
  std::map<std::string, std::map<std::string, int>> counts;
  int points = 0, by_reference = 0, by_another = 0, by_another_built_in = 0, refused_by_all = 0;

  void add(const Point& p) {
    ++points;
    ASSERT_THAT(validate(p.spec, p.deployment), Succeeds()) << describe(p.spec) << " | " << describe(p.deployment);
    bool another = false, built_in = false, reference = false;
    for (const Recorded& r : all_records()) {
      auto& count = counts[r.backend->name()];
      bool admitted = true;
      for (const Refusal& refusal : r.backend->check(p.spec, p.deployment)) {
        const bool let_off = waived(refusal, p.deployment);
        ++count[std::string(reason_info(refusal.code).code) + (let_off ? " (waived)" : "")];
        admitted &= let_off;
        ASSERT_FALSE(refusal.got.empty() || refusal.want.empty()) << message(refusal);
      }
      if (!admitted) continue;
      ++count["admitted"];
      const bool is_reference = std::string_view(r.backend->name()) == "cpu_reference";
      (is_reference ? reference : another) = true;
      built_in |= !is_reference && is_built_in(r);
      for (const auto& [tokens, share] : MoeOp::token_mix(p.deployment)) {
        const double seconds = r.backend->estimate(p.spec, p.deployment, tokens);
        ASSERT_TRUE(std::isfinite(seconds) && seconds > 0) << r.backend->name() << ": " << describe(p.spec);
      }
    }
    by_reference += reference;
    by_another += another;
    by_another_built_in += built_in;
    refused_by_all += !reference && !another;
  }

  std::string text() const {
    std::ostringstream out;
    out << "# " << points << " points: admitted by the reference " << by_reference << ", by another " << by_another
        << ", by none " << refused_by_all << "\n";
    for (const auto& [backend, codes] : counts) {
      out << backend << "\n";
      for (const auto& [code, count] : codes) out << "  " << code << " " << count << "\n";
    }
    return std::move(out).str();
  }
};

const Survey& survey() {
  static const Survey s = [] {
    Survey out;
    for_each_point([&](const Point& p) {
      if (!testing::Test::HasFatalFailure()) out.add(p);
    });
    return out;
  }();
  return s;
}

TEST(Grid, CountsAreAsReviewed) {
  const std::string got = survey().text();
  ASSERT_FALSE(HasFatalFailure());
  EXPECT_GE(survey().points, 200'000);
  if (std::getenv("CADRE_WRITE_GRID_COUNTS") != nullptr) {
    std::ofstream(kFile) << got;
    GTEST_SKIP() << "wrote " << kFile;
  }
  std::ifstream file(kFile);
  std::stringstream reviewed;
  reviewed << file.rdbuf();
  EXPECT_EQ(got, reviewed.str()) << "see the head of grid_test.cc";
}

TEST(Grid, AQuarterGoesToAnotherThanTheReference) {
  const Survey& s = survey();
  std::printf("%d points: reference %d, another %d (built in: %d), none %d\n", s.points, s.by_reference, s.by_another,
              s.by_another_built_in, s.refused_by_all);
  EXPECT_GE(s.by_another * 4, s.points);
  EXPECT_GE(s.by_another_built_in * 4, s.points);  // of this project alone, too
}

TEST(Grid, EveryBackendIsAdmittedSomewhere) {
  for (const Recorded& r : all_records()) {
    const auto& counts = survey().counts.at(r.backend->name());
    ASSERT_TRUE(counts.contains("admitted")) << r.backend->name();
    EXPECT_GE(counts.at("admitted"), 5) << r.backend->name();
  }
}

TEST(Grid, EveryReasonIsSeen) {
  std::set<std::string> seen;
  for (const auto& [backend, codes] : survey().counts) {
    for (const auto& [code, count] : codes) seen.insert(code.substr(0, code.find(' ')));
  }
  // The policy's own reason comes from the gate.
  const Result<Selection> excluded =
      catalogue_gate().explain(spec_of("olmoe"), on("tpu"), *parse_policy("exclude tpu", ""));
  ASSERT_TRUE(excluded.ok());
  for (const Candidate& c : excluded->candidates) {
    for (const Refusal& refusal : c.refusals) seen.emplace(reason_info(refusal.code).code);
  }
  // And so does that of a rehearsal that failed, after which the next one takes over.
  const Result<Choice<MoeOp>> next =
      catalogue_gate().select(spec_of("qwen3-30b-a3b"), on("b200"), {}, {{"trtllm_monolithic", "row 3 off by 0.5"}});
  ASSERT_TRUE(next.ok()) << next.status().message();
  EXPECT_NE(next->selection.chosen, "trtllm_monolithic");
  for (const Candidate& c : next->selection.candidates) {
    for (const Refusal& refusal : c.refusals) seen.emplace(reason_info(refusal.code).code);
  }
  for (int i = 0; i < static_cast<int>(Reason::kCount); ++i) {
    EXPECT_TRUE(seen.contains(std::string(reason_info(static_cast<Reason>(i)).code)))
        << reason_info(static_cast<Reason>(i)).code;
  }
}

TEST(Grid, LimitsHoldOnBothSides) {
  int both = 0;
  for (const Recorded& r : all_records()) {
    for (const Edge& edge : edges_of(r)) {
      SCOPED_TRACE(std::string(r.backend->name()) + " " + edge.field + ": " + describe(edge.point.spec) + " | " +
                   describe(edge.point.deployment));
      std::vector<Reason> codes;
      for (const Refusal& refusal : r.backend->check(edge.point.spec, edge.point.deployment)) {
        if (!waived(refusal, edge.point.deployment)) codes.push_back(refusal.code);
      }
      EXPECT_EQ(codes, edge.admitted ? std::vector<Reason>{} : std::vector<Reason>{edge.reason});
      both += !edge.admitted;
    }
  }
  EXPECT_GE(both, 20);
}

TEST(Grid, ChecksReadTheRecords) {
  for (int i = 0; i < kRandomPoints; i += 37) {
    const Point p = random_point(i);
    for (const Recorded& r : built_in_records()) {
      ASSERT_EQ(r.backend->check(p.spec, p.deployment), check_record(*r.record, p.spec, p.deployment))
          << r.backend->name() << ": " << describe(p.spec);
    }
  }
}

// The whole gate, on a part of the grid: it chooses where anybody admits, the same one each time, and its choice is
// never one that is refused.
TEST(Grid, TheGateChoosesWhereAnybodyAdmits) {
  const MoeGate gate = catalogue_gate();
  for (int i = 0; i < kRandomPoints; i += 41) {
    const Point p = random_point(i);
    Status why;
    const Result<Selection> s = gate.explain(p.spec, p.deployment, {}, &why);
    ASSERT_TRUE(s.ok()) << s.status().message();
    bool admitted = false;
    for (const Candidate& c : s->candidates) {
      ASSERT_EQ(c.admitted, c.refusals.empty());
      admitted |= c.admitted;
    }
    ASSERT_EQ(admitted, !s->chosen.empty());
    ASSERT_EQ(admitted, why.ok());
    ASSERT_EQ(admitted, s->candidates.front().admitted);
    if (!admitted) continue;
    ASSERT_EQ(s->candidates.front().backend, s->chosen);
    const Result<Choice<MoeOp>> again = gate.select(p.spec, p.deployment, {});
    ASSERT_TRUE(again.ok());
    ASSERT_EQ(again->selection.chosen, s->chosen);
    ASSERT_EQ(again->admission.backend().name(), s->chosen);
  }
}

// Every published layer whose base is not quantised, with and without adapters, whole or split.
TEST(Grid, TheReferenceAdmitsWhatTheFamiliesNeed) {
  const Recorded reference = built_in_records().back();
  ASSERT_STREQ(reference.backend->name(), "cpu_reference");
  for (const NamedSpec& preset : preset_specs()) {
    if (preset.spec.weights.scheme != WeightScheme::kPlain) continue;
    for (const WeightType type : {WeightType::kBF16, WeightType::kF16, WeightType::kF32}) {
      for (const int tensor_ranks : {1, 4}) {
        for (const int expert_ranks : {1, 4}) {
          for (const int layouts : {0, 1, 2, 4, 7}) {
            Point p{preset.spec, on("cpu")};
            p.deployment.device.described = false;
            p.spec.weights.type = p.deployment.activation_type = type;
            p.deployment.tensor_parallel = tensor_ranks;
            p.deployment.expert_parallel = expert_ranks;
            if (expert_ranks > 1) p.deployment.expert_parallel_kind = ExpertParallelKind::kAllGatherReduceScatter;
            if (layouts > 0) p.deployment = with_lora(p.deployment, 512, 64);
            p.deployment.adapters.layouts = static_cast<std::uint8_t>(layouts);
            p.deployment.need_batch_invariance = true;
            EXPECT_EQ(reference.backend->check(p.spec, p.deployment), std::vector<Refusal>{})
                << preset.name << " | " << describe(p.deployment);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace cadre::test
