// Flips every field of every built-in backend's record in turn: the grid must notice each, or the record could say
// something that no test looks at.
#include <gtest/gtest.h>

#include <cstdio>

#include "moe/grid.h"
#include "moe/record_fields.h"

namespace cadre::test {
namespace {

struct Mutant {
  std::string what;
  MoeRecord record;
};

std::int64_t no_bytes(const LayerSpec&, const Deployment&) { return 0; }
std::int64_t all_bytes(const LayerSpec&, const Deployment&) { return kNoLimit; }

// Domains in which a limit without end ends: the largest value that the gate lets pass.
std::int64_t end_of(const std::string& field) {
  if (field == "max_experts") return kMaxLayerExperts;
  if (field == "max_top_k") return kMaxLayerTopK;
  if (field == "max_width") return kMaxLayerWidth;
  return 1 << 16;  // ranks, adapters, adapters' rank
}

std::vector<Mutant> mutants_of(const MoeRecord& original) {
  std::vector<Mutant> out;
  std::size_t fields = 0;
  visit_fields(original, [&](const char* name, const auto& value, auto kind) {
    using Value = std::remove_cvref_t<decltype(value)>;
    using Kind = decltype(kind);
    const std::string field = name;
    ++fields;
    const auto add = [&](const std::string& what, Value changed) {
      MoeRecord record = original;
      visit_fields(record, [&](const char* other, auto& slot, auto) {
        if constexpr (std::is_same_v<std::remove_cvref_t<decltype(slot)>, Value>) {
          if (field == other) slot = changed;
        }
      });
      out.push_back({field + ": " + what, record});
    };
    if constexpr (std::is_same_v<Value, bool>) {
      // Padding to a multiple of 1 is no padding.
      if (field == "pads_intermediate" && original.intermediate_multiple == 1) return;
      add(value ? "false" : "true", !value);
    } else if constexpr (std::is_same_v<Value, CpuIsa>) {
      for (int i = 0; i < kCountOf<CpuIsa>; ++i) {
        if (static_cast<CpuIsa>(i) != value)
          add(std::string(to_string(static_cast<CpuIsa>(i))), static_cast<CpuIsa>(i));
      }
    } else if constexpr (std::is_same_v<Kind, SetOf>) {
      for (int i = 0; i < kind.values; ++i) {
        // GPU families before 8 are not among the known machines.
        if (field == "sm_families" && (i < 8)) continue;
        add("bit " + std::to_string(i), value ^ (std::uint32_t{1} << i));
      }
    } else if constexpr (std::is_same_v<Kind, Limit>) {
      const std::int64_t end = std::min(value, end_of(field));
      add(std::to_string(end - 1), end - 1);
      if (value < end_of(field)) add(std::to_string(value + 1), value + 1);
    } else if constexpr (std::is_same_v<Kind, Multiple>) {
      // Where the backend pads, the multiple refuses nothing; what it pads to is in the remedies.
      if (field == "intermediate_multiple" && original.pads_intermediate) return;
      add(std::to_string(2 * value), 2 * value);
      if (value > 1) add(std::to_string(value / 2), value / 2);
    } else {
      static_assert(std::is_same_v<Value, decltype(original.workspace)>);
      if (value != nullptr) add("none", nullptr);
      if (value != nullptr) add("0 bytes", &no_bytes);
      add("endless", &all_bytes);
    }
  });
  EXPECT_GE(fields, 49u);
  return out;
}

TEST(Mutation, TheGridNoticesEveryFieldOfEveryRecord) {
  std::vector<Point> points;
  for (const Recorded& r : all_records()) {
    for (const Edge& edge : edges_of(r)) points.push_back(edge.point);
  }
  for (int i = 0; i < kRandomPoints; i += 11) points.push_back(random_point(i));

  for (const Recorded& r : built_in_records()) {
    std::vector<std::vector<Reason>> want;
    want.reserve(points.size());
    for (const Point& p : points) want.push_back(codes_of(check_record(*r.record, p.spec, p.deployment)));
    const std::vector<Mutant> mutants = mutants_of(*r.record);
    std::size_t noticed = 0;
    for (const Mutant& mutant : mutants) {
      bool seen = false;
      for (std::size_t i = 0; i < points.size() && !seen; ++i) {
        seen = codes_of(check_record(mutant.record, points[i].spec, points[i].deployment)) != want[i];
      }
      EXPECT_TRUE(seen) << r.backend->name() << ": nobody notices " << mutant.what;
      noticed += seen;
    }
    std::printf("%s: %zu of %zu mutants noticed\n", r.backend->name(), noticed, mutants.size());
  }
}

// What padding to another multiple changes shows in the remedies that users read.
TEST(Mutation, RemediesNoticeThePaddedMultiple) {
  for (const Recorded& r : built_in_records()) {
    if (!r.record->pads_intermediate) continue;
    for (const std::int64_t multiple : {r.record->intermediate_multiple / 2, r.record->intermediate_multiple * 2}) {
      MoeRecord mutant = *r.record;
      mutant.intermediate_multiple = multiple;
      bool seen = false;
      for (int i = 0; i < 1000 && !seen; ++i) {
        const Point p = random_point(i);
        seen = padding_remedies(mutant, p.spec, p.deployment) != padding_remedies(*r.record, p.spec, p.deployment);
        // A backend that pads says so.
        if (!padding_remedies(*r.record, p.spec, p.deployment).empty()) {
          EXPECT_FALSE(r.backend->remedies(p.spec, p.deployment).empty()) << r.backend->name();
        }
      }
      EXPECT_TRUE(seen) << r.backend->name() << ": nobody notices padding to " << multiple;
    }
  }
}

}  // namespace
}  // namespace cadre::test
