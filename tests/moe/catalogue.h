// Backends of existing engines, modelled by their records: what selection/gate tests choose between. They have no
// kernels; `prepare` refuses. Where an engine's own check lets something through that its kernel then gets wrong, the
// record says what the kernel does.
#pragma once

#include "moe/experts.h"
#include "moe/record.h"

namespace cadre::test {

// Share of the machine's memory and arithmetic rate that the kernels reach, by GPU family; and launches of one layer.
struct ModelledSpeed {
  int launches = 5;
  double share = 0.5, share_hopper = 0.5, share_blackwell = 0.5;
  double adapter_factor = 1.0;  // on the whole time, with adapters
};

class ModelledBackend final : public MoeBackend {
 public:
  ModelledBackend(const char* name, const char* description, const MoeRecord& record, ModelledSpeed speed)
      : name_(name), description_(description), record_(record), speed_(speed) {}
  const char* name() const override { return name_; }
  const char* description() const override { return description_; }
  const MoeRecord& record() const { return record_; }
  std::vector<Refusal> check(const LayerSpec& spec, const Deployment& deployment) const override {
    return check_record(record_, spec, deployment);
  }
  double estimate(const LayerSpec& spec, const Deployment& deployment, int tokens) const override;
  std::vector<std::string> remedies(const LayerSpec& spec, const Deployment& deployment) const override {
    return padding_remedies(record_, spec, deployment);
  }

 private:
  Result<std::unique_ptr<Experts>> prepare(const MoeAdmission&, const ExpertInputs&) const override;

  const char* name_;
  const char* description_;
  MoeRecord record_;
  ModelledSpeed speed_;
};

// In the static order of the engine they come from.
const std::vector<const ModelledBackend*>& catalogue();
// The catalogue with the reference last, as an engine that had a gate would list them.
MoeGate catalogue_gate();

}  // namespace cadre::test
