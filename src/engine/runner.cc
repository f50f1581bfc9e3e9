#include "engine/runner.h"

#include <algorithm>

namespace cadre {
namespace {

// The arrays of a batch at fixed places in one allocation, filled on the host and copied over as one block.
class BatchArrays {
 public:
  BatchArrays(const RunnerLimits& l, std::int64_t max_blocks) {
    ids = add(l.max_tokens);
    positions = add(l.max_tokens);
    sequence = add(l.max_tokens);
    slots = add(l.max_tokens);
    first_row = add(l.max_sequences + 1);
    cached = add(l.max_sequences);
    state_slot = add(l.max_sequences);
    rope_length = add(l.max_sequences);
    rows = add(l.max_logit_rows);
    row_slots = add(l.max_logit_rows);
    blocks = add(l.max_sequences * max_blocks);
  }
  std::int64_t ids, positions, sequence, slots, first_row, cached, state_slot, rope_length, rows, row_slots, blocks;
  std::int64_t size = 0;  // int32 values

 private:
  std::int64_t add(std::int64_t n) {
    const std::int64_t at = size;
    size += (n + 15) / 16 * 16;
    return at;
  }
};

// A batch of the largest size, without memory: what the arena is measured with.
Batch largest_batch(const RunnerLimits& l, std::int64_t pages, bool adapters) {
  const auto ints = [](std::initializer_list<std::int64_t> dims) { return View(nullptr, DType::kI32, dims); };
  Batch b;
  b.tokens = l.max_tokens;
  b.sequences = l.max_sequences;
  b.logit_rows = std::min(l.max_logit_rows, l.max_tokens);
  b.any_adapter = adapters;
  b.ids = b.positions = b.sequence = b.slots = ints({b.tokens});
  b.first_row = ints({b.sequences + 1});
  b.cached = b.state_slot = b.rope_length = ints({b.sequences});
  b.blocks = ints({b.sequences, std::max<std::int64_t>(pages, 1)});
  b.rows = b.row_slots = ints({b.logit_rows});
  return b;
}

}  // namespace

Runner::Runner(std::unique_ptr<Model> model, const RunnerLimits& limits, Communicator* ranks)
    : model_(std::move(model)),
      limits_(limits),
      single_(make_single_communicator()),
      ranks_(ranks != nullptr ? ranks : single_.get()),
      ops_(make_reference_ops()),
      stream_(model_->device().make_stream()) {}

std::int64_t Runner::workspace_bytes(const Model& model, const RunnerLimits& limits) {
  Arena measure;
  ThreadPool threads(1);
  const std::unique_ptr<Communicator> single = make_single_communicator();
  const std::unique_ptr<Ops> ops = make_reference_ops();
  const Exec exec{&model.device(), nullptr, &measure, &threads, single.get()};
  const std::vector<StateSpec>& specs = model.state_specs();
  std::vector<LayerState> states;
  for (const StateSpec& s : specs) {
    LayerState state;
    if (s.kind == StateSpec::Kind::kPagedKv) {
      state.kv = View(nullptr, DType::kF32, {limits.pages, 2, kPageSize, s.kv_heads * s.head_dim});
    } else if (s.kind == StateSpec::Kind::kLatentKv) {
      state.kv = View(nullptr, DType::kF32, {limits.pages, kPageSize, s.latent});
    } else {
      state.conv = View(nullptr, DType::kF32, {limits.max_sequences, s.channels, s.width - 1});
      state.ssm = View(nullptr, DType::kF32, {limits.max_sequences, s.heads, s.ssm_head_dim, s.state});
    }
    states.push_back(state);
  }
  const Batch batch = largest_batch(limits, limits.pages, model.plan().slots > 0);
  const View logits(nullptr, DType::kF32, {batch.logit_rows, model.config().vocab});
  model.forward(exec, *ops, batch, states, logits);
  return static_cast<std::int64_t>(measure.peak());
}

Status Runner::resize() {
  stream_->wait();
  const std::int64_t bytes = workspace_bytes(*model_, limits_);
  CADRE_ASSIGN(Buffer memory, model_->device().allocate(static_cast<std::size_t>(bytes)));
  arena_ = std::make_unique<Arena>(std::move(memory));
  return {};
}

Result<std::unique_ptr<Runner>> Runner::make(std::unique_ptr<Model> model, const RunnerLimits& limits,
                                             Communicator* ranks) {
  std::unique_ptr<Runner> r(new Runner(std::move(model), limits, ranks));
  if (r->limits_.pool == nullptr) {
    CADRE_ASSIGN(r->limits_.pool, ThreadPool::start(limits.threads));
  }
  Device& device = r->model_->device();
  CADRE_ASSIGN(r->pool_, StatePool::make(device, r->model_->state_specs(), limits.pages,
                                         static_cast<std::int32_t>(limits.max_sequences), limits.snapshots));
  const BatchArrays arrays(limits, limits.pages);
  CADRE_ASSIGN(r->arrays_, device.allocate(static_cast<std::size_t>(arrays.size) * sizeof(std::int32_t)));
  r->logits_ = View(nullptr, DType::kF32, {limits.max_logit_rows, r->model_->config().vocab});
  CADRE_ASSIGN(r->logits_memory_, device.allocate(static_cast<std::size_t>(r->logits_.bytes())));
  r->logits_.data = r->logits_memory_.data();
  CADRE_TRY(r->resize());
  return r;
}

Batch Runner::upload(std::span<const RunItem> items) {
  const BatchArrays at(limits_, limits_.pages);
  std::vector<std::int32_t> host(static_cast<std::size_t>(at.size));
  const auto put = [&](std::int64_t base, std::int64_t i, std::int64_t value) {
    host[static_cast<std::size_t>(base + i)] = static_cast<std::int32_t>(value);
  };
  Batch b;
  std::int64_t width = 1;
  for (const RunItem& item : items) width = std::max(width, static_cast<std::int64_t>(item.state->pages.size()));
  for (const RunItem& item : items) {
    const std::int64_t s = b.sequences++, n = static_cast<std::int64_t>(item.ids.size()), cached = item.state->length;
    CADRE_CHECK(b.sequences <= limits_.max_sequences && b.tokens + n <= limits_.max_tokens, "the batch is too large");
    put(at.first_row, s, b.tokens);
    put(at.cached, s, cached);
    put(at.state_slot, s, item.state->slot);
    put(at.rope_length, s, item.rope_length > 0 ? item.rope_length : cached + n);
    for (std::size_t p = 0; p < item.state->pages.size(); ++p) {
      put(at.blocks, s * width + static_cast<std::int64_t>(p), item.state->pages[p]);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      put(at.ids, b.tokens + i, item.ids[static_cast<std::size_t>(i)]);
      put(at.positions, b.tokens + i, cached + i);
      put(at.sequence, b.tokens + i, s);
      put(at.slots, b.tokens + i, item.slot);
      if (!item.no_logits && (item.all_logits || i == n - 1)) {
        CADRE_CHECK(b.logit_rows < limits_.max_logit_rows, "too many rows want logits");
        put(at.rows, b.logit_rows, b.tokens + i);
        put(at.row_slots, b.logit_rows++, item.slot);
      }
    }
    b.any_adapter |= item.slot >= 0;
    b.tokens += n;
  }
  put(at.first_row, b.sequences, b.tokens);
  model_->device().upload(*stream_, arrays_.data(), host.data(), host.size() * sizeof(std::int32_t));
  const auto view = [&](std::int64_t base, std::initializer_list<std::int64_t> dims) {
    return View(static_cast<std::int32_t*>(arrays_.data()) + base, DType::kI32, dims);
  };
  b.ids = view(at.ids, {b.tokens});
  b.positions = view(at.positions, {b.tokens});
  b.sequence = view(at.sequence, {b.tokens});
  b.slots = view(at.slots, {b.tokens});
  b.first_row = view(at.first_row, {b.sequences + 1});
  b.cached = view(at.cached, {b.sequences});
  b.state_slot = view(at.state_slot, {b.sequences});
  b.rope_length = view(at.rope_length, {b.sequences});
  b.rows = view(at.rows, {b.logit_rows});
  b.row_slots = view(at.row_slots, {b.logit_rows});
  b.blocks = view(at.blocks, {b.sequences, width});
  return b;
}

std::span<float> Runner::run(std::span<const RunItem> items) {
  const Batch batch = upload(items);
  View logits = logits_;
  logits.shape[0] = batch.logit_rows;
  model_->forward(exec(), *ops_, batch, pool_.layers(), logits);
  for (const RunItem& item : items) item.state->length += static_cast<std::int64_t>(item.ids.size());
  host_logits_.resize(static_cast<std::size_t>(logits.elements()));
  model_->device().to_host(*stream_, host_logits_.data(), logits.data, host_logits_.size() * sizeof(float));
  return host_logits_;
}

}  // namespace cadre
