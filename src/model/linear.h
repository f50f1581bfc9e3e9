// Linear and Embedding: a weight of this rank, and what adapters add to it.
#pragma once

#include "dist/communicator.h"
#include "lora/table.h"
#include "model/weights.h"
#include "ops/ops.h"

namespace cadre {

// What one step of the model works with. Borrowed; copied freely.
struct LayerState {
  View kv;    // float32 [pages, 2, page_size, kv_heads, head_dim], or of a latent cache [pages, page_size, latent]
  View conv;  // float32 [slots, channels, width - 1]
  View ssm;   // float32 [slots, heads, head_dim, state]
};
struct Step {
  const Exec& exec;
  const Ops& ops;
  const Batch& batch;
  const std::vector<LayerState>& states;  // by StateSpec index

  View alloc(Dims dims) const { return exec.arena->alloc(DType::kF32, dims); }
};

// How a Linear is divided over ranks.
enum class Split : std::uint8_t {
  kNone,    // whole on every rank
  kColumn,  // this rank computes some outputs (rows of the weight)
  kRow,     // this rank holds some inputs (columns); forward sums over ranks
};

class Linear {
 public:
  Linear() = default;

  // x [T, in of this rank] -> [T, out of this rank], allocated from the arena; summed over ranks for kRow.
  View forward(const Step& step, View x) const;

  bool defined() const { return weight_.defined(); }
  const View& weight() const { return weight_; }
  // The adapters of this step, for ops that take the weight apart; null where there are none.
  const LoraTable* adapters(const Step& step) const {
    return step.batch.any_adapter && lora_.used() ? &lora_ : nullptr;
  }

  // The table that adapters are attached to. Model exchanges it for a larger one as a whole.
  LoraTable& lora() { return lora_; }
  // Takes this rank's part of the adapter. Between batches only.
  Status attach(Device& device, Stream& stream, int slot, const DenseLora& lora);
  void detach(Device& device, Stream& stream, int slot);

 private:
  friend class Builder;
  View weight_, bias_;
  Split split_ = Split::kNone;
  Ranges rows_, columns_;  // of the whole weight, on this rank
  LoraTable lora_;
};

class Embedding {
 public:
  View forward(const Step& step) const;  // [T, hidden]
  const View& table() const { return table_; }
  LoraTable& lora() { return lora_; }
  Status attach(Device& device, Stream& stream, int slot, const DenseLora& lora);
  void detach(Device& device, Stream& stream, int slot);

 private:
  friend class Builder;
  View table_;
  LoraTable lora_;
};

}  // namespace cadre
