// Routers at their edges against transformers' own modules: tests/data/extra/routing, made by
// tools/goldens/make_routing_edges.py. Among equal scores the lower id comes first; torch leaves that open.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "moe/routing.h"
#include "moe/spec_json.h"
#include "support/exec_fixture.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

Floats floats(const Json& object, std::string_view key) {
  const std::vector<double> values = object.get_double_list(key).value();
  return Floats(values.begin(), values.end());
}

class RoutingEdges : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    const Result<Json> file = Json::parse_file(std::string(CADRE_SOURCE) + "/tests/data/extra/routing/edges.json");
    ASSERT_THAT(file.status(), Succeeds());
    logits_ = file->get_object("logits").value();
    cases_ = file->get_array("cases").value();
  }

  struct Case {
    explicit Case(const Json& json)
        : family(json.get_string("family").value()),
          experts(static_cast<int>(json.get_int("experts").value())),
          k(static_cast<int>(json.get_int("top_k").value())),
          bias(floats(json, "bias")),
          scale(floats(json, "scale")),
          rows(json.get_array("rows").value()) {
      // As a layer spec states it, so that what the spec cannot say cannot be tested either.
      Json layer = Json::object({{"experts", experts},
                                 {"top_k", k},
                                 {"hidden", 8},
                                 {"intermediate", 8},
                                 {"routing", json.get_object("routing").value()}});
      const Result<LayerSpec> spec = read_layer_spec(layer);
      EXPECT_THAT(spec.status(), Succeeds());
      if (spec.ok()) routing = spec->routing;
    }
    std::string family;
    int experts, k;
    Floats bias, scale;
    std::vector<Json> rows;
    RoutingSpec routing;
  };

  static Json logits_;
  static std::vector<Json> cases_;
};
Json RoutingEdges::logits_;
std::vector<Json> RoutingEdges::cases_;

TEST_F(RoutingEdges, MeetTransformers) {
  std::set<Routing> kinds;
  std::set<std::string> families;
  for (const Json& json : cases_) {
    const Case c(json);
    ASSERT_EQ(c.routing.selection_bias, !c.bias.empty());
    const Json table = logits_.get_object(std::to_string(c.experts)).value();
    for (const Machine& machine : {Machine{"cpu", 1}, Machine{"test", 2}}) {
      TestExec t(machine, std::size_t{1} << 16);
      Floats all;
      for (const Json& row : c.rows) {
        for (const float z : floats(table, row.get_string("edge").value())) all.push_back(z);
      }
      const auto tokens = static_cast<std::int64_t>(c.rows.size());
      RouteArgs args;
      args.ids = t.put({tokens, c.k}, Ints(static_cast<std::size_t>(tokens * c.k), -7));
      args.weights = t.make({tokens, c.k});
      args.logits = t.put_strided({tokens, c.experts}, all);
      if (!c.bias.empty()) args.selection_bias = t.put({c.experts}, c.bias);
      if (!c.scale.empty()) args.per_expert_scale = t.put({c.experts}, c.scale);
      route(t.exec, args, c.routing);
      const Ints ids = t.get_ints(args.ids);
      const Floats weights = t.get(args.weights);
      for (std::size_t r = 0; r < c.rows.size(); ++r) {
        SCOPED_TRACE(c.family + " " + json.get_object("routing")->dump() + ", top " + std::to_string(c.k) + " of " +
                     std::to_string(c.experts) + ": " + c.rows[r].get_string("edge").value());
        const std::vector<std::int64_t> want_ids = c.rows[r].get_int_list("ids").value();
        const std::vector<double> want = c.rows[r].get_double_list("weights").value();
        for (std::size_t j = 0; j < want.size(); ++j) {
          const std::size_t at = r * want.size() + j;
          ASSERT_EQ(ids[at], want_ids[j]) << "place " << j;
          // Exponentials of float32 differences: the error grows with the spread, and what underflows is gone.
          ASSERT_NEAR(weights[at], want[j], 5e-6 * std::fabs(want[j]) + 1e-37) << "place " << j;
        }
      }
    }
    kinds.insert(c.routing.kind);
    families.insert(c.family);
  }
  EXPECT_EQ(kinds.size(), 5u) << "a class of routing has no row here";
  EXPECT_GE(families.size(), 13u);
}

}  // namespace
}  // namespace cadre::test
