#include "model/network.h"

namespace cadre {

void Network::forward(const Step& step, View logits) const {
  const ArenaScope scope(*step.exec.arena);
  const View x = embedding.forward(step);
  const View normed = step.alloc({x.dim(0), x.dim(1)});
  for (const Block& block : blocks) {
    const ArenaScope inner(*step.exec.arena);
    step.ops.rms_norm(step.exec, normed, x, block.norm, norm_eps);
    step.ops.add(step.exec, x, x, block.mixer->forward(step, normed));
  }
  if (step.batch.logit_rows == 0) return;
  const View last = step.alloc({step.batch.logit_rows, x.dim(1)});
  step.ops.gather_rows(step.exec, last, x, step.batch.rows);
  step.ops.rms_norm(step.exec, last, last, final_norm, norm_eps);
  // Rows of the batch and rows that want logits differ, so adapters on the head see the slots of the latter.
  Batch head = step.batch;
  head.tokens = step.batch.logit_rows;
  head.slots = step.batch.row_slots;
  const Step head_step{step.exec, step.ops, head, step.states};
  const ArenaScope inner(*step.exec.arena);
  const View out = lm_head.forward(head_step, last);
  step.exec.launch([out, logits] { copy_dense(out, logits.data); });
}

}  // namespace cadre
