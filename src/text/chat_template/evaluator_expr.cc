#include "text/chat_template/evaluator.h"
#include "text/chat_template/evaluator_impl.h"

namespace cadre::chat_template {

Result<Value> Evaluator::eval(const Expr& expr) {
  line_ = expr.line;
  const Deeper deeper(*this);
  CADRE_TRY(deeper.check());
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return eval_name(expr);
    case ExprKind::kList:
    case ExprKind::kTuple:
      return eval_items(expr);
    case ExprKind::kDict:
      return eval_dict(expr);
    case ExprKind::kAttribute: {
      CADRE_ASSIGN(const Value object, eval(*expr.items[0]));
      line_ = expr.line;
      return get_attribute(*this, object, expr.name);
    }
    case ExprKind::kItem: {
      CADRE_ASSIGN(const Value object, eval(*expr.items[0]));
      CADRE_ASSIGN(const Value key, eval(*expr.items[1]));
      line_ = expr.line;
      return get_item(*this, object, key);
    }
    case ExprKind::kSlice:
      return eval_slice(expr);
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
      return eval_filter(expr);
    case ExprKind::kTest:
      return eval_test(expr);
    case ExprKind::kNot: {
      CADRE_ASSIGN(const Value value, eval(*expr.items[0]));
      return Value::boolean(!truth(value));
    }
    case ExprKind::kNegative:
    case ExprKind::kPositive:
      return eval_sign(expr);
    case ExprKind::kAnd:
    case ExprKind::kOr:
      return eval_logic(expr);
    case ExprKind::kCondition:
      return eval_condition(expr);
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kBinary: {
      CADRE_ASSIGN(const Value a, eval(*expr.items[0]));
      CADRE_ASSIGN(const Value b, eval(*expr.items[1]));
      line_ = expr.line;
      return binary(*this, expr.name, a, b);
    }
    case ExprKind::kCompare:
      return eval_compare(expr);
  }
  return Value();
}

Result<Value> Evaluator::eval_name(const Expr& expr) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    const auto it = scope->variables.find(expr.name);
    if (it != scope->variables.end()) return it->second;
  }
  if (const Native native = find_global(expr.name)) {
    auto function = std::make_shared<FunctionObject>();
    function->name = expr.name;
    function->native = native;
    return Value::object(Kind::kFunction, std::move(function));
  }
  return Value::undefined("'" + expr.name + "' is not defined");
}

Result<Value> Evaluator::eval_items(const Expr& expr) {
  List items;
  items.reserve(expr.items.size());
  for (const ExprPtr& item : expr.items) {
    CADRE_ASSIGN(Value value, eval(*item));
    items.push_back(std::move(value));
  }
  return expr.kind == ExprKind::kTuple ? budget.tuple(std::move(items)) : budget.list(std::move(items));
}

Result<Value> Evaluator::eval_dict(const Expr& expr) {
  auto dict = std::make_shared<DictObject>();
  for (std::size_t i = 0; i < expr.items.size(); i += 2) {
    CADRE_ASSIGN(const Value key, eval(*expr.items[i]));
    CADRE_ASSIGN(Value value, eval(*expr.items[i + 1]));
    CADRE_TRY(budget.spend(1 + key.weight() / 8));
    if (!dict->set(key, std::move(value))) {
      return error(Code::kInvalidArgument, "a ", type_name(key), " cannot be the key of a dict");
    }
  }
  return budget.dict(std::move(dict));
}

Result<Value> Evaluator::eval_slice(const Expr& expr) {
  CADRE_ASSIGN(const Value object, eval(*expr.items[0]));
  Value parts[3] = {Value::none(), Value::none(), Value::none()};
  for (std::size_t i = 0; i < 3; ++i) {
    if (expr.items[i + 1] == nullptr) continue;
    CADRE_ASSIGN(parts[i], eval(*expr.items[i + 1]));
  }
  line_ = expr.line;
  return get_slice(*this, object, parts[0], parts[1], parts[2]);
}

Result<Value> Evaluator::eval_sign(const Expr& expr) {
  CADRE_ASSIGN(const Value value, eval(*expr.items[0]));
  if (value.is(Kind::kUndefined)) return undefined_error(value);
  if (!value.is_number()) return error(Code::kInvalidArgument, "a ", type_name(value), " has no sign");
  const bool negative = expr.kind == ExprKind::kNegative;
  if (value.is(Kind::kFloat)) return Value::real(negative ? -value.as_real() : value.as_real());
  return negative ? binary(*this, "-", Value::integer(0), value) : Value::integer(value.as_int());
}

Result<Value> Evaluator::eval_logic(const Expr& expr) {
  Value value;
  for (const ExprPtr& item : expr.items) {
    CADRE_ASSIGN(value, eval(*item));
    if (truth(value) == (expr.kind == ExprKind::kOr)) break;
  }
  return value;
}

Result<Value> Evaluator::eval_condition(const Expr& expr) {
  CADRE_ASSIGN(const Value test, eval(*expr.items[1]));
  if (truth(test)) return eval(*expr.items[0]);
  if (expr.items[2] != nullptr) return eval(*expr.items[2]);
  return Value::undefined("the condition is false and has no 'else'");
}

Result<Value> Evaluator::eval_concat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& item : expr.items) {
    CADRE_ASSIGN(const Value value, eval(*item));
    CADRE_TRY(append_str(*this, value, text));
    CADRE_TRY(budget.spend(value.weight() / 4));
    if (text.size() > budget.limits().max_string) break;  // the next line says so
  }
  return budget.string(std::move(text));
}

Result<Value> Evaluator::eval_compare(const Expr& expr) {
  CADRE_ASSIGN(Value left, eval(*expr.items[0]));
  for (std::size_t i = 0; i < expr.operators.size(); ++i) {
    CADRE_ASSIGN(Value right, eval(*expr.items[i + 1]));
    line_ = expr.line;
    const std::string& op = expr.operators[i];
    bool holds = false;
    if (op == "==" || op == "!=") {
      CADRE_ASSIGN(const bool same, equal_checked(*this, left, right));
      holds = same == (op == "==");
    } else if (op == "in" || op == "not in") {
      CADRE_ASSIGN(const bool found, contains(*this, right, left));
      holds = found == (op == "in");
    } else {
      CADRE_ASSIGN(const int order, compare(*this, left, right));
      holds = order != 2 && (op == "<" ? order < 0 : op == "<=" ? order <= 0 : op == ">" ? order > 0 : order >= 0);
    }
    if (!holds) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

Result<Args> Evaluator::eval_args(const CallArgs& call) {
  Args args;
  for (const ExprPtr& expr : call.positional) {
    CADRE_ASSIGN(Value value, eval(*expr));
    args.positional.push_back(std::move(value));
  }
  for (const auto& [name, expr] : call.named) {
    CADRE_ASSIGN(Value value, eval(*expr));
    args.named.emplace_back(name, std::move(value));
  }
  if (call.rest != nullptr) {
    CADRE_ASSIGN(const Value value, eval(*call.rest));
    CADRE_ASSIGN(const List items, iterate(*this, value));
    args.positional.insert(args.positional.end(), items.begin(), items.end());
  }
  if (call.named_rest != nullptr) {
    CADRE_ASSIGN(const Value value, eval(*call.named_rest));
    if (!value.is(Kind::kDict)) return error(Code::kInvalidArgument, "** wants a dict, got ", type_name(value));
    for (const auto& [key, item] : value.as<DictObject>().entries()) {
      CADRE_TRY(budget.spend(1));
      if (!key.is(Kind::kString)) return error(Code::kInvalidArgument, "** wants keys that are strings");
      args.named.emplace_back(key.as_string(), item);
    }
  }
  return args;
}

Result<Value> Evaluator::eval_call(const Expr& expr) {
  CADRE_ASSIGN(const Value callee, eval(*expr.items[0]));
  CADRE_ASSIGN(const Args args, eval_args(*expr.call));
  line_ = expr.line;
  return call(callee, args);
}

Result<Value> Evaluator::eval_filter(const Expr& expr) {
  Value value;
  if (expr.items[0] != nullptr) {
    CADRE_ASSIGN(value, eval(*expr.items[0]));
  } else {
    value = *block_text_;
  }
  CADRE_ASSIGN(const Args args, eval_args(*expr.call));
  line_ = expr.line;
  const Native filter = find_filter(expr.name);
  if (filter == nullptr) return error(Code::kUnsupported, "there is no filter '", expr.name, "'");
  return filter(*this, value, args).with_context("filter '" + expr.name + "'");
}

Result<Value> Evaluator::eval_test(const Expr& expr) {
  CADRE_ASSIGN(const Value value, eval(*expr.items[0]));
  CADRE_ASSIGN(const Args args, eval_args(*expr.call));
  line_ = expr.line;
  const Native test = find_test(expr.name);
  if (test == nullptr) return error(Code::kUnsupported, "there is no test '", expr.name, "'");
  return test(*this, value, args).with_context("test '" + expr.name + "'");
}

}  // namespace cadre::chat_template
