// Ways round the gate, one for each value of ATTEMPT. no_bypass.cmake compiles each: attempt 0 is the proper way and
// must compile, every other must be refused by the compiler for the reason in its comment.
#include <type_traits>

#include "moe/experts.h"

namespace cadre {

// An embedder's own backend, as docs describe it.
class Own final : public MoeBackend {
 public:
  const char* name() const override { return "own"; }
  const char* description() const override { return ""; }
  std::vector<Refusal> check(const LayerSpec&, const Deployment&) const override { return {}; }
  double estimate(const LayerSpec&, const Deployment&, int) const override { return 1; }

 private:
  Result<std::unique_ptr<Experts>> prepare(const MoeAdmission&, const ExpertInputs&) const override {
    return Status(Code::kUnsupported, "nothing to run");
  }
};

// An op that copies MoeOp's types, and one that somebody made to befriend his own gate.
struct OtherOp : MoeOp {};

const Own own;
const LayerSpec spec;
const Deployment deployment;
const ExpertInputs inputs;

#if ATTEMPT == 0  // compiles: through the gate, with copies of an admission that it gave
Result<std::unique_ptr<Experts>> kernel() {
  const MoeGate gate = make_moe_gate({&own});
  Result<Choice<MoeOp>> choice = gate.select(spec, deployment, Policy{});
  if (!choice.ok()) return choice.status();
  const MoeAdmission copy = choice->admission;
  return copy.prepare(inputs);
}
static_assert(!std::is_default_constructible_v<MoeAdmission>);
static_assert(!std::is_aggregate_v<MoeAdmission>);
static_assert(!std::is_constructible_v<MoeAdmission, const MoeBackend&, LayerSpec, Deployment>);
static_assert(!std::is_constructible_v<MoeAdmission, const Admission<OtherOp>&>);
static_assert(!std::is_convertible_v<const Backend<OtherOp>*, const MoeBackend*>);
#elif ATTEMPT == 1   // refused: no default constructor
MoeAdmission admission;
#elif ATTEMPT == 2   // refused: no aggregate
MoeAdmission admission{&own, spec, deployment};
#elif ATTEMPT == 3   // refused: the constructor takes what only Admission can make
MoeAdmission admission({}, own, spec, deployment);
#elif ATTEMPT == 4   // refused: private
auto admission = MoeAdmission::admit(own, spec, deployment);
#elif ATTEMPT == 5   // refused: private
MoeAdmission::Checked token;
#elif ATTEMPT == 6   // refused: private
auto kernel() { return own.prepare(make_moe_gate().select(spec, deployment, {})->admission, inputs); }
#elif ATTEMPT == 7   // refused: private, also through the base class and on the built-in backends
auto kernel() {
  return built_in_backends().front()->prepare(make_moe_gate().select(spec, deployment, {})->admission, inputs);
}
#elif ATTEMPT == 8   // refused: a derived admission has no constructor to call
struct Forged : MoeAdmission {
  Forged() {}
};
Forged forged;
#elif ATTEMPT == 9   // refused: a derived backend does not inherit the right to make admissions
class Sly : public MoeBackend {
 public:
  auto sly() const { return MoeAdmission::admit(*this, spec, deployment); }
};
auto f(const Sly& s) { return s.sly(); }
#elif ATTEMPT == 10  // refused: an admission cannot be given another backend
void swap_backend(MoeAdmission& a) { a.backend_ = &own; }
#elif ATTEMPT == 11  // refused: nor another spec
void swap_spec(MoeAdmission& a) { a.spec_ = spec; }
#elif ATTEMPT == 12  // refused: nor through its accessors
void swap_spec(MoeAdmission& a) { a.spec().experts = 4; }
#elif ATTEMPT == 13  // refused: the gate of another op makes admissions of that op, which no MoE backend takes
auto kernel(const Admission<OtherOp>& a) { return MoeAdmission(a); }
#elif ATTEMPT == 14  // refused: a gate that somebody specialises for his op is no friend of another op's admissions
}  // namespace cadre
template <>
class cadre::Gate<cadre::OtherOp> {
 public:
  static auto forge() { return cadre::MoeAdmission::admit(cadre::own, cadre::spec, cadre::deployment); }
};
auto forged = cadre::Gate<cadre::OtherOp>::forge();
namespace cadre {
#elif ATTEMPT == 15  // refused: even a friend cannot construct the token that says "checked"
}  // namespace cadre
template <>
class cadre::Gate<cadre::OtherOp> {
 public:
  static auto forge(const cadre::Backend<cadre::OtherOp>& b) {
    return cadre::Admission<cadre::OtherOp>(cadre::Admission<cadre::OtherOp>::Checked(), b, cadre::spec,
                                            cadre::deployment);
  }
};
auto forge(const cadre::Backend<cadre::OtherOp>& b) { return cadre::Gate<cadre::OtherOp>::forge(b); }
namespace cadre {
#elif ATTEMPT == 16  // refused: nor with braces
}  // namespace cadre
template <>
class cadre::Gate<cadre::OtherOp> {
 public:
  static auto forge(const cadre::Backend<cadre::OtherOp>& b) {
    return cadre::Admission<cadre::OtherOp>({}, b, cadre::spec, cadre::deployment);
  }
};
auto forge(const cadre::Backend<cadre::OtherOp>& b) { return cadre::Gate<cadre::OtherOp>::forge(b); }
namespace cadre {
#elif ATTEMPT == 17  // refused: a choice without an admission
Choice<MoeOp> choice{};
#else
#error "no such attempt"
#endif

}  // namespace cadre
