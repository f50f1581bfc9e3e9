// The goldens as tests use them: a model folder's prompts and what transformers and PEFT computed for them.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/runner.h"
#include "io/safetensors.h"
#include "lora/adapter_reader.h"
#include "support/status_matchers.h"

namespace cadre::test {

using Ids = std::vector<std::int32_t>;

struct GoldenCase {
  Ids ids, greedy;
  std::vector<float> logits;  // [ids, vocab]
};

// The three prompts of a golden.safetensors.
std::vector<GoldenCase> read_golden(const std::filesystem::path& file);

// Folders of goldens/models that the families of this build cover, and the adapters below one.
std::vector<std::string> golden_models();
std::vector<std::string> golden_adapters(const std::string& model);
std::filesystem::path golden_dir(const std::string& model);

// Norm of the difference over norm of the expected.
double relative_error(std::span<const float> got, std::span<const float> want);

// A prepared model with the named adapters attached to slots 0, 1, ...
struct GoldenModel {
  std::unique_ptr<Runner> runner;
  std::vector<std::shared_ptr<const Adapter>> adapters;
  std::int64_t vocab = 0;

  // Logits of the whole sequence, cut into pieces of the given sizes (the last repeats).
  std::vector<float> logits(const Ids& ids, std::int32_t slot, const std::vector<std::int64_t>& pieces,
                            std::int64_t rope_length = 0);
  // Greedy continuation: through the cache, or with the whole sequence anew for each token.
  Ids greedy(const Ids& ids, std::int32_t slot, std::size_t count, bool whole);
};

struct AdapterFolder {
  std::string name, folder;
  AdapterOptions options = {};
};

struct GoldenSetup {
  std::string model_dir;
  std::vector<AdapterFolder> adapters;
  std::shared_ptr<Device> device;  // null: the CPU
  Ranks ranks;
  Communicator* communicator = nullptr;
  int threads = 2;
  Policy policy = {.kind = PolicyKind::kRequire, .names = {"cpu_reference"}};
};
Result<GoldenModel> open_golden(const GoldenSetup& setup);

// The bound of the goldens on the relative error.
constexpr double kGoldenBound = 1e-4;

// Expects every prompt's logits within the bound and its greedy tokens. `whole`: as GoldenModel::greedy.
void expect_golden(GoldenModel& model, std::int32_t slot, const std::vector<GoldenCase>& cases, bool whole = false);

// tests/data/extra (tools/goldens/README.md says what is there).
std::filesystem::path extra_dir();

// The names of the folders in `dir`, sorted; none where it is no folder.
std::vector<std::string> folder_names(const std::filesystem::path& dir);

// Rotations that depend on the total length hold for whole prompts only: cached keys keep the rotation they were
// written with (docs/design.md).
bool depends_on_length(const std::string& model);

}  // namespace cadre::test
