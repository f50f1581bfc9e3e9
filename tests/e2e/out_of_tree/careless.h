// A backend with a bug: the kernel of the example without the multiplication by up, and a cost model that promises the
// moon, so that it is always the first choice.
#pragma once

#include "out_of_tree_backend/experts.h"
#include "out_of_tree_backend/record.h"

namespace cadre {

class Careless final : public MoeBackend {
 public:
  explicit Careless(const char* name = "careless") : name_(name) {}
  const char* name() const override { return name_; }
  const char* description() const override { return "drops the up projection"; }
  std::vector<Refusal> check(const LayerSpec& spec, const Deployment& deployment) const override {
    return check_record(scalar::kRecord, spec, deployment);
  }
  double estimate(const LayerSpec&, const Deployment&, int) const override { return 1e-9; }

 private:
  Result<std::unique_ptr<Experts>> prepare(const MoeAdmission& admission, const ExpertInputs& inputs) const override {
    return scalar::make_experts(admission, inputs, [](float gate, float) { return scalar::silu_gate(gate, 1.0f); });
  }
  const char* name_;
};

}  // namespace cadre
