// What model families really ask, against the reference: the goldens' checkpoints and the example specs.
#include <filesystem>

#include "model/model.h"
#include "moe/experts/cpu_reference/backend.h"
#include "moe/presets.h"
#include "moe/spec_json.h"
#include "support/status_matchers.h"

namespace cadre::test {
namespace {

namespace fs = std::filesystem;

void reference_admits(const LayerSpec& spec, Deployment deployment) {
  const Result<Choice<MoeOp>> choice =
      make_moe_gate().select(spec, deployment, *parse_policy("require cpu_reference", "test"));
  EXPECT_TRUE(choice.ok()) << describe(spec) << ": " << choice.status().message();
}

TEST(Families, TheReferenceAdmitsTheGoldens) {
  int models = 0, layers = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(CADRE_GOLDENS) / "models")) {
    ModelOptions options;
    options.dir = entry.path();
    options.device = make_cpu_device();
    const Result<std::unique_ptr<Model>> model = Model::load(std::move(options));
    if (!model.ok() && model.status().code() == Code::kUnsupported) continue;  // a family of a later version
    ASSERT_TRUE(model.ok()) << entry.path() << ": " << model.status().message();
    ++models;
    AdapterPlan none;
    for (const LayerSelection& group : (*model)->requests(Deployment{}, none)) {
      ++layers;
      EXPECT_THAT(validate(group.spec, group.deployment), Succeeds());
      reference_admits(group.spec, group.deployment);
      Deployment lora = with_lora(group.deployment, 512, 16);
      lora.adapters.layouts = kPerExpert | kSharedGateUpA | kSharedOuter;
      reference_admits(group.spec, lora);
    }
  }
  EXPECT_GE(models, 5);
  EXPECT_GE(layers, 5);
}

TEST(Families, ExampleSpecsRead) {
  const fs::path folder = fs::path(CADRE_SOURCE) / "examples" / "specs" / "layers";
  int specs = 0;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.path().extension() != ".json") continue;
    const Result<Json> json = Json::parse_file(entry.path());
    ASSERT_TRUE(json.ok()) << json.status().message();
    const Result<std::vector<Json>> groups = json->get_array("layers");
    ASSERT_TRUE(groups.ok()) << groups.status().message();
    for (const Json& group : *groups) {
      const Result<Json> object = group.get_object("spec");
      ASSERT_TRUE(object.ok()) << object.status().message();
      const Result<LayerSpec> spec = read_layer_spec(*object);
      ASSERT_TRUE(spec.ok()) << spec.status().message();
      ++specs;
      // Quantised bases wait for their backends; the reference says so and nothing else.
      const std::vector<Refusal> refusals = cpu_reference_backend().check(*spec, Deployment{});
      if (spec->weights.scheme == WeightScheme::kPlain) {
        reference_admits(*spec, Deployment{});
      } else {
        for (const Refusal& r : refusals) {
          EXPECT_TRUE(r.code == Reason::kWeightType || r.code == Reason::kWeightScheme) << message(r);
        }
      }
    }
  }
  EXPECT_GE(specs, 1);
}

}  // namespace
}  // namespace cadre::test
