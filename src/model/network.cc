#include "model/network.h"

namespace cadre {

void Norm::forward(const Step& step, View out, View x) const {
  if (bias.defined()) {
    step.ops.layer_norm(step.exec, out, x, weight, bias, eps);
  } else {
    step.ops.rms_norm(step.exec, out, x, weight, eps);
  }
}

void Network::forward(const Step& step, View logits) const {
  const ArenaScope scope(*step.exec.arena);
  const View x = embedding.forward(step);
  if (embedding_scale != 1) step.ops.scale(step.exec, x, embedding_scale);
  const View normed = step.alloc({x.dim(0), x.dim(1)});
  for (const Block& block : blocks) {
    const ArenaScope inner(*step.exec.arena);
    if (block.before.used) block.before.forward(step, normed, x);
    const View y = block.mixer->forward(step, block.before.used ? normed : x);
    if (block.after.used) block.after.forward(step, y, y);
    if (block.scale != 1) step.ops.scale(step.exec, y, block.scale);
    step.ops.add(step.exec, x, x, y);
    if (block.stream_scale.defined()) step.ops.scale_by(step.exec, x, block.stream_scale);
  }
  if (step.batch.logit_rows == 0) return;
  const View last = step.alloc({step.batch.logit_rows, x.dim(1)});
  step.ops.gather_rows(step.exec, last, x, step.batch.rows);
  final_norm.forward(step, last, last);
  // Rows of the batch and rows that want logits differ, so adapters on the head see the slots of the latter.
  Batch head = step.batch;
  head.tokens = step.batch.logit_rows;
  head.slots = step.batch.row_slots;
  const Step head_step{step.exec, step.ops, head, step.states};
  const ArenaScope inner(*step.exec.arena);
  const View out = lm_head.forward(head_step, last);
  if (logit_scale != 1) step.ops.scale(step.exec, out, logit_scale);
  if (logit_softcap > 0) step.ops.softcap(step.exec, out, logit_softcap);
  step.exec.launch([out, logits] { copy_dense(out, logits.data); });
}

}  // namespace cadre
