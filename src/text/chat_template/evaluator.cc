// Statements and macros; the expressions are in evaluator_expr.cc.
#include "text/chat_template/evaluator.h"

#include "text/chat_template/evaluator_impl.h"
#include "text/chat_template/loop.h"

namespace cadre::chat_template {

// Macros hold scopes that hold macros, and namespaces may hold anything: emptying each while all are still held frees
// the cycles without recursion.
Evaluator::~Evaluator() {
  for (const auto& scope : captured_) scope->variables.clear();
  for (const auto& space : namespaces) space->attributes = DictObject();
  scope_->variables.clear();
  for (const auto& scope : captured_) scope->parent.reset();
}

Result<std::string> Evaluator::run(const Template& root) {
  std::string out;
  out_ = &out;
  CADRE_TRY(exec(root.body).status());
  return out;
}

Status Evaluator::emit(std::string_view text) {
  if (out_->size() + text.size() > budget.limits().max_output) {
    return error(Code::kLimitExceeded, "the text is over the limit of ", budget.limits().max_output, " bytes");
  }
  CADRE_TRY(budget.spend(text.size() / 64));
  out_->append(text);
  return {};
}

Status Evaluator::emit(const Value& value) {
  if (value.is(Kind::kString)) return emit(value.as_string());
  CADRE_ASSIGN(const std::string text, to_str(*this, value));
  return emit(text);
}

Result<Evaluator::Flow> Evaluator::exec(const Body& body) {
  for (const auto& stmt : body) {
    CADRE_ASSIGN(const Flow flow, exec(*stmt));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::exec(const Stmt& stmt) {
  line_ = stmt.line;
  const Deeper deeper(*this);
  CADRE_TRY(deeper.check());
  switch (stmt.kind) {
    case StmtKind::kText:
      CADRE_TRY(emit(stmt.text));
      return Flow::kNext;
    case StmtKind::kPrint: {
      CADRE_ASSIGN(const Value value, eval(*stmt.expr));
      CADRE_TRY(emit(value));
      return Flow::kNext;
    }
    case StmtKind::kFor:
      return exec_for(stmt);
    case StmtKind::kIf:
      for (const auto& [condition, branch] : stmt.branches) {
        CADRE_ASSIGN(const Value value, eval(*condition));
        if (truth(value)) return exec(branch);
      }
      return exec(stmt.orelse);
    case StmtKind::kSet: {
      CADRE_ASSIGN(const Value value, eval(*stmt.expr));
      CADRE_TRY(assign(stmt.target, value));
      return Flow::kNext;
    }
    case StmtKind::kMacro: {
      CADRE_ASSIGN(Value macro, define_macro(*stmt.macro));
      scope_->variables[stmt.macro->name] = std::move(macro);
      return Flow::kNext;
    }
    case StmtKind::kCall:
      CADRE_TRY(exec_call_block(stmt));
      return Flow::kNext;
    case StmtKind::kSetBlock:
    case StmtKind::kFilter:
    case StmtKind::kWith:
    case StmtKind::kScope:
      return exec_scoped(stmt);
    case StmtKind::kBreak:
      return Flow::kBreak;
    case StmtKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

Result<Evaluator::Flow> Evaluator::exec_for(const Stmt& stmt) {
  CADRE_ASSIGN(const Value iterable, eval(*stmt.expr));
  auto loop = std::make_shared<LoopObject>();
  CADRE_ASSIGN(List items, iterate(*this, iterable));
  CADRE_TRY(budget.admit(*loop, items));
  loop->items = std::move(items);
  loop->nesting = ++loops_;
  const std::shared_ptr<Scope> outer = scope_;
  if (stmt.condition != nullptr) {
    loop->condition = [this, &stmt, outer](const Value& candidate) -> Result<bool> {
      const Entered entered(*this, outer);
      CADRE_TRY(entered.check());
      CADRE_TRY(assign(stmt.target, candidate));
      CADRE_ASSIGN(const Value kept, eval(*stmt.condition));
      return truth(kept);
    };
  }
  const Value loop_value = Value::object(Kind::kLoop, loop);
  const auto walk = [&]() -> Result<Flow> {
    for (;;) {
      CADRE_ASSIGN(const bool more, loop->advance());
      if (!more) return Flow::kNext;
      const Entered entered(*this, outer);
      CADRE_TRY(entered.check());
      CADRE_TRY(budget.spend(1));
      scope_->variables["loop"] = loop_value;
      line_ = stmt.line;
      CADRE_TRY(assign(stmt.target, *loop->current));
      CADRE_ASSIGN(const Flow flow, exec(stmt.body));
      if (flow == Flow::kBreak) return flow;
    }
  };
  Result<Flow> flow = walk();
  loop->condition = nullptr;  // it refers to this call
  --loops_;
  if (!flow.ok()) return flow;
  if (loop->index > 0) return Flow::kNext;
  const Entered entered(*this);
  CADRE_TRY(entered.check());
  return exec(stmt.orelse);
}

Result<std::string> Evaluator::capture(const Body& body, Flow& flow) {
  std::string text;
  std::string* const outer = std::exchange(out_, &text);
  const Entered entered(*this);
  Result<Flow> done = entered.check().ok() ? exec(body) : Result<Flow>(entered.check());
  out_ = outer;
  if (!done.ok()) return std::move(done).status();
  flow = *done;
  return text;
}

Result<Evaluator::Flow> Evaluator::exec_scoped(const Stmt& stmt) {
  if (stmt.kind == StmtKind::kSetBlock || stmt.kind == StmtKind::kFilter) {
    Flow flow = Flow::kNext;
    CADRE_ASSIGN(std::string text, capture(stmt.body, flow));
    if (flow != Flow::kNext) return flow;
    CADRE_ASSIGN(Value value, budget.string(std::move(text)));
    if (stmt.expr != nullptr) {
      const Value captured = value;
      const Value* const outer = std::exchange(block_text_, &captured);
      Result<Value> filtered = eval(*stmt.expr);
      block_text_ = outer;
      CADRE_ASSIGN(value, std::move(filtered));
    }
    if (stmt.kind == StmtKind::kFilter) {
      CADRE_TRY(emit(value));
    } else {
      CADRE_TRY(assign(stmt.target, value));
    }
    return Flow::kNext;
  }
  List values;
  for (const auto& [target, expr] : stmt.bindings) {
    CADRE_ASSIGN(Value value, eval(*expr));
    values.push_back(std::move(value));
  }
  const Entered entered(*this);
  CADRE_TRY(entered.check());
  for (std::size_t i = 0; i < values.size(); ++i) CADRE_TRY(assign(stmt.bindings[i].first, values[i]));
  return exec(stmt.body);
}

Status Evaluator::exec_call_block(const Stmt& stmt) {
  CADRE_ASSIGN(const Value callee, eval(*stmt.expr->items[0]));
  CADRE_ASSIGN(Args args, eval_args(*stmt.expr->call));
  CADRE_ASSIGN(Value caller, define_macro(*stmt.macro));
  args.named.emplace_back("caller", std::move(caller));
  line_ = stmt.line;
  CADRE_ASSIGN(const Value text, call(callee, args));
  return emit(text);
}

Result<Value> Evaluator::define_macro(const MacroDef& definition) {
  CADRE_TRY(budget.reserve_memory(512));  // the scope stays
  auto macro = std::make_shared<MacroObject>();
  macro->definition = &definition;
  macro->scope = scope_;
  if (captured_.empty() || captured_.back() != scope_) captured_.push_back(scope_);
  return Value::object(Kind::kMacro, std::move(macro));
}

Status Evaluator::assign(const Target& target, const Value& value) {
  if (target.is_tuple) {
    CADRE_ASSIGN(const List items, iterate(*this, value));
    if (items.size() != target.parts.size()) {
      return error(Code::kInvalidArgument, items.size(), " values cannot be assigned to ", target.parts.size(),
                   " names");
    }
    for (std::size_t i = 0; i < items.size(); ++i) CADRE_TRY(assign(target.parts[i], items[i]));
    return {};
  }
  if (target.attribute.empty()) {
    scope_->variables[target.name] = value;
    return {};
  }
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto it = scope->variables.find(target.name);
    if (it == scope->variables.end()) continue;
    if (!it->second.is(Kind::kNamespace)) break;
    it->second.as<NamespaceObject>().attributes.set(Value::string(target.attribute), value);
    return budget.spend(1);
  }
  return error(Code::kInvalidArgument, "cannot set '", target.name, ".", target.attribute, "': '", target.name,
               "' is not a namespace");
}

Result<Value> Evaluator::call(const Value& callee, const Args& args) {
  const Deeper deeper(*this);
  CADRE_TRY(deeper.check());
  if (callee.is(Kind::kMacro)) {
    if (calls_ >= budget.limits().max_call_depth) {
      return error(Code::kLimitExceeded, "macros call each other deeper than ", budget.limits().max_call_depth,
                   " levels");
    }
    ++calls_;
    Result<Value> result = call_macro(callee, args);
    --calls_;
    return result;
  }
  if (callee.is(Kind::kFunction)) {
    const auto& function = callee.as<FunctionObject>();
    return function.native(*this, function.self, args);
  }
  if (callee.is(Kind::kUndefined)) {
    return error(Code::kInvalidArgument, callee.undefined_reason(), ", so it cannot be called");
  }
  return error(Code::kInvalidArgument, "a ", type_name(callee), " cannot be called");
}

Result<Value> Evaluator::call_macro(const Value& callee, const Args& args) {
  const auto& macro = callee.as<MacroObject>();
  const MacroDef& definition = *macro.definition;
  const Entered entered(*this, macro.scope);
  CADRE_TRY(entered.check());
  auto& variables = scope_->variables;
  const std::size_t count = definition.parameters.size();
  std::vector<bool> used(args.named.size(), false);
  const auto named = [&](const std::string& name) -> const Value* {
    for (std::size_t i = 0; i < args.named.size(); ++i) {
      if (used[i] || args.named[i].first != name) continue;
      used[i] = true;
      return &args.named[i].second;
    }
    return nullptr;
  };
  bool explicit_caller = false;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string& name = definition.parameters[i];
    explicit_caller = explicit_caller || name == "caller";
    const Value* given = i < args.positional.size() ? &args.positional[i] : named(name);
    if (given != nullptr) {
      variables[name] = *given;
    } else if (definition.defaults[i] != nullptr) {
      CADRE_ASSIGN(variables[name], eval(*definition.defaults[i]));
    } else {
      variables[name] = Value::undefined("parameter '" + name + "' of macro '" + definition.name + "' was not given");
    }
  }
  if (definition.uses_caller && !explicit_caller) {
    const Value* caller = named("caller");
    variables["caller"] = caller != nullptr ? *caller : Value::undefined("'caller' is not defined");
  }
  auto kwargs = std::make_shared<DictObject>();
  for (std::size_t i = 0; i < args.named.size(); ++i) {
    if (used[i]) continue;
    if (!definition.uses_kwargs) {
      return error(Code::kInvalidArgument, "macro '", definition.name, "' takes no keyword argument '",
                   args.named[i].first, "'");
    }
    kwargs->set(Value::string(args.named[i].first), args.named[i].second);
  }
  if (definition.uses_kwargs) {
    CADRE_ASSIGN(variables["kwargs"], budget.dict(std::move(kwargs)));
  }
  List rest;
  for (std::size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
  if (definition.uses_varargs) {
    CADRE_ASSIGN(variables["varargs"], budget.tuple(std::move(rest)));
  } else if (!rest.empty()) {
    return error(Code::kInvalidArgument, "macro '", definition.name, "' takes at most ", count, " arguments, got ",
                 args.positional.size());
  }
  Flow flow = Flow::kNext;
  CADRE_ASSIGN(std::string text, capture(definition.body, flow));
  return budget.string(std::move(text));
}

}  // namespace cadre::chat_template
