// What `cadre adapter check` says: bindings, memory, rounding, what is left over.
#include "lora/adapter_report.h"

#include <algorithm>

#include "lora/adapter_files.h"
#include "lora/adapter_rounding.h"
#include "lora/golden_targets.h"

namespace cadre {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kQ = "base_model.model.model.layers.0.self_attn.q_proj.";
const std::string kExperts = "base_model.model.model.layers.0.mlp.experts.";

Tensors q_proj() { return {{kQ + "lora_A.weight", numbered(2, 8, 1)}, {kQ + "lora_B.weight", numbered(8, 2, 2)}}; }

// Every number under a key "bf16_rounding" made 0: a test of its own has those.
Json without_rounding(const Json& json, bool inside = false) {
  if (json.is_number() && inside) return Json(0);
  if (json.is_array()) {
    std::vector<Json> items;
    for (const Json& item : json.items()) items.push_back(without_rounding(item, inside));
    return Json::array(std::move(items));
  }
  if (!json.is_object()) return json;
  std::vector<Json::Member> members;
  for (const auto& [key, value] : json.members()) {
    members.emplace_back(key, without_rounding(value, inside || key == "bf16_rounding"));
  }
  return Json::object(std::move(members));
}

TEST(Report, TextAndJson) {
  Tensors tensors = q_proj();
  for (int e : {0, 2}) {
    tensors[kExperts + std::to_string(e) + ".down_proj.lora_A.weight"] = numbered(e + 1, 6, e);
    tensors[kExperts + std::to_string(e) + ".down_proj.lora_B.weight"] = numbered(8, e + 1, e);
  }
  tensors["base_model.model.lm_head.weight"] = numbered(16, 8, 5);
  const auto adapter = read_tensors(small_targets(), config_text(R"("modules_to_save": ["lm_head"], "rank_pattern":
      {"experts.0.down_proj": 1, "experts.2.down_proj": 3})"),
                                    tensors);
  ASSERT_THAT(adapter, Succeeds());
  const std::string digest = (*adapter)->digest;
  EXPECT_EQ(
      report_text(**adapter),
      "adapter 'test': peft linear + whole weights + per expert, 864 bytes, largest rank 3, digest " + digest + "\n" +
          "  model.layers.0.self_attn.q_proj: linear, rank 2, scale 2, float32, in bf16 A 0.32 % and B 0.24 % off\n"
          "  lm_head: replacement, float32, in bf16 0.26 % off\n"
          "  model.layers.0.mlp.experts down: experts, 2 experts, rank 1 to 3, scale "
          "1.33333 to 4, float32, in bf16 A 0.25 % and B 0.28 % off\n"
          "  memory: 864 bytes packed; layer 0 352 bytes; outside of the layers 512 bytes\n"
          "  memory by rank: whole weights 512 bytes, rank 1 56 bytes, rank 2 128 bytes, rank 3 168 bytes\n"
          "  rounding: none here, the file's numbers are kept; a backend with bf16 adapters would change each by "
          "at most 0.32 % of itself\n");
  const auto want =
      Json::parse(R"({"name": "test", "digest": ")" + digest +
                      R"(", "format": "peft linear + whole weights + per expert", "bytes": 864, "packed": {"bytes": 864,
          "layers": [{"layer": null, "bytes": 512}, {"layer": 0, "bytes": 352}], "ranks": [{"rank": null, "bytes": 512},
          {"rank": 1, "bytes": 56}, {"rank": 2, "bytes": 128}, {"rank": 3, "bytes": 168}]}, "bf16_rounding": 0,
          "max_rank": 3, "bindings": [
          {"module": "model.layers.0.self_attn.q_proj", "kind": "linear", "dtype": "float32", "min_rank": 2,
           "max_rank": 2, "min_scale": 2.0, "max_scale": 2.0, "packed_bytes": 128, "bf16_rounding": {"a": 0, "b": 0}},
          {"module": "lm_head", "kind": "replacement", "dtype": "float32", "packed_bytes": 512,
           "bf16_rounding": {"weight": 0}},
          {"module": "model.layers.0.mlp.experts", "kind": "experts", "dtype": "float32", "projection": "down",
           "experts": 2, "min_rank": 1, "max_rank": 3, "min_scale": 1.3333333730697632, "max_scale": 4.0,
           "packed_bytes": 224, "bf16_rounding": {"a": 0, "b": 0}}],
          "left_over": [], "notes": []})",
                  "expected");
  ASSERT_THAT(want, Succeeds());
  EXPECT_EQ(without_rounding(report_json(**adapter)).dump(), without_rounding(*want).dump());
}

// Powers of two and what fits in 8 bits are exact; half a step more is off by the most.
TEST(Report, Rounding) {
  Tensors tensors = q_proj();
  std::fill(tensors[kQ + "lora_A.weight"].values.begin(), tensors[kQ + "lora_A.weight"].values.end(), -0.15625f);
  std::fill(tensors[kQ + "lora_B.weight"].values.begin(), tensors[kQ + "lora_B.weight"].values.end(), 0.0f);
  auto exact = read_tensors(small_targets(), config_text(), tensors);
  ASSERT_THAT(exact, Succeeds());
  Rounding rounding = bf16_rounding(std::span(&(*exact)->dense.at(0).delta, 1));
  EXPECT_EQ(rounding.a, 0);
  EXPECT_EQ(rounding.b, 0);
  EXPECT_THAT(report_text(**exact), HasSubstr("  rounding: none; every number is exact in bf16\n"));

  tensors[kQ + "lora_A.weight"](1, 7) = 1 + 0x1p-8f;  // between 1 and 1 + 2^-7, goes to 1
  tensors[kQ + "lora_B.weight"](7, 1) = -4 - 0x1p-9f;
  const auto adapter = read_tensors(small_targets(), config_text(), tensors);
  ASSERT_THAT(adapter, Succeeds());
  rounding = bf16_rounding(std::span(&(*adapter)->dense.at(0).delta, 1));
  EXPECT_DOUBLE_EQ(rounding.a, 0x1p-8 / (1 + 0x1p-8));
  EXPECT_DOUBLE_EQ(rounding.b, 0x1p-9 / (4 + 0x1p-9));
  EXPECT_LE(rounding.largest(), kBf16Rounding);
  EXPECT_DOUBLE_EQ(report_json(**adapter).get_double("bf16_rounding").value(), rounding.a);

  tensors[kQ + "lora_A.weight"](0, 0) = 0x1p-149f;  // below BF16's range: becomes 0
  const auto tiny = read_tensors(small_targets(), config_text(), tensors);
  ASSERT_THAT(tiny, Succeeds());
  EXPECT_EQ(bf16_rounding((*tiny)->dense.at(0).delta.a), 1);
  EXPECT_THAT(report_text(**tiny), HasSubstr("by at most 1e+02 % of itself, since some are below bf16's range"));
}

// Gate and up of a stacked file share A, which is packed once.
TEST(Report, SharedTermsCountOnce) {
  const AdapterTargets targets = small_targets();
  const ExpertsTarget& experts = targets.experts.front();
  const std::int64_t flat = 2 * experts.experts;
  const auto adapter = read_tensors(targets, config_text(R"("target_parameters": ["mlp.experts.gate_up_proj"])"),
                                    {{kExperts + "lora_A.weight", numbered(flat, experts.width, 1)},
                                     {kExperts + "lora_B.weight", numbered(2 * experts.intermediate, flat, 2)}});
  ASSERT_THAT(adapter, Succeeds());
  const std::vector<AdapterBinding>& bindings = (*adapter)->report.bindings;
  ASSERT_EQ(bindings.size(), 2u);
  EXPECT_EQ(bindings[0].projection, "gate");
  EXPECT_EQ(bindings[0].packed_bytes, 4 * flat * (experts.width + experts.intermediate));
  EXPECT_EQ(bindings[1].projection, "up");
  EXPECT_EQ(bindings[1].packed_bytes, 4 * flat * experts.intermediate);
  EXPECT_EQ(bindings[0].packed_bytes + bindings[1].packed_bytes, (*adapter)->report.bytes);
}

TEST(Judge, SaysWhatIsLeftOver) {
  const TempDir folder;
  Tensors tensors = q_proj();
  std::vector<std::string> odd;
  for (int i = 0; i < 12; ++i) {
    odd.push_back("base_model.model.model.layers.0.odd" + std::string(1, static_cast<char>('a' + i)) +
                  ".lora_A.weight");
    tensors[odd.back()] = numbered(2, 8, i);
  }
  write_adapter(folder.path(), config_text(), tensors);
  const auto refused = judge_adapter(folder.path().string(), "test", small_targets());
  ASSERT_THAT(refused, Succeeds());
  EXPECT_FALSE(refused->usable);
  EXPECT_FALSE(refused->json.get_bool("usable").value());
  EXPECT_EQ(refused->json.get_string("name").value(), "test");
  EXPECT_EQ(refused->json.get_string("code").value(), "invalid_file");
  EXPECT_THAT(refused->json.get_string("error").value(), HasSubstr("12 of 14 tensors bind to nothing"));
  EXPECT_THAT(refused->json.get_string_list("left_over").value(), testing::UnorderedElementsAreArray(odd));
  EXPECT_THAT(refused->text, testing::StartsWith("not usable: adapter 'test': "));

  write_adapter(folder.path(), config_text(), q_proj());
  const auto usable = judge_adapter(folder.path().string(), "test", small_targets());
  ASSERT_THAT(usable, Succeeds());
  EXPECT_TRUE(usable->usable);
  EXPECT_TRUE(usable->json.get_bool("usable").value());
  EXPECT_THAT(usable->json.get_array("left_over").value(), ElementsAre());
}

TEST(Judge, FoldersThatAreNoneAreErrors) {
  const TempDir folder;
  EXPECT_THAT(judge_adapter((folder / "none").string(), "test", small_targets()),
              FailsWith(Code::kNotFound, "is not there"));
  folder.write("file", "x");
  EXPECT_THAT(judge_adapter((folder / "file").string(), "test", small_targets()),
              FailsWith(Code::kInvalidArgument, "is a file"));
}

}  // namespace
}  // namespace cadre
