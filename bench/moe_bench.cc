// Times a layer of experts on each backend. Every line has its own ceilings, measured in the same run: what a plain
// read of memory and a plain loop of fused multiply-adds reach on the same threads.
//
//   moe_bench [--threads N] [--seconds S] [--experts N] [--quick] [--cpu-clock]
//
// --cpu-clock times one thread by its processor time, for a machine that is shared.
// Time is the best call of several (the machine may be shared), on weights that do not fit into the caches. "floor" is
// the longer of reading each weight that is used once at the read ceiling, and of all operations at the other.
#include <time.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <deque>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "base/float16.h"
#include "moe/experts.h"

namespace cadre {
namespace {

bool cpu_clock = false;

// Wall clock, or the processor time of all threads.
double seconds() {
  if (cpu_clock) {
    timespec now{};
    ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Best time of one call: at least three, for about `budget` seconds; one where that is 0.
double best_time(double budget, const std::function<void()>& call) {
  double best = 1e30;
  const double end = seconds() + budget;
  for (int i = 0; i < (budget > 0 ? 3 : 1) || seconds() < end; ++i) {
    const double start = seconds();
    call();
    best = std::min(best, seconds() - start);
  }
  return best;
}

// ---- ceilings ---------------------------------------------------------------------------------------------------

double read_gb_s(ThreadPool& threads) {
  std::vector<std::uint64_t> data(std::size_t{48} << 20, 1);  // 384 MiB
  std::vector<std::uint64_t> sums(64);
  const double time = best_time(0.5, [&] {
    threads.parallel_for(64, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t piece = begin; piece < end; ++piece) {
        // Two streams with prefetch, as the kernels read: without either, one core reaches half of it.
        const std::size_t half = data.size() / 128;
        const std::uint64_t* p = data.data() + piece * (data.size() / 64);
        std::uint64_t sum[8] = {};
        for (std::size_t i = 0; i < half; i += 8) {
          __builtin_prefetch(p + i + 512);
          __builtin_prefetch(p + i + half + 512);
          for (std::size_t j = 0; j < 8; ++j) sum[j] += p[i + j] ^ p[i + half + j];
        }
        sums[static_cast<std::size_t>(piece)] = sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
      }
    });
  });
  return static_cast<double>(data.size()) * 8 / time / 1e9;
}

#if defined(__x86_64__)
// `rounds` of kChains fused multiply-adds, enough independent chains to hide their latency, named one by one so that
// every compiler keeps them in registers.
constexpr int kChains = 12;
#define CADRE_EACH(F) F(0) F(1) F(2) F(3) F(4) F(5) F(6) F(7) F(8) F(9) F(10) F(11)
#define CADRE_DECLARE(i) Vec a##i = {};
#define CADRE_STEP(i) asm volatile("vfmadd213ps %2, %1, %0" : "+v"(a##i) : "v"(b), "v"(c));
#define CADRE_SUM(i) sum += a##i;
#define CADRE_LOOP(name, isa, bytes)                                        \
  __attribute__((target(isa))) void name(std::int64_t rounds, float* out) { \
    using Vec = float __attribute__((vector_size(bytes)));                  \
    Vec b = Vec{} + 0.999f, c = Vec{} + 0.5f, sum{};                        \
    CADRE_EACH(CADRE_DECLARE)                                               \
    for (std::int64_t i = 0; i < rounds; ++i) {                             \
      CADRE_EACH(CADRE_STEP)                                                \
    }                                                                       \
    CADRE_EACH(CADRE_SUM)                                                   \
    std::memcpy(out, &sum, sizeof *out);                                    \
  }
CADRE_LOOP(fma_wide, "avx512f", 64)
CADRE_LOOP(fma_narrow, "avx2,fma", 32)
#endif

// Rate of the plain loop on all threads, or 0 where there is none for this processor.
double fma_gflop_s(ThreadPool& threads) {
  double per_round = 0;
  void (*loop)(std::int64_t, float*) = nullptr;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) {
    loop = &fma_wide;
    per_round = 2.0 * kChains * 16;
  } else if (__builtin_cpu_supports("fma")) {
    loop = &fma_narrow;
    per_round = 2.0 * kChains * 8;
  }
#endif
  if (loop == nullptr) return 0;
  constexpr std::int64_t kRounds = 200000;
  const std::int64_t pieces = threads.threads();
  std::vector<float> out(static_cast<std::size_t>(pieces));
  const double time = best_time(0.5, [&] {
    threads.parallel_for(pieces, 1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) loop(kRounds, &out[static_cast<std::size_t>(i)]);
    });
  });
  return per_round * kRounds * static_cast<double>(pieces) / time / 1e9;
}

// ---- data -------------------------------------------------------------------------------------------------------

std::vector<Bf16> random_bf16(std::size_t n, unsigned seed, float scale) {
  std::vector<Bf16> out(n);
  std::uint32_t state = seed * 2654435761u + 1;
  for (Bf16& x : out) {
    state = state * 1664525u + 1013904223u;
    x = to_bf16(scale * (static_cast<float>(state >> 8) * 0x1p-23f - 1.0f));
  }
  return out;
}

class Weights final : public ExpertWeights {
 public:
  explicit Weights(const LayerSpec& spec) {
    const std::int64_t width = spec.expert_width(), middle = spec.intermediate;
    for (int i = 0; i < spec.experts * 3; ++i) {
      if (i % 3 == 0 && !spec.activation.gated) {
        views_.emplace_back();
        continue;
      }
      data_.push_back(random_bf16(static_cast<std::size_t>(width * middle), static_cast<unsigned>(i), 0.05f));
      views_.push_back(i % 3 == 2 ? View(data_.back().data(), DType::kBF16, {width, middle})
                                  : View(data_.back().data(), DType::kBF16, {middle, width}));
    }
  }
  Result<View> gate(int e) const override { return views_[static_cast<std::size_t>(3 * e)]; }
  Result<View> up(int e) const override { return views_[static_cast<std::size_t>(3 * e + 1)]; }
  Result<View> down(int e) const override { return views_[static_cast<std::size_t>(3 * e + 2)]; }
  Result<View> gate_bias(int) const override { return View{}; }
  Result<View> up_bias(int) const override { return View{}; }
  Result<View> down_bias(int) const override { return View{}; }
  std::shared_ptr<const void> owner() const override { return nullptr; }

 private:
  std::deque<std::vector<Bf16>> data_;
  std::vector<View> views_;
};

struct Adapter16 {
  static constexpr int kRank = 16;
  Adapter16(const LayerSpec& spec, unsigned seed) {
    const std::int64_t width = spec.expert_width(), middle = spec.intermediate;
    const auto term = [&](std::int64_t in, std::int64_t out) {
      LowRank t;
      data.push_back(random_bf16(static_cast<std::size_t>(in * kRank), ++seed, 0.05f));
      t.a = View(data.back().data(), DType::kBF16, {kRank, in});
      data.push_back(random_bf16(static_cast<std::size_t>(out * kRank), ++seed, 0.05f));
      t.b = View(data.back().data(), DType::kBF16, {out, kRank});
      t.scale = 1;
      return t;
    };
    for (int e = 0; e < spec.experts; ++e) {
      if (spec.activation.gated) lora.gate.push_back(term(width, middle));
      lora.up.push_back(term(width, middle));
      lora.down.push_back(term(middle, width));
    }
  }
  std::deque<std::vector<Bf16>> data;
  LayerLora lora;
};

// ---- one line ---------------------------------------------------------------------------------------------------

struct Options {
  int threads = 2;
  double budget = 0.6;
  int experts = 32;
  bool quick = false;
};

struct Ceilings {
  double gb_s = 0, gflop_s = 0;
};

void bench_layer(const char* name, const LayerSpec& spec, const Options& options, const Ceilings& ceilings,
                 ThreadPool& threads) {
  constexpr int kAdapters = 4;
  Deployment deployment;
#if defined(__x86_64__)
  deployment.device.avx2 = __builtin_cpu_supports("avx2") != 0;
  deployment.device.avx512 = __builtin_cpu_supports("avx512f") != 0;
#endif
  deployment.device.cores = options.threads;
  deployment.adapters = {kAdapters, Adapter16::kRank, kGate | kUp | kDown, kPerExpert};
  const auto device = make_cpu_device();
  const auto stream = device->make_stream();
  const Weights weights(spec);
  std::deque<Adapter16> adapters;
  for (unsigned i = 0; i < kAdapters; ++i) adapters.emplace_back(spec, 1000 * i);
  const std::int64_t width = spec.expert_width();
  const double matrices = spec.activation.gated ? 3 : 2;
  const double matrix = static_cast<double>(width * spec.intermediate);
  std::printf("\n%s: %d experts of %lld x %lld, top %d, %s\n", name, spec.experts, static_cast<long long>(width),
              static_cast<long long>(spec.intermediate), spec.top_k, spec.activation.gated ? "gated" : "not gated");
  std::printf("%6s %8s %-14s %10s %8s %7s %9s %7s %10s %9s\n", "tokens", "adapters", "backend", "ms", "GB/s", "% read",
              "GFLOP/s", "% fma", "floor ms", "ratio");
  struct Line {
    std::string name;
    std::unique_ptr<Experts> experts;
  };
  std::vector<Line> backends;
  for (const MoeBackend* backend : built_in_backends()) {
    const std::string backend_name = backend->name();
    const auto policy = parse_policy("require " + backend_name, "bench");
    auto choice = make_moe_gate().select(spec, deployment, *policy);
    if (!choice.ok()) {
      std::printf("%s\n", std::string(choice.status().message()).c_str());
      continue;
    }
    ExpertInputs inputs;
    inputs.weights = &weights;
    inputs.device = device.get();
    inputs.stream = stream.get();
    const double start = seconds();
    auto experts = choice->admission.prepare(inputs);
    if (!experts.ok()) {
      std::printf("%s\n", std::string(experts.status().message()).c_str());
      continue;
    }
    std::printf("  %s: prepared in %.2f s\n", backend_name.c_str(), seconds() - start);
    for (int slot = 0; slot < kAdapters; ++slot) {
      const Status status = (*experts)->attach(slot, adapters[static_cast<std::size_t>(slot)].lora);
      if (!status.ok()) std::printf("%s\n", std::string(status.message()).c_str());
    }
    backends.push_back({backend_name, std::move(*experts)});
  }
  for (const std::int64_t tokens : {1, 8, 64, 512}) {
    for (const int used : {0, 1, 4}) {
      if (used > tokens) continue;
      const std::int64_t k = spec.top_k;
      std::vector<float> x(static_cast<std::size_t>(tokens * width)), out(x.size());
      std::vector<float> w(static_cast<std::size_t>(tokens * k), 1.0f / static_cast<float>(k));
      std::vector<std::int32_t> ids, slots;
      std::mt19937 random(1);
      for (float& v : x) v = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      std::vector<std::int32_t> order(static_cast<std::size_t>(spec.experts));
      for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
      std::vector<bool> reached(order.size());
      for (std::int64_t t = 0; t < tokens; ++t) {
        for (std::size_t j = 0; j < static_cast<std::size_t>(k); ++j) {
          std::swap(order[j], order[j + random() % (order.size() - j)]);
          ids.push_back(order[j]);
          reached[static_cast<std::size_t>(order[j])] = true;
        }
        slots.push_back(used == 0 ? -1 : static_cast<std::int32_t>(t % used));
      }
      const double experts = static_cast<double>(std::count(reached.begin(), reached.end(), true));
      const double pairs = static_cast<double>(tokens * k);
      const double term = used == 0 ? 0 : matrices * Adapter16::kRank * static_cast<double>(width + spec.intermediate);
      const double bytes = 2 * experts * (matrices * matrix + std::min<double>(used, pairs) * term);
      const double operations = 2 * pairs * (matrices * matrix + term);
      const double floor = std::max(bytes / (ceilings.gb_s * 1e9), operations / (ceilings.gflop_s * 1e9));
      std::vector<double> times;
      for (const Line& line : backends) {
        const bool slow = line.name == "cpu_reference";
        if (slow && options.quick && tokens > 8) continue;
        ExpertArgs args;
        args.out = View(out.data(), DType::kF32, {tokens, width});
        args.x = View(x.data(), DType::kF32, {tokens, width});
        args.ids = View(ids.data(), DType::kI32, {tokens, k});
        args.weights = View(w.data(), DType::kF32, {tokens, k});
        args.slots = View(slots.data(), DType::kI32, {tokens});
        args.any_adapter = used > 0;
        Exec exec;
        exec.device = device.get();
        exec.stream = stream.get();
        exec.threads = &threads;
        Arena measure;
        exec.arena = &measure;
        line.experts->run(exec, args);
        Arena arena(device->allocate(measure.peak()).value());
        exec.arena = &arena;
        const double time = best_time(slow && tokens > 64 ? 0 : options.budget, [&] {
          // Other experts in every call, as successive tokens take them, so that few of them are still in a cache.
          for (std::int32_t& id : ids) id = (id + static_cast<std::int32_t>(k)) % spec.experts;
          line.experts->run(exec, args);
        });
        times.push_back(time);
        std::printf("%6lld %8d %-14s %10.3f %8.1f %6.0f%% %9.1f %6.0f%% %10.3f %8.2fx\n",
                    static_cast<long long>(tokens), used, line.name.c_str(), 1e3 * time, bytes / time / 1e9,
                    100 * bytes / time / 1e9 / ceilings.gb_s, operations / time / 1e9,
                    100 * operations / time / 1e9 / ceilings.gflop_s, 1e3 * floor, times.front() / time);
        std::fflush(stdout);
      }
    }
  }
}

}  // namespace
}  // namespace cadre

int main(int argc, char** argv) {
  cadre::Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string arg = argv[i];
    if (arg == "--quick") {
      options.quick = true;
    } else if (arg == "--cpu-clock") {
      cadre::cpu_clock = true;
      options.threads = 1;
    } else if (arg == "--threads" && i + 1 < argc) {
      options.threads = std::max(1, std::atoi(argv[++i]));
    } else if (arg == "--seconds" && i + 1 < argc) {
      options.budget = std::atof(argv[++i]);
    } else if (arg == "--experts" && i + 1 < argc) {
      options.experts = std::max(8, std::atoi(argv[++i]));
    } else {
      std::fprintf(stderr,
                   "usage: moe_bench [--threads N] [--seconds S for a line] [--experts N] [--quick] [--cpu-clock]\n");
      return 2;
    }
  }
  cadre::ThreadPool threads(options.threads);
  const cadre::Ceilings ceilings{cadre::read_gb_s(threads), std::max(cadre::fma_gflop_s(threads), 1e-3)};
  std::printf("%d threads%s, plain read %.1f GB/s, plain fused multiply-add %.1f GFLOP/s\n", options.threads,
              cadre::cpu_clock ? " (processor time)" : "", ceilings.gb_s, ceilings.gflop_s);
  std::fflush(stdout);
  std::printf("ratio: time of the first backend over this line's (below 1: slower)\n");
  cadre::LayerSpec qwen;
  qwen.experts = options.experts;
  qwen.top_k = 8;
  qwen.hidden = 2048;
  qwen.intermediate = 768;
  cadre::bench_layer("Qwen3-30B-A3B", qwen, options, ceilings, threads);
  cadre::LayerSpec nemotron;
  nemotron.experts = options.experts;
  nemotron.top_k = 6;
  nemotron.hidden = 2688;
  nemotron.intermediate = 1856;
  nemotron.activation = {cadre::Activation::kRelu2, false};
  cadre::bench_layer("Nemotron-3-Nano-30B-A3B", nemotron, options, ceilings, threads);
  return 0;
}
