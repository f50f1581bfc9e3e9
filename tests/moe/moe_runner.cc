#include "moe/moe_runner.h"

#include <cmath>

namespace cadre::test {
namespace {

DType dtype_of(WeightType type) {
  return type == WeightType::kF32 ? DType::kF32 : type == WeightType::kF16 ? DType::kF16 : DType::kBF16;
}

// Uniform numbers of which a sum over `n` terms with inputs in [-1, 1) is about 1.
float scale_for(std::int64_t n) { return 3.0f / std::sqrt(static_cast<float>(std::max<std::int64_t>(n, 1))); }

}  // namespace

RandomWeights::RandomWeights(const LayerSpec& spec, unsigned seed, Storage storage)
    : bytes_(std::make_shared<std::deque<std::vector<std::byte>>>()) {
  const DType dtype = dtype_of(spec.weights.type);
  const std::int64_t width = spec.expert_width(), middle = spec.intermediate;
  const std::size_t count = static_cast<std::size_t>(spec.experts) * 3;
  values_.resize(count);
  bias_values_.resize(count);
  matrices_.resize(count);
  biases_.resize(count);
  const auto keep = [&](const Floats& values) -> void* {
    bytes_->push_back(to_bytes(dtype, values));
    return bytes_->back().data();
  };
  for (int e = 0; e < spec.experts; ++e) {
    for (int part = 0; part < 3; ++part) {
      if (part == 0 && !spec.activation.gated) continue;
      const std::int64_t out = part == 2 ? width : middle, in = part == 2 ? middle : width;
      const unsigned one = seed + static_cast<unsigned>(at(e, part)) * 2;
      Floats& values = values_[at(e, part)] = random_weights(dtype, one, out * in, scale_for(in));
      View& m = matrices_[at(e, part)];
      if (storage == Storage::kTransposed) {
        Floats turned(values.size());
        for (std::int64_t n = 0; n < out; ++n) {
          for (std::int64_t k = 0; k < in; ++k)
            turned[static_cast<std::size_t>(k * out + n)] = values[static_cast<std::size_t>(n * in + k)];
        }
        m = View(keep(turned), dtype, {in, out}).transposed();
      } else if (storage == Storage::kInterleaved && part == 1 && spec.activation.gated) {
        Floats both(values.size() * 2);
        const Floats& gate = values_[at(e, 0)];
        for (std::int64_t n = 0; n < out; ++n) {
          std::copy_n(gate.begin() + n * in, in, both.begin() + 2 * n * in);
          std::copy_n(values.begin() + n * in, in, both.begin() + (2 * n + 1) * in);
        }
        m = View(keep(both), dtype, {out, 2, in});
        const auto half = [&](std::int64_t which) {
          View v(static_cast<std::byte*>(m.data) + which * in * dtype_bits(dtype) / 8, dtype, {out, in});
          v.stride[0] = 2 * in;
          return v;
        };
        matrices_[at(e, 0)] = half(0);
        m = half(1);
      } else {
        m = View(keep(values), dtype, {out, in});
      }
      if (spec.expert_bias) {
        Floats& bias = bias_values_[at(e, part)] = random_weights(dtype, one + 1, out);
        biases_[at(e, part)] = View(keep(bias), dtype, {out});
      }
    }
  }
}

AdapterShape shape_of(const AdapterDemand& demand) {
  AdapterShape shape;
  shape.layout = (demand.layouts & kPerExpert) != 0       ? kPerExpert
                 : (demand.layouts & kSharedGateUpA) != 0 ? kSharedGateUpA
                                                          : kSharedOuter;
  shape.min_rank = shape.max_rank = demand.max_rank;
  shape.projections = demand.projections;
  return shape;
}

RandomAdapter::RandomAdapter(const LayerSpec& spec, const AdapterShape& shape, unsigned seed) {
  std::mt19937 random(seed);
  const auto draw = [&](int low, int high) {
    return low + static_cast<int>(random() % static_cast<unsigned>(high - low + 1));
  };
  const DType dtype = shape.dtypes[random() % shape.dtypes.size()];
  const auto matrix = [&](std::int64_t rows, std::int64_t columns) {
    bytes_.push_back(
        to_bytes(dtype, random_weights(dtype, static_cast<unsigned>(random()), rows * columns, scale_for(columns))));
    return View(bytes_.back().data(), dtype, {rows, columns});
  };
  const std::int64_t width = spec.expert_width(), middle = spec.intermediate;
  const bool outer = shape.layout == kSharedOuter, shared = shape.layout == kSharedGateUpA;
  const int outer_rank = draw(shape.min_rank, shape.max_rank);
  View outer_a, outer_b;
  if (outer && outer_rank > 0) outer_a = matrix(outer_rank, width);
  if (outer && outer_rank > 0) outer_b = matrix(width, outer_rank);
  const bool gated = spec.activation.gated;
  const auto touched = [&](std::uint8_t projection) {
    return (shape.projections & projection) != 0 && (projection != kGate || gated);
  };
  for (const auto& [projection, terms] :
       {std::pair{kGate, &lora.gate}, std::pair{kUp, &lora.up}, std::pair{kDown, &lora.down}}) {
    if (touched(projection)) terms->resize(static_cast<std::size_t>(spec.experts));
  }
  for (std::size_t e = 0; e < static_cast<std::size_t>(spec.experts); ++e) {
    const auto fill = [&](LowRank& term, int rank, const View& a, std::int64_t in, const View& b, std::int64_t out) {
      if (rank == 0) return;
      term.a = a.defined() ? a : matrix(rank, in);
      term.b = b.defined() ? b : matrix(out, rank);
      term.scale = shape.size * (0.5f + static_cast<float>(random() % 64) / 64.0f);
    };
    const int gate_rank = outer ? outer_rank : draw(shape.min_rank, shape.max_rank);
    const int up_rank = outer || shared ? gate_rank : draw(shape.min_rank, shape.max_rank);
    const int down_rank = outer ? outer_rank : draw(shape.min_rank, shape.max_rank);
    if (touched(kGate)) fill(lora.gate[e], gate_rank, outer_a, width, {}, middle);
    if (touched(kUp)) {
      fill(lora.up[e], up_rank, shared && touched(kGate) ? lora.gate[e].a : outer_a, width, {}, middle);
      // What a file with one A for both says: one alpha, one rank. Every second expert has scales of its own.
      if (shared && touched(kGate) && e % 2 == 0) lora.up[e].scale = lora.gate[e].scale;
    }
    if (touched(kDown)) fill(lora.down[e], down_rank, {}, middle, outer_b, width);
  }
}

MoeBatch random_batch(const LayerSpec& spec, std::int64_t tokens, int slots, Ids ids, unsigned seed) {
  std::mt19937 random(seed);
  MoeBatch batch;
  batch.tokens = tokens;
  batch.top_k = spec.top_k;
  batch.width = spec.expert_width();
  batch.x = random_floats(seed + 1, tokens * batch.width);
  batch.weights = random_floats(seed + 2, tokens * spec.top_k);
  const std::int32_t favourite = static_cast<std::int32_t>(random() % static_cast<unsigned>(spec.experts));
  Ints order(static_cast<std::size_t>(spec.experts));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int32_t>(i);
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (int k = 0; k < spec.top_k; ++k) {  // a partial shuffle: distinct experts
      const std::size_t left = order.size() - static_cast<std::size_t>(k);
      std::swap(order[static_cast<std::size_t>(k)], order[static_cast<std::size_t>(k) + random() % left]);
      std::int32_t id = order[static_cast<std::size_t>(k)];
      if (ids == Ids::kWithHoles && random() % 5 == 0)
        id = random() % 2 == 0 ? -1 : spec.experts + static_cast<std::int32_t>(random() % 3);
      if (ids == Ids::kOneExpert) id = k == 0 ? favourite : -1;
      batch.ids.push_back(id);
    }
    batch.slots.push_back(static_cast<std::int32_t>(random() % static_cast<unsigned>(slots + 1)) - 1);
  }
  return batch;
}

MoeBatch take_rows(const MoeBatch& batch, const std::vector<std::int64_t>& rows) {
  MoeBatch out;
  out.tokens = static_cast<std::int64_t>(rows.size());
  out.top_k = batch.top_k;
  out.width = batch.width;
  for (const std::int64_t row : rows) {
    const auto copy = [&](const auto& from, auto& to, std::int64_t n) {
      to.insert(to.end(), from.begin() + row * n, from.begin() + (row + 1) * n);
    };
    copy(batch.x, out.x, batch.width);
    copy(batch.ids, out.ids, batch.top_k);
    copy(batch.weights, out.weights, batch.top_k);
    copy(batch.slots, out.slots, 1);
  }
  return out;
}

Deployment here() {
  Deployment d;
#if defined(__x86_64__)
  d.device.avx2 = __builtin_cpu_supports("avx2") != 0;
  d.device.avx512 = __builtin_cpu_supports("avx512f") != 0;
#endif
  d.device.cores = 2;
  return d;
}

Result<std::unique_ptr<PreparedExperts>> PreparedExperts::make(const std::string& policy, const LayerSpec& spec,
                                                               const Deployment& deployment,
                                                               const RandomWeights& weights, const Machine& machine,
                                                               int tensor_rank, int expert_rank, const Maker& maker) {
  std::unique_ptr<PreparedExperts> out(new PreparedExperts);
  CADRE_ASSIGN(const Policy parsed, parse_policy(policy, "api"));
  CADRE_ASSIGN(auto choice, make_moe_gate().select(spec, deployment, parsed));
  out->selection_ = choice.selection;
  if (machine.device == "test") {
    CADRE_ASSIGN(out->device_, make_test_device(std::size_t{256} << 20));
  } else {
    out->device_ = make_cpu_device();
  }
  out->stream_ = out->device_->make_stream();
  out->threads_ = std::make_unique<ThreadPool>(machine.threads);
  ExpertInputs inputs;
  inputs.weights = &weights;
  inputs.device = out->device_.get();
  inputs.stream = out->stream_.get();
  inputs.shard = {tensor_rank, deployment.tensor_parallel, expert_rank, deployment.expert_parallel};
  CADRE_ASSIGN(out->experts_, maker ? maker(choice.admission, inputs) : choice.admission.prepare(inputs));
  return out;
}

Floats PreparedExperts::run(const MoeBatch& batch, bool any_adapter) {
  Floats out;
  call(batch, any_adapter, nullptr, &out);
  return out;
}

std::size_t PreparedExperts::workspace(const MoeBatch& batch, bool any_adapter) {
  std::size_t bytes = 0;
  call(batch, any_adapter, &bytes, nullptr);
  return bytes;
}

void PreparedExperts::call(const MoeBatch& batch, bool any_adapter, std::size_t* bytes, Floats* out) {
  Exec exec;
  exec.device = device_.get();
  exec.stream = stream_.get();
  exec.threads = threads_.get();
  std::vector<Buffer> buffers;
  const auto put = [&](DType dtype, const void* data, std::int64_t rows, std::int64_t columns, std::int64_t gap) {
    View v(nullptr, dtype, {rows, columns});
    v.stride[0] = columns + gap;
    buffers.push_back(device_->allocate(static_cast<std::size_t>(rows * (columns + gap)) * 4).value());
    v.data = buffers.back().data();
    for (std::int64_t r = 0; data != nullptr && r < rows; ++r) {
      device_->upload(*stream_, static_cast<float*>(v.data) + r * v.step(0),
                      static_cast<const float*>(data) + r * columns, static_cast<std::size_t>(columns) * 4);
    }
    return v;
  };
  ExpertArgs args;
  // Old contents and strides of its own: both must not matter.
  const Floats rubbish(static_cast<std::size_t>(batch.tokens * batch.width), std::nanf(""));
  args.out = put(DType::kF32, rubbish.data(), batch.tokens, batch.width, 5);
  args.x = put(DType::kF32, batch.x.data(), batch.tokens, batch.width, 3);
  args.ids = put(DType::kI32, batch.ids.data(), batch.tokens, batch.top_k, 0);
  args.weights = put(DType::kF32, batch.weights.data(), batch.tokens, batch.top_k, 0);
  args.slots = put(DType::kI32, batch.slots.data(), batch.tokens, 1, 0).reshaped({batch.tokens});
  args.any_adapter = any_adapter;
  Arena measure;
  exec.arena = &measure;
  experts_->run(exec, args);
  if (bytes != nullptr) *bytes = measure.peak();
  if (out == nullptr) return;
  const Buffer memory = device_->allocate(measure.peak()).value();
  // What an earlier layer left there: NaN in every number, ids of no expert.
  const std::vector<std::uint32_t> rubbish_words(measure.peak() / 4, 0xffffffffu);
  device_->upload(*stream_, memory.data(), rubbish_words.data(), rubbish_words.size() * 4);
  Arena arena(memory);
  exec.arena = &arena;
  experts_->run(exec, args);
  for (std::int64_t r = 0; r < batch.tokens; ++r) {
    Floats row(static_cast<std::size_t>(batch.width));
    device_->to_host(*stream_, row.data(), ptr<float>(args.out) + r * args.out.step(0), row.size() * 4);
    out->insert(out->end(), row.begin(), row.end());
  }
  stream_->wait();
}

Result<Floats> run_moe(const std::string& policy, const LayerSpec& spec, const Deployment& deployment,
                       const RandomWeights& weights, const Adapters& adapters, const MoeBatch& batch,
                       const Machine& machine, int tensor_rank, int expert_rank) {
  CADRE_ASSIGN(const auto prepared,
               PreparedExperts::make(policy, spec, deployment, weights, machine, tensor_rank, expert_rank));
  for (const auto& [slot, adapter] : adapters) CADRE_TRY(prepared->attach(slot, *adapter));
  return prepared->run(batch);
}

}  // namespace cadre::test
