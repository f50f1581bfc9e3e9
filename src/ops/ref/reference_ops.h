// The reference implementation of Ops: float32, every output element by one fixed order of operations. One .cc file for
// each group of ops.
#pragma once

#include "ops/ops.h"

namespace cadre {

class ReferenceOps final : public Ops {
 public:
  const char* name() const override { return "reference"; }

  void embed(const Exec&, View out, View table, const Batch&, const LoraTable* lora) const override;
  void gather_rows(const Exec&, View out, View x, View rows) const override;
  void linear(const Exec&, View out, View x, View weight, View bias, const LoraTable* lora, View slots) const override;
  void rms_norm(const Exec&, View out, View x, View weight, float eps) const override;
  void layer_norm(const Exec&, View out, View x, View weight, View bias, float eps) const override;
  void gated_group_norm(const Exec&, View out, View x, View gate, View weight, int groups, float eps) const override;
  void add(const Exec&, View out, View a, View b) const override;
  void activate(const Exec&, View out, View gate, View up, const ActivationSpec&) const override;
  void scale_by_sigmoid(const Exec&, View x, View gate) const override;
  void scale(const Exec&, View x, float factor) const override;
  void scale_by(const Exec&, View x, View factor) const override;
  void multiply(const Exec&, View out, View a, View b) const override;
  void multiply_by_sigmoid(const Exec&, View x, View gate) const override;
  void softcap(const Exec&, View x, float limit) const override;
  void scale_by_position(const Exec&, View x, float scale, float floor, const Batch&) const override;
  void clamp(const Exec&, View x, float limit) const override;
  void rope(const Exec&, View x, const Rope&, const Batch&) const override;
  void write_kv(const Exec&, View pages, View k, View v, const Batch&) const override;
  void attention(const Exec&, View out, View q, View pages, const AttentionSpec&, const Batch&) const override;
  void absorb_heads(const Exec&, View out, View x, View weight, std::int64_t offset, const LoraTable* lora,
                    View slots) const override;
  void expand_heads(const Exec&, View out, View x, View weight, std::int64_t offset, const LoraTable* lora,
                    View slots) const override;
  void write_latent(const Exec&, View pages, View x, const Batch&) const override;
  void latent_attention(const Exec&, View out, View q, View q_rope, View pages, float scale,
                        const Batch&) const override;
  void conv1d_silu(const Exec&, View out, View x, View weight, View bias, View state, const Batch&) const override;
  void conv1d(const Exec&, View out, View x, View weight, View bias, View state, const Batch&) const override;
  void ssm_scan(const Exec&, View out, const SsmScan&, View state, const Batch&) const override;
  void copy(const Exec&, View out, View x) const override;
  void delta_rule(const Exec&, View out, const DeltaRule&, View state, const Batch&) const override;
};

}  // namespace cadre
