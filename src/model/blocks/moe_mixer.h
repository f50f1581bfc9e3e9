// A mixture-of-experts layer: router, routed experts from the gate, and what runs beside them.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "model/blocks/mlp.h"
#include "moe/routing.h"

namespace cadre {

struct MoeOptions {
  int layer = 0;
  LayerSpec spec;              // router and experts; spec.hidden is the model's
  std::string router;          // module of the router Linear, "model.layers.0.mlp.gate"
  std::string selection_bias;  // tensor name, where spec.routing.selection_bias
  ExpertNames experts;
  std::optional<MlpOptions> shared;  // shared experts, as one MLP
  std::string shared_gate;           // module of a [1, hidden] Linear whose sigmoid scales the shared experts; or empty
  std::string latent_in, latent_out;  // modules of the latent projections, where spec.latent > 0
  // Gemma 4. A tensor: the router sees its input normalised, times this and 1/sqrt(hidden); or empty.
  std::string router_scale;
  std::string per_expert_scale;  // tensor name, where spec.routing.per_expert_scale
  std::string experts_norm;      // module of an RMSNorm of what routed experts see, the router does not; or empty
  float norm_eps = 1e-6f;
};

class MoeMixer final : public Mixer {
 public:
  std::string_view kind() const override { return "experts"; }
  View forward(const Step& step, View x) const override;
  Status build(Builder& builder, const MoeOptions& options);
  void swap_experts(std::unique_ptr<Experts>& experts) { experts_.swap(experts); }
  Experts* experts() const { return experts_.get(); }
  // Of the routed experts' kernels. Read it while no work is enqueued.
  MoeTime time() const { return clock_->time; }
  void reset_time() { clock_->time = {}; }

 private:
  // Written in stream order, so the times are right where work runs later than it is enqueued.
  struct Clock {
    MoeTime time;
    std::chrono::steady_clock::time_point start;
  };

  LayerSpec spec_;
  bool many_ranks_ = false;
  Linear router_, shared_gate_, latent_in_, latent_out_;
  View selection_bias_, per_expert_scale_;
  Norm router_norm_, experts_norm_;
  std::unique_ptr<Mixer> shared_;
  std::unique_ptr<Experts> experts_;
  std::shared_ptr<Clock> clock_ = std::make_shared<Clock>();
};

Result<std::unique_ptr<Mixer>> make_moe(Builder& builder, const MoeOptions& options);

}  // namespace cadre
