// The gate: the only way to a kernel. It is written once, over any op; an op names its types:
//
//   struct MoeOp {
//     using Spec = LayerSpec;                // what the model asks
//     using Deployment = cadre::Deployment;  // where and how it runs
//     using Inputs = ExpertInputs;           // what prepare needs: weights, device, rank
//     using Kernel = Experts;                // what prepare makes
//   };
//
// A kernel is made by Admission<Op>::prepare, and only Gate<Op> makes an Admission, after the backend's check has
// passed. Backend<Op>::prepare cannot be called by anybody else.
#pragma once

#include <cadre/selection.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "base/result.h"

namespace cadre {

template <class Op>
class Gate;
template <class Op>
class Admission;

template <class Op>
class Backend {
 public:
  using Spec = typename Op::Spec;
  using Deployment = typename Op::Deployment;

  virtual ~Backend() = default;
  virtual const char* name() const = 0;
  virtual const char* description() const = 0;
  // Every constraint that fails, not only the first. Pure.
  virtual std::vector<Refusal> check(const Spec& spec, const Deployment& deployment) const = 0;
  // Predicted seconds of one call with `tokens` rows; from bytes, operations and launches. Pure.
  virtual double estimate(const Spec& spec, const Deployment& deployment, int tokens) const = 0;
  // What prepare does to make the shape fit, e.g. padding, with its cost. Pure.
  virtual std::vector<std::string> remedies(const Spec&, const Deployment&) const { return {}; }

 private:
  friend class Admission<Op>;
  // Repacks weights for this backend. The admission's spec and deployment have passed check.
  virtual Result<std::unique_ptr<typename Op::Kernel>> prepare(const Admission<Op>& admission,
                                                               const typename Op::Inputs& inputs) const = 0;
};

// The proof that a backend admits a spec and a deployment.
template <class Op>
class Admission {
 public:
  const typename Op::Spec& spec() const { return spec_; }
  const typename Op::Deployment& deployment() const { return deployment_; }
  const Backend<Op>& backend() const { return *backend_; }
  Result<std::unique_ptr<typename Op::Kernel>> prepare(const typename Op::Inputs& inputs) const {
    return backend_->prepare(*this, inputs);
  }

 private:
  friend class Gate<Op>;
  Admission(const Backend<Op>& backend, typename Op::Spec spec, typename Op::Deployment deployment)
      : backend_(&backend), spec_(std::move(spec)), deployment_(std::move(deployment)) {}

  const Backend<Op>* backend_;
  typename Op::Spec spec_;
  typename Op::Deployment deployment_;
};

// What is common to all ops: policies, order, and texts (rank.cc).
namespace gate_internal {
// Applies the policy to checked candidates, in list order. Fills chosen and warnings, orders candidates; an error names
// all reasons and the admitted alternatives. Returns the index of the chosen candidate in the given order.
Result<std::size_t> decide(Selection& selection, const std::vector<std::pair<int, double>>& token_mix);
// Every name must be one of the list's; suggests the nearest.
Status check_names(const Policy& policy, const std::vector<std::string>& known);
}  // namespace gate_internal

template <class Op>
struct Choice {
  Admission<Op> admission;
  Selection selection;
};

template <class Op>
class Gate {
 public:
  using Spec = typename Op::Spec;
  using Deployment = typename Op::Deployment;

  // Backends in order of preference among equals. They outlive the gate and all admissions.
  explicit Gate(std::vector<const Backend<Op>*> backends) : backends_(std::move(backends)) {}

  const std::vector<const Backend<Op>*>& backends() const { return backends_; }

  // The backend to use, with the proof. kNoBackend with every reason where there is none; kInvalidArgument for a policy
  // that names no known backend.
  Result<Choice<Op>> select(const Spec& spec, const Deployment& deployment, const Policy& policy) const {
    Selection selection;
    CADRE_ASSIGN(const std::size_t chosen, examine(spec, deployment, policy, selection));
    return Choice<Op>{Admission<Op>(*backends_[chosen], spec, deployment), std::move(selection)};
  }

  // The same decision for show: a Selection also where there is no backend. `why` receives the error, if wanted.
  Result<Selection> explain(const Spec& spec, const Deployment& deployment, const Policy& policy,
                            Status* why = nullptr) const {
    Selection selection;
    Result<std::size_t> chosen = examine(spec, deployment, policy, selection);
    if (!chosen.ok() && chosen.status().code() != Code::kNoBackend) return chosen.status();
    if (why != nullptr) *why = chosen.status();
    return selection;
  }

 private:
  Result<std::size_t> examine(const Spec& spec, const Deployment& deployment, const Policy& policy,
                              Selection& selection) const {
    std::vector<std::string> names;
    names.reserve(backends_.size());
    for (const auto* backend : backends_) names.emplace_back(backend->name());
    CADRE_TRY(gate_internal::check_names(policy, names));
    selection.policy = policy;
    const std::vector<std::pair<int, double>> mix = Op::token_mix(deployment);
    for (const auto* backend : backends_) {
      Candidate c;
      c.backend = backend->name();
      c.description = backend->description();
      for (Refusal& refusal : backend->check(spec, deployment)) {
        const bool about_here = refusal.code == Reason::kNotInThisBuild || refusal.code == Reason::kDeviceAbsent;
        (about_here && Op::planning(deployment) ? c.waived : c.refusals).push_back(std::move(refusal));
      }
      c.admitted = c.refusals.empty();
      if (c.admitted) c.remedies = backend->remedies(spec, deployment);
      for (const auto& [tokens, share] : mix)
        c.predicted_us[tokens] = 1e6 * backend->estimate(spec, deployment, tokens);
      selection.candidates.push_back(std::move(c));
    }
    return gate_internal::decide(selection, mix);
  }

  std::vector<const Backend<Op>*> backends_;
};

}  // namespace cadre
