// Guards shared by the two halves of the evaluator.
#pragma once

#include "text/chat_template/evaluator.h"

namespace cadre::chat_template {

// Statements and expressions inside each other, macros called included: bounds the machine stack.
inline constexpr int kMaxEvalDepth = 800;
// Scopes inside each other; macros that define macros can make them deeper than the calls.
inline constexpr int kMaxScopeDepth = 400;

class Evaluator::Entered {
 public:
  Entered(Evaluator& evaluator, std::shared_ptr<Scope> parent)
      : evaluator_(evaluator), outer_(std::move(evaluator.scope_)) {
    evaluator_.scope_ = std::make_shared<Scope>();
    evaluator_.scope_->depth = parent->depth + 1;
    evaluator_.scope_->parent = std::move(parent);
  }
  explicit Entered(Evaluator& evaluator) : Entered(evaluator, evaluator.scope_) {}
  ~Entered() { evaluator_.scope_ = std::move(outer_); }
  Entered(const Entered&) = delete;
  Entered& operator=(const Entered&) = delete;

  Status check() const {
    if (evaluator_.scope_->depth <= kMaxScopeDepth) return {};
    return error(Code::kLimitExceeded, "more than ", kMaxScopeDepth, " scopes stand inside each other");
  }

 private:
  Evaluator& evaluator_;
  std::shared_ptr<Scope> outer_;
};

class Evaluator::Deeper {
 public:
  explicit Deeper(Evaluator& evaluator) : evaluator_(evaluator) { ++evaluator_.depth_; }
  ~Deeper() { --evaluator_.depth_; }
  Deeper(const Deeper&) = delete;
  Deeper& operator=(const Deeper&) = delete;

  Status check() const {
    if (evaluator_.depth_ > kMaxEvalDepth) {
      return error(Code::kLimitExceeded, "the template's blocks, expressions and macros nest deeper than ",
                   kMaxEvalDepth, " levels");
    }
    return evaluator_.budget.spend(1);
  }

 private:
  Evaluator& evaluator_;
};

}  // namespace cadre::chat_template
