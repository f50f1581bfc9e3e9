// Runs a parsed template.
#pragma once

#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "text/chat_template/ast.h"
#include "text/chat_template/runtime.h"

namespace cadre::chat_template {

struct Scope {
  std::unordered_map<std::string, Value> variables;
  std::shared_ptr<Scope> parent;
  int depth = 0;
};

struct MacroObject : Object {
  const MacroDef* definition = nullptr;
  std::shared_ptr<Scope> scope;  // where it was defined
};

class Evaluator : public Runtime {
 public:
  using Runtime::Runtime;
  ~Evaluator() override;

  void define(const std::string& name, Value value) { scope_->variables[name] = std::move(value); }
  Result<std::string> run(const Template& root);
  // The line that was being evaluated when run() failed.
  int line() const { return line_; }

  Result<Value> call(const Value& callee, const Args& args) override;

 private:
  enum class Flow : std::uint8_t { kNext, kBreak, kContinue };
  class Entered;  // a scope, left again on destruction
  class Deeper;   // one level of recursion

  Result<Flow> exec(const Body& body);
  Result<Flow> exec(const Stmt& stmt);
  Result<Flow> exec_for(const Stmt& stmt);
  Result<Flow> exec_scoped(const Stmt& stmt);
  Status exec_call_block(const Stmt& stmt);
  Result<Value> define_macro(const MacroDef& definition);
  Status assign(const Target& target, const Value& value);
  Status emit(std::string_view text);
  Status emit(const Value& value);
  // What `body` prints, in a scope of its own.
  Result<std::string> capture(const Body& body, Flow& flow);

  Result<Value> eval(const Expr& expr);
  Result<Value> eval_name(const Expr& expr);
  Result<Value> eval_items(const Expr& expr);
  Result<Value> eval_dict(const Expr& expr);
  Result<Value> eval_slice(const Expr& expr);
  Result<Value> eval_sign(const Expr& expr);
  Result<Value> eval_logic(const Expr& expr);
  Result<Value> eval_condition(const Expr& expr);
  Result<Value> eval_concat(const Expr& expr);
  Result<Value> eval_compare(const Expr& expr);
  Result<Value> eval_call(const Expr& expr);
  Result<Value> eval_filter(const Expr& expr);
  Result<Value> eval_test(const Expr& expr);
  Result<Args> eval_args(const CallArgs& call);
  Result<Value> call_macro(const Value& callee, const Args& args);

  std::shared_ptr<Scope> scope_ = std::make_shared<Scope>();
  std::vector<std::shared_ptr<Scope>> captured_;  // scopes that macros hold; emptied at the end, see ~Evaluator
  std::string* out_ = nullptr;
  const Value* block_text_ = nullptr;  // what a filter block or set block filters
  int line_ = 1;
  int depth_ = 0;
  int calls_ = 0;
  int loops_ = 0;
};

}  // namespace cadre::chat_template
