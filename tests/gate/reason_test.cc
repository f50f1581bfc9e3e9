// The catalogue of reasons.
#include <cadre/selection.h>
#include <gtest/gtest.h>

#include <cctype>
#include <set>

namespace cadre {
namespace {

TEST(Reason, EveryCodeHasItsOwnNameAndASubject) {
  std::set<std::string_view> codes;
  for (int i = 0; i < static_cast<int>(Reason::kCount); ++i) {
    const ReasonInfo& info = reason_info(static_cast<Reason>(i));
    EXPECT_FALSE(info.code.empty()) << i;
    EXPECT_FALSE(info.subject.empty()) << i;
    EXPECT_TRUE(codes.insert(info.code).second) << info.code;
    for (const char c : info.code) EXPECT_TRUE(std::islower(static_cast<unsigned char>(c)) || c == '_') << info.code;
  }
}

TEST(Reason, CodesAreWhereTheyBelong) {
  // The table is in the enum's order; a line too few or out of place shows here.
  const std::pair<Reason, std::string_view> pairs[] = {
      {Reason::kNotInThisBuild, "not_in_this_build"},
      {Reason::kActivationsElsewhere, "activations_elsewhere"},
      {Reason::kNotGated, "not_gated"},
      {Reason::kExpertBias, "expert_bias"},
      {Reason::kRouterLogitsType, "router_logits_type"},
      {Reason::kIntermediateSize, "intermediate_size"},
      {Reason::kAdapterSharding, "adapter_sharding"},
      {Reason::kTensorParallel, "tensor_parallel"},
      {Reason::kDataParallel, "data_parallel"},
      {Reason::kSequenceParallel, "sequence_parallel"},
      {Reason::kExpertRebalancing, "expert_rebalancing"},
      {Reason::kActivationFormat, "activation_format"},
      {Reason::kWorkspace, "workspace"},
      {Reason::kExcluded, "excluded"},
      {Reason::kRehearsal, "rehearsal"},
  };
  for (const auto& [reason, code] : pairs) EXPECT_EQ(reason_info(reason).code, code);
}

TEST(Reason, OnlyTheMachineIsAboutTheMachine) {
  int about = 0;
  for (int i = 0; i < static_cast<int>(Reason::kCount); ++i) about += reason_info(static_cast<Reason>(i)).about_device;
  EXPECT_EQ(about, 5);
  EXPECT_TRUE(reason_info(Reason::kDeviceKind).about_device);
  EXPECT_FALSE(reason_info(Reason::kActivationsElsewhere).about_device);
}

TEST(Reason, MessageNamesGotAndWant) {
  EXPECT_EQ(message({Reason::kIntermediateSize, "192", "a multiple of 128"}),
            "the intermediate size on each rank: got 192, want a multiple of 128");
}

}  // namespace
}  // namespace cadre
