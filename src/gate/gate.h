// The gate: the only way to a kernel. It is written once, over any op; an op names its types:
//
//   struct MoeOp {
//     using Spec = LayerSpec;                // what the model asks
//     using Deployment = cadre::Deployment;  // where and how it runs
//     using Inputs = ExpertInputs;           // what prepare needs: weights, device, rank
//     using Kernel = Experts;                // what prepare makes
//   };
//
// A kernel is made by Admission<Op>::prepare. An Admission is made by its own `admit`, which runs the backend's check
// and is private; only Gate<Op> is a friend, and even a friend cannot make one without the check. Backend<Op>::prepare
// cannot be called by anybody but an Admission. tests/gate/no_bypass.cc lists the ways round this that do not compile.
#pragma once

#include <cadre/selection.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace cadre {

template <class Op>
class Gate;
template <class Op>
class Admission;

// What is common to all ops: policies, order, and texts (decide.cc).
namespace gate_internal {
// Applies the policy to checked candidates, in list order. Fills chosen and warnings, orders candidates; an error names
// all reasons and the admitted alternatives. Returns the index of the chosen candidate in the given order.
Result<std::size_t> decide(Selection& selection, const std::vector<std::pair<int, double>>& token_mix);
// Names must differ, and every name of the policy must be one of them; suggests the nearest.
Status check_names(const Policy& policy, const std::vector<std::string>& known);
// All messages in one line.
std::string reasons(const std::vector<Refusal>& refusals);
}  // namespace gate_internal

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
  // Predicted seconds of one call with `tokens` rows; from bytes, operations and launches. Pure. Asked for refused
  // specs as well: 0 or a number that is not finite where the model has no answer.
  virtual double estimate(const Spec& spec, const Deployment& deployment, int tokens) const = 0;
  // Bytes that prepare allocates for a copy of the weights; 0 where it uses them in place. Pure.
  virtual std::int64_t prepared_bytes(const Spec&, const Deployment&) const { return 0; }
  // What prepare does to make the shape fit, e.g. padding, with its cost. Pure.
  virtual std::vector<std::string> remedies(const Spec&, const Deployment&) const { return {}; }

 private:
  friend class Admission<Op>;
  // Repacks weights for this backend. The admission's spec and deployment have passed check.
  virtual Result<std::unique_ptr<typename Op::Kernel>> prepare(const Admission<Op>& admission,
                                                               const typename Op::Inputs& inputs) const = 0;
};

// Reasons of the build and of an absent device do not count while planning for another machine; they are shown.
template <class Op>
struct Verdict {
  std::vector<Refusal> refusals, waived;

  Verdict(const Backend<Op>& backend, const typename Op::Spec& spec, const typename Op::Deployment& deployment) {
    const bool planning = Op::planning(deployment);
    for (Refusal& refusal : backend.check(spec, deployment)) {
      const bool about_here = refusal.code == Reason::kNotInThisBuild || refusal.code == Reason::kDeviceAbsent;
      (about_here && planning ? waived : refusals).push_back(std::move(refusal));
    }
  }
};

// The proof that a backend admits a spec and a deployment.
template <class Op>
class Admission {
 public:
  const typename Op::Spec& spec() const { return spec_; }
  const typename Op::Deployment& deployment() const { return deployment_; }
  const Backend<Op>& backend() const { return *backend_; }
  // An admission for a machine that was only described is good for plans, not for kernels.
  Result<std::unique_ptr<typename Op::Kernel>> prepare(const typename Op::Inputs& inputs) const {
    if (Op::planning(deployment_)) {
      return error(Code::kUnsupported, backend_->name(),
                   ": selected for a described device, which is not here to run on");
    }
    return backend_->prepare(*this, inputs);
  }

 private:
  friend class Gate<Op>;

  // What only `admit` can make: a friend of Admission may name it but not construct it.
  class Checked {
    friend class Admission;
    Checked() {}  // NOLINT: `= default` would let an aggregate's braces in
  };

  static Result<Admission> admit(const Backend<Op>& backend, const typename Op::Spec& spec,
                                 const typename Op::Deployment& deployment) {
    const Verdict<Op> verdict(backend, spec, deployment);
    if (!verdict.refusals.empty()) {
      return error(Code::kNoBackend, backend.name(), ": ", gate_internal::reasons(verdict.refusals));
    }
    return Admission(Checked(), backend, spec, deployment);
  }

  Admission(Checked, const Backend<Op>& backend, const typename Op::Spec& spec,
            const typename Op::Deployment& deployment)
      : backend_(&backend), spec_(spec), deployment_(deployment) {}

  const Backend<Op>* backend_;
  typename Op::Spec spec_;
  typename Op::Deployment deployment_;
};

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
  // that names no known backend and for a spec or a deployment that makes no sense (`validate`, where the op has one).
  // `failed`: backends whose kernels have failed a rehearsal, with what was seen; they are refused for that.
  Result<Choice<Op>> select(const Spec& spec, const Deployment& deployment, const Policy& policy,
                            const std::map<std::string, std::string>& failed = {}) const {
    Selection selection;
    CADRE_ASSIGN(const std::size_t chosen, examine(spec, deployment, policy, failed, selection));
    CADRE_ASSIGN(Admission<Op> admission, Admission<Op>::admit(*backends_[chosen], spec, deployment));
    return Choice<Op>{std::move(admission), std::move(selection)};
  }

  // The same decision for show: a Selection also where there is no backend. `why` receives the error, if wanted.
  Result<Selection> explain(const Spec& spec, const Deployment& deployment, const Policy& policy,
                            Status* why = nullptr) const {
    Selection selection;
    Result<std::size_t> chosen = examine(spec, deployment, policy, {}, selection);
    if (!chosen.ok() && chosen.status().code() != Code::kNoBackend) return chosen.status();
    if (why != nullptr) *why = chosen.status();
    return selection;
  }

 private:
  Result<std::size_t> examine(const Spec& spec, const Deployment& deployment, const Policy& policy,
                              const std::map<std::string, std::string>& failed, Selection& selection) const {
    std::vector<std::string> names;
    names.reserve(backends_.size());
    for (const auto* backend : backends_) names.emplace_back(backend->name());
    CADRE_TRY(gate_internal::check_names(policy, names));
    if constexpr (requires { validate(spec, deployment); }) CADRE_TRY(validate(spec, deployment));
    selection.policy = policy;
    selection.candidates.reserve(backends_.size());
    const std::vector<std::pair<int, double>> mix = Op::token_mix(deployment);
    for (const auto* backend : backends_) {
      Verdict<Op> verdict(*backend, spec, deployment);
      Candidate c;
      c.backend = backend->name();
      c.description = backend->description();
      c.refusals = std::move(verdict.refusals);
      c.waived = std::move(verdict.waived);
      if (const auto it = failed.find(c.backend); it != failed.end()) {
        c.refusals.push_back({Reason::kRehearsal, it->second, "agreement with cpu_reference"});
      }
      c.admitted = c.refusals.empty();
      if (c.admitted) c.remedies = backend->remedies(spec, deployment);
      for (const auto& [tokens, share] : mix) {
        const double us = 1e6 * backend->estimate(spec, deployment, tokens);
        if (us > 0 && std::isfinite(us)) c.predicted_us[tokens] = us;
      }
      selection.candidates.push_back(std::move(c));
    }
    return gate_internal::decide(selection, mix);
  }

  std::vector<const Backend<Op>*> backends_;
};

}  // namespace cadre
