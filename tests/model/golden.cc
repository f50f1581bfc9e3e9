#include "model/golden.h"

#include <algorithm>
#include <cstring>

#include "model/families/family.h"

namespace cadre::test {

namespace fs = std::filesystem;

namespace {

template <class T>
std::vector<T> tensor(const SafetensorsFile& file, const std::string& name) {
  const TensorInfo* info = file.find(name);
  if (info == nullptr) return {};
  std::vector<T> out(info->nbytes / sizeof(T));
  std::memcpy(out.data(), info->data, out.size() * sizeof(T));
  return out;
}

}  // namespace

std::vector<std::string> folder_names(const fs::path& dir) {
  std::vector<std::string> names;
  if (!fs::is_directory(dir)) return names;
  for (const auto& entry : fs::directory_iterator(dir)) {
    if (entry.is_directory()) names.push_back(entry.path().filename());
  }
  std::sort(names.begin(), names.end());
  return names;
}

bool depends_on_length(const std::string& model) {
  return model == "mixtral_rope_dynamic" || model == "mixtral_rope_longrope";
}

std::vector<GoldenCase> read_golden(const fs::path& path) {
  std::vector<GoldenCase> cases;
  const auto file = SafetensorsFile::open(path);
  if (!file.ok()) {
    ADD_FAILURE() << file.status().message();
    return cases;
  }
  for (int i = 0; i < 3; ++i) {
    const std::string n = std::to_string(i);
    cases.push_back({tensor<std::int32_t>(**file, "ids." + n), tensor<std::int32_t>(**file, "greedy." + n),
                     tensor<float>(**file, "logits." + n)});
    if (cases.back().ids.empty() || cases.back().logits.empty() || cases.back().greedy.empty()) {
      ADD_FAILURE() << path << " lacks case " << i;
    }
  }
  return cases;
}

fs::path extra_dir() { return fs::path(CADRE_SOURCE) / "tests/data/extra"; }

fs::path golden_dir(const std::string& model) { return fs::path(CADRE_GOLDENS) / "models" / model; }

std::vector<std::string> golden_models() {
  std::vector<std::string> names;
  for (const std::string& name : folder_names(fs::path(CADRE_GOLDENS) / "models")) {
    const auto config = read_model_config(golden_dir(name));
    if (config.ok() && find_family(config->model_type).ok()) names.push_back(name);
  }
  return names;
}

std::vector<std::string> golden_adapters(const std::string& model) {
  return folder_names(golden_dir(model) / "adapters");
}

double relative_error(std::span<const float> got, std::span<const float> want) {
  if (got.size() != want.size()) return INFINITY;
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(static_cast<double>(got[i]) - want[i], 2);
    norm += std::pow(static_cast<double>(want[i]), 2);
  }
  return std::sqrt(difference / norm);
}

Result<GoldenModel> open_golden(const GoldenSetup& setup) {
  ModelOptions options;
  options.dir = setup.model_dir;
  options.device = setup.device != nullptr ? setup.device : make_cpu_device();
  options.ranks = setup.ranks;
  CADRE_ASSIGN(std::unique_ptr<Model> model, Model::load(options));
  GoldenModel golden;
  AdapterPlan plan;
  for (const auto& [name, folder, options_of_it] : setup.adapters) {
    CADRE_ASSIGN(auto adapter, read_adapter(folder, name, model->adapter_targets(), options_of_it));
    golden.adapters.push_back(adapter);
  }
  plan.slots = static_cast<int>(golden.adapters.size());
  plan.known = golden.adapters;
  CADRE_TRY(model->prepare(make_moe_gate(), SelectOptions{.policy = setup.policy}, plan));
  const RunnerLimits limits{
      .max_tokens = 256, .max_sequences = 16, .max_logit_rows = 256, .pages = 128, .threads = setup.threads};
  golden.vocab = model->config().vocab;
  CADRE_ASSIGN(golden.runner, Runner::make(std::move(model), limits, setup.communicator));
  for (std::size_t i = 0; i < golden.adapters.size(); ++i) {
    CADRE_TRY(golden.runner->model().attach(golden.runner->stream(), static_cast<int>(i), *golden.adapters[i]));
  }
  return golden;
}

std::vector<float> GoldenModel::logits(const Ids& ids, std::int32_t slot, const std::vector<std::int64_t>& pieces,
                                       std::int64_t rope_length) {
  SequenceState state;
  EXPECT_TRUE(runner->pool().reserve(state, static_cast<std::int64_t>(ids.size())));
  std::vector<float> out;
  std::size_t at = 0, piece = 0;
  while (at < ids.size()) {
    const std::size_t want = static_cast<std::size_t>(pieces[std::min(piece++, pieces.size() - 1)]);
    const std::size_t n = std::min(ids.size() - at, want);
    const RunItem item{.state = &state,
                       .ids = std::span(ids).subspan(at, n),
                       .slot = slot,
                       .rope_length = rope_length,
                       .all_logits = true};
    const std::span<float> rows = runner->run({&item, 1});
    out.insert(out.end(), rows.begin(), rows.end());
    at += n;
  }
  runner->pool().release(state);
  return out;
}

Ids GoldenModel::greedy(const Ids& ids, std::int32_t slot, std::size_t count, bool whole) {
  SequenceState state;
  Ids all = ids, next = ids;
  while (all.size() < ids.size() + count) {
    if (whole) {
      runner->pool().release(state);
      next = all;
    }
    EXPECT_TRUE(runner->pool().reserve(state, static_cast<std::int64_t>(all.size())));
    const RunItem item{.state = &state, .ids = next, .slot = slot};
    const std::span<float> row = runner->run({&item, 1});
    const std::int32_t id = static_cast<std::int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
    all.push_back(id);
    next = {id};
  }
  runner->pool().release(state);
  return {all.begin() + static_cast<std::ptrdiff_t>(ids.size()), all.end()};
}

void expect_golden(GoldenModel& model, std::int32_t slot, const std::vector<GoldenCase>& cases, bool whole) {
  for (std::size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("prompt " + std::to_string(i));
    EXPECT_LE(relative_error(model.logits(cases[i].ids, slot, {256}), cases[i].logits), kGoldenBound);
    EXPECT_EQ(model.greedy(cases[i].ids, slot, cases[i].greedy.size(), whole), cases[i].greedy);
  }
}

}  // namespace cadre::test
