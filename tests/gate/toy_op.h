// An op with nothing but what the gate needs, so that its behaviour is tested apart from any kernel.
#pragma once

#include <functional>

#include "gate/gate.h"

namespace cadre::test {

struct ToyDeployment {
  bool described = false;
  std::vector<std::pair<int, double>> mix = {{8, 0.5}, {512, 0.5}};
};
struct ToyKernel {
  int size = 0;
};
struct ToyOp {
  using Spec = int;
  using Deployment = ToyDeployment;
  using Inputs = int;
  using Kernel = ToyKernel;
  static std::vector<std::pair<int, double>> token_mix(const ToyDeployment& d) { return d.mix; }
  static bool planning(const ToyDeployment& d) { return d.described; }
};

class ToyBackend final : public Backend<ToyOp> {
 public:
  ToyBackend(std::string name, std::function<double(int)> us, std::vector<Refusal> refusals = {})
      : name_(std::move(name)), us_(std::move(us)), refusals_(std::move(refusals)) {}
  ToyBackend(std::string name, double us, std::vector<Refusal> refusals = {})
      : ToyBackend(std::move(name), [us](int) { return us; }, std::move(refusals)) {}

  const char* name() const override { return name_.c_str(); }
  const char* description() const override { return "a toy"; }
  std::vector<Refusal> check(const int&, const ToyDeployment&) const override { return refusals_; }
  double estimate(const int&, const ToyDeployment&, int tokens) const override { return us_(tokens) * 1e-6; }
  std::vector<std::string> remedies(const int&, const ToyDeployment&) const override { return {"pads"}; }

 private:
  Result<std::unique_ptr<ToyKernel>> prepare(const Admission<ToyOp>& admission, const int& inputs) const override {
    return std::make_unique<ToyKernel>(ToyKernel{admission.spec() + inputs});
  }

  std::string name_;
  std::function<double(int)> us_;
  std::vector<Refusal> refusals_;
};

}  // namespace cadre::test
