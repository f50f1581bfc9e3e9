#include "moe/rehearsal.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

namespace cadre {
namespace {

constexpr int kSampledRows = 8;

// One call's data on the host: inputs as after a norm, experts drawn without repetition, weights that sum to one.
struct Call {
  std::int64_t rows = 0;
  std::vector<float> x, weights;
  std::vector<std::int32_t> ids, slots;
};

Call make_call(const LayerSpec& spec, std::int64_t rows, bool adapters) {
  std::mt19937 random(20240917);
  std::normal_distribution<float> normal;
  Call call;
  call.rows = rows;
  const std::size_t n = static_cast<std::size_t>(rows), k = static_cast<std::size_t>(spec.top_k);
  call.x.resize(n * static_cast<std::size_t>(spec.expert_width()));
  for (float& x : call.x) x = normal(random);
  std::vector<std::int32_t> experts(static_cast<std::size_t>(spec.experts));
  for (std::size_t e = 0; e < experts.size(); ++e) experts[e] = static_cast<std::int32_t>(e);
  for (std::size_t t = 0; t < n; ++t) {
    for (std::size_t j = 0; j < k; ++j) {
      std::swap(experts[j], experts[j + random() % (experts.size() - j)]);
      call.ids.push_back(experts[j]);
      call.weights.push_back(1.0f / static_cast<float>(k));
    }
    call.slots.push_back(adapters && t % 2 == 0 ? 0 : -1);
  }
  return call;
}

// The rows that are compared, as a call of their own.
Call sample(const Call& all, const LayerSpec& spec) {
  Call call;
  call.rows = std::min<std::int64_t>(kSampledRows, all.rows);
  const auto width = static_cast<std::ptrdiff_t>(spec.expert_width()), k = static_cast<std::ptrdiff_t>(spec.top_k);
  for (std::int64_t i = 0; i < call.rows; ++i) {
    const std::ptrdiff_t t = i * all.rows / call.rows;
    call.x.insert(call.x.end(), all.x.begin() + t * width, all.x.begin() + (t + 1) * width);
    call.ids.insert(call.ids.end(), all.ids.begin() + t * k, all.ids.begin() + (t + 1) * k);
    call.weights.insert(call.weights.end(), all.weights.begin() + t * k, all.weights.begin() + (t + 1) * k);
    call.slots.push_back(all.slots[static_cast<std::size_t>(t)]);
  }
  return call;
}

class Stage {
 public:
  Stage(const LayerSpec& spec, Device& device, Stream& stream, ThreadPool& threads)
      : spec_(spec), device_(device), stream_(stream), threads_(threads) {}

  // Runs the call and returns [rows, width]; seconds of the second of two runs go to `seconds`, where asked for.
  Result<std::vector<float>> run(const Experts& experts, const Call& call, bool adapters, double* seconds = nullptr) {
    Arena measure;
    Exec exec{&device_, &stream_, &measure, &threads_, nullptr};
    enqueue(exec, experts, call, adapters, nullptr);
    CADRE_ASSIGN(Buffer memory, device_.allocate(measure.peak()));
    std::vector<float> out(static_cast<std::size_t>(call.rows * spec_.expert_width()));
    for (int repeat = seconds != nullptr ? 2 : 1; repeat > 0; --repeat) {
      Arena arena(memory);
      exec.arena = &arena;
      stream_.wait();
      const auto start = std::chrono::steady_clock::now();
      enqueue(exec, experts, call, adapters, &out);
      if (seconds != nullptr)
        *seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    return out;
  }

 private:
  void enqueue(const Exec& exec, const Experts& experts, const Call& call, bool adapters, std::vector<float>* host) {
    const std::int64_t n = call.rows, k = spec_.top_k;
    const View x = exec.arena->alloc(DType::kF32, {n, spec_.expert_width()});
    const View out = exec.arena->alloc(DType::kF32, {n, spec_.expert_width()});
    const View ids = exec.arena->alloc(DType::kI32, {n, k});
    const View weights = exec.arena->alloc(DType::kF32, {n, k});
    const View slots = exec.arena->alloc(DType::kI32, {n});
    if (host != nullptr) {
      device_.upload(stream_, x.data, call.x.data(), call.x.size() * sizeof(float));
      device_.upload(stream_, ids.data, call.ids.data(), call.ids.size() * sizeof(std::int32_t));
      device_.upload(stream_, weights.data, call.weights.data(), call.weights.size() * sizeof(float));
      device_.upload(stream_, slots.data, call.slots.data(), call.slots.size() * sizeof(std::int32_t));
    }
    experts.run(exec, {.out = out, .x = x, .ids = ids, .weights = weights, .slots = slots, .any_adapter = adapters});
    if (host != nullptr) device_.to_host(stream_, host->data(), out.data, host->size() * sizeof(float));
  }

  const LayerSpec& spec_;
  Device& device_;
  Stream& stream_;
  ThreadPool& threads_;
};

// A synthetic adapter as large as the deployment allows, of a size that shows beside the base weights.
struct SyntheticLora {
  LayerLora lora;
  std::vector<std::vector<float>> storage;

  SyntheticLora(const LayerSpec& spec, const AdapterDemand& demand) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const std::int64_t rank = std::max(demand.max_rank, 1);
    const auto fill = [&](std::int64_t rows, std::int64_t columns, float size) {
      storage.emplace_back(static_cast<std::size_t>(rows * columns));
      for (float& v : storage.back()) v = size * normal(random);
      return View(storage.back().data(), DType::kF32, {rows, columns});
    };
    const auto part = [&](Projection projection, std::vector<LowRank>& terms, std::int64_t in, std::int64_t out) {
      if ((demand.projections & projection) == 0) return;
      // All experts share one pair: what is tried is the kernel, and memory stays small.
      LowRank term;
      term.a = fill(rank, in, 1.0f / std::sqrt(static_cast<float>(in)));
      term.b = fill(out, rank, 0.5f / std::sqrt(static_cast<float>(rank)));
      term.scale = 1;
      terms.assign(static_cast<std::size_t>(spec.experts), term);
    };
    storage.reserve(6);
    if (spec.activation.gated) part(kGate, lora.gate, spec.expert_width(), spec.intermediate);
    part(kUp, lora.up, spec.expert_width(), spec.intermediate);
    part(kDown, lora.down, spec.intermediate, spec.expert_width());
  }
};

Status compare(const std::vector<float>& got, const std::vector<float>& want, const Call& all, const Call& sampled,
               std::int64_t width, const char* what, double& error_out) {
  double squares = 0, worst = 0;
  for (const float w : want) squares += static_cast<double>(w) * w;
  const double norm = std::sqrt(squares / static_cast<double>(sampled.rows));
  for (std::int64_t i = 0; i < sampled.rows; ++i) {
    const std::int64_t t = i * all.rows / sampled.rows;
    double difference = 0;
    for (std::int64_t c = 0; c < width; ++c) {
      const double d = static_cast<double>(got[static_cast<std::size_t>(t * width + c)]) -
                       want[static_cast<std::size_t>(i * width + c)];
      difference += d * d;
    }
    worst = std::max(worst, std::isfinite(difference) ? std::sqrt(difference) : INFINITY);
  }
  if (!std::isfinite(norm)) {
    return error(Code::kInvalidFile, "rehearsal ", what, ": the result of cpu_reference itself is not finite, so this ",
                 "layer's weights hold NaN, infinity or absurd numbers; --check-weights names the tensor");
  }
  const double relative = norm > 0 ? worst / norm : worst;
  error_out = std::max(error_out, relative);
  if (relative <= kRehearsalBound) return {};
  return error(Code::kInternal, "rehearsal ", what, " at ", all.rows, " rows: a row differs from cpu_reference by ",
               relative, " of its norm, want at most ", kRehearsalBound);
}

}  // namespace

Result<RehearsalReport> rehearse(Experts& candidate, Experts& reference, const LayerSpec& spec,
                                 const Deployment& deployment, Device& device, Stream& stream, ThreadPool& threads,
                                 RehearseMode mode) {
  const auto start = std::chrono::steady_clock::now();
  RehearsalReport report;
  if (mode == RehearseMode::kOff) return report;
  std::vector<int> counts;
  for (const auto& [tokens, share] : MoeOp::token_mix(deployment)) counts.push_back(tokens);
  std::sort(counts.begin(), counts.end());
  if (mode == RehearseMode::kFull) {
    counts.push_back(deployment.max_tokens);
  } else {
    const auto small = std::find_if(counts.rbegin(), counts.rend(), [](int n) { return n <= 64; });
    counts = {small != counts.rend() ? *small : counts.front()};
  }
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());

  Stage stage(spec, device, stream, threads);
  const auto check = [&](int rows, bool adapters, double* seconds) -> Status {
    const Call all = make_call(spec, rows, adapters), sampled = sample(all, spec);
    CADRE_ASSIGN(const std::vector<float> got, stage.run(candidate, all, adapters, seconds));
    CADRE_ASSIGN(const std::vector<float> want, stage.run(reference, sampled, adapters));
    return compare(got, want, all, sampled, spec.expert_width(), adapters ? "with an adapter" : "without adapters",
                   report.error);
  };
  for (const int rows : counts) {
    double seconds = 0;
    CADRE_TRY(check(rows, false, &seconds));
    report.measured_us[rows] = 1e6 * seconds;
  }
  if (deployment.adapters.any()) {
    const SyntheticLora synthetic(spec, deployment.adapters);
    CADRE_TRY(candidate.attach(0, synthetic.lora));
    CADRE_TRY(reference.attach(0, synthetic.lora));
    Status status = check(counts.back(), true, nullptr);
    candidate.detach(0);
    reference.detach(0);
    CADRE_TRY(status);
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

}  // namespace cadre
