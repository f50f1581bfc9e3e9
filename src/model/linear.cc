#include "model/linear.h"

namespace cadre {

View Linear::forward(const Step& step, View x) const {
  const View out = step.alloc({x.dim(0), weight_.dim(0)});
  step.ops.linear(step.exec, out, x, weight_, bias_, adapters(step), step.batch.slots);
  if (split_ == Split::kRow) step.exec.ranks->all_reduce(step.exec, out);
  return out;
}

Status Linear::attach(Device& device, Stream& stream, int slot, const DenseLora& lora) {
  LowRank term = lora.delta;
  std::shared_ptr<const void> storage, replaced;
  if (term.rank() > 0) {
    term.b = take_ranges(term.b, 0, rows_, storage);
    term.a = take_ranges(term.a, 1, columns_, storage);
  }
  View replacement = lora.replacement;
  if (replacement.defined()) {
    replacement = take_ranges(replacement, 0, rows_, replaced);
    replacement = take_ranges(replacement, 1, columns_, replaced);
  }
  return lora_.set(device, stream, slot, {term}, replacement);
}

void Linear::detach(Device& device, Stream& stream, int slot) { lora_.clear(device, stream, slot); }

View Embedding::forward(const Step& step) const {
  const View out = step.alloc({step.batch.tokens, table_.dim(1)});
  step.ops.embed(step.exec, out, table_, step.batch, step.batch.any_adapter && lora_.used() ? &lora_ : nullptr);
  return out;
}

Status Embedding::attach(Device& device, Stream& stream, int slot, const DenseLora& lora) {
  return lora_.set(device, stream, slot, {lora.delta}, lora.replacement);
}

void Embedding::detach(Device& device, Stream& stream, int slot) { lora_.clear(device, stream, slot); }

}  // namespace cadre
