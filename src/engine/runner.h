// Runner: one rank's model with everything a batch needs around it: ops, scratch memory, state, batch arrays.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "engine/state_pool.h"
#include "model/model.h"

namespace cadre {

// One run of rows of one sequence in a batch.
struct RunItem {
  SequenceState* state = nullptr;     // reserved for state->length + ids.size() tokens; its length is advanced
  std::span<const std::int32_t> ids;  // within the vocabulary
  std::int32_t slot = -1;             // adapter slot
  std::int64_t rope_length = 0;       // total length for length-dependent rotary embeddings; 0: what is stored then
  bool all_logits = false;            // of every row; otherwise of the last
  bool no_logits = false;             // of none: a prompt's earlier chunk
};

struct RunnerLimits {
  std::int64_t max_tokens = 512;  // rows in one batch
  std::int64_t max_sequences = 8;
  std::int64_t max_logit_rows = 32;
  std::int64_t pages = 0;      // of the state pool
  std::int32_t snapshots = 0;  // of recurrent state, beside those of the sequences
  int threads = 1;
  std::shared_ptr<ThreadPool> pool;  // to share; null: one of `threads` threads is started
};

class Runner {
 public:
  // The model must be prepared. `ranks` may be null for one rank and must outlive the runner.
  static Result<std::unique_ptr<Runner>> make(std::unique_ptr<Model> model, const RunnerLimits& limits,
                                              Communicator* ranks);

  Model& model() { return *model_; }
  const Model& model() const { return *model_; }
  StatePool& pool() { return pool_; }
  const RunnerLimits& limits() const { return limits_; }
  Stream& stream() { return *stream_; }
  Exec exec() { return {&model_->device(), stream_.get(), arena_.get(), limits_.pool.get(), ranks_}; }

  // Runs one batch and waits. Returns the logits, float32 [rows wanted, vocab], in the order of the items; valid until
  // the next run. Items must fit the limits.
  std::span<float> run(std::span<const RunItem> items);

  // Measures the scratch memory anew: after Model::prepare with another plan.
  Status resize();
  // Bytes of scratch memory and logits that these limits need for a prepared model.
  static std::int64_t workspace_bytes(const Model& model, const RunnerLimits& limits);

 private:
  Runner(std::unique_ptr<Model> model, const RunnerLimits& limits, Communicator* ranks);
  Batch upload(std::span<const RunItem> items);

  std::unique_ptr<Model> model_;
  RunnerLimits limits_;
  std::unique_ptr<Communicator> single_;
  Communicator* ranks_;
  std::unique_ptr<Ops> ops_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Arena> arena_;
  StatePool pool_;
  Buffer arrays_, logits_memory_;
  View logits_;
  std::vector<float> host_logits_;
};

}  // namespace cadre
