// Policies as text.
#include "support/status_matchers.h"

#include <cadre/selection.h>

namespace cadre {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

Policy parsed(std::string_view text) {
  Result<Policy> policy = parse_policy(text, "--backend");
  EXPECT_TRUE(policy.ok()) << policy.status().message();
  return policy.ok() ? *policy : Policy{};
}

TEST(Policy, ReadsEveryForm) {
  EXPECT_EQ(parsed("auto").kind, PolicyKind::kAuto);
  EXPECT_THAT(parsed("auto").names, IsEmpty());
  for (const char* text :
       {"cpu_vector", "require cpu_vector", "require:cpu_vector", "require=cpu_vector", "  require   cpu_vector  "}) {
    EXPECT_EQ(parsed(text).kind, PolicyKind::kRequire) << text;
    EXPECT_THAT(parsed(text).names, ElementsAre("cpu_vector")) << text;
  }
  EXPECT_EQ(parsed("prefer x").kind, PolicyKind::kPrefer);
  EXPECT_EQ(parsed("exclude a, b,c").kind, PolicyKind::kExclude);
  EXPECT_THAT(parsed("exclude a, b,c").names, ElementsAre("a", "b", "c"));
  EXPECT_EQ(parsed("x").origin, "--backend");
  // A word at the start of a name is part of the name.
  EXPECT_THAT(parsed("automatic").names, ElementsAre("automatic"));
  EXPECT_THAT(parsed("preferred").names, ElementsAre("preferred"));
}

TEST(Policy, RefusesWhatIsNone) {
  for (const char* text :
       {"", "   ", "require", "prefer ", "exclude ,", "auto cpu_vector", "require a,b", "prefer a,b"}) {
    EXPECT_THAT(parse_policy(text, "CADRE_MOE_BACKEND"),
                FailsWith(Code::kInvalidArgument, "CADRE_MOE_BACKEND: got backend policy '"))
        << text;
  }
}

TEST(Policy, TextReadsBack) {
  for (const char* text : {"auto", "require cpu_vector", "prefer x", "exclude a,b"}) {
    EXPECT_EQ(to_string(parsed(text)), text);
    EXPECT_EQ(parsed(to_string(parsed(text))), parsed(text));
  }
}

}  // namespace
}  // namespace cadre
