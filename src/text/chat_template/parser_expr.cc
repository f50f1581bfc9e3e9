#include "text/chat_template/parser.h"

#include <algorithm>

namespace cadre::chat_template {
namespace {

// Levels of brackets and blocks, and of the trees they make; each costs stack frames in the parser, the evaluator and
// the destructor.
constexpr int kMaxDepth = 120;

MutableExpr make(ExprKind kind, int line) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->line = line;
  return expr;
}

ExprPtr make_const(Value value, int line) {
  MutableExpr expr = make(ExprKind::kConst, line);
  expr->value = std::move(value);
  return expr;
}

// Checks the height of the finished tree.
Result<ExprPtr> finish(MutableExpr expr) {
  int below = 0;
  const auto count = [&](const ExprPtr& child) {
    if (child != nullptr) below = std::max(below, child->height);
  };
  for (const ExprPtr& item : expr->items) count(item);
  if (expr->call != nullptr) {
    for (const ExprPtr& arg : expr->call->positional) count(arg);
    for (const auto& [name, arg] : expr->call->named) count(arg);
    count(expr->call->rest);
    count(expr->call->named_rest);
  }
  expr->height = below + 1;
  if (expr->height > kMaxDepth) {
    return error(Code::kLimitExceeded, "line ", expr->line, ": an expression has more than ", kMaxDepth, " levels");
  }
  return ExprPtr(std::move(expr));
}

Result<ExprPtr> make_pair(ExprKind kind, int line, ExprPtr a, ExprPtr b) {
  MutableExpr expr = make(kind, line);
  expr->items.push_back(std::move(a));
  expr->items.push_back(std::move(b));
  return finish(std::move(expr));
}

Result<ExprPtr> make_unary(ExprKind kind, int line, ExprPtr a) {
  MutableExpr expr = make(kind, line);
  expr->items.push_back(std::move(a));
  return finish(std::move(expr));
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::kText:
    case TokenKind::kPrintBegin:
    case TokenKind::kBlockBegin:
    case TokenKind::kEnd:
      return "the end of the tag or template";
    case TokenKind::kPrintEnd:
      return "'}}'";
    case TokenKind::kBlockEnd:
      return "'%}'";
    case TokenKind::kString:
      return "a string";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace

bool ExprParser::skip_name(std::string_view name) {
  if (!peek().is_name(name)) return false;
  next();
  return true;
}

bool ExprParser::skip_operator(std::string_view op) {
  if (!peek().is_operator(op)) return false;
  next();
  return true;
}

Status ExprParser::expect_operator(std::string_view op) {
  if (skip_operator(op)) return {};
  return unexpected("'" + std::string(op) + "'");
}

Result<std::string> ExprParser::expect_name() {
  if (peek().kind != TokenKind::kName) return unexpected("a name");
  return next().text;
}

Status ExprParser::unexpected(std::string_view wanted) const {
  return syntax_error(peek().line, "got " + describe(peek()) + ", want " + std::string(wanted));
}

Status ExprParser::check_depth() const {
  if (depth_ <= kMaxDepth) return {};
  return error(Code::kLimitExceeded, "line ", peek().line, ": the template nests deeper than ", kMaxDepth, " levels");
}

Result<ExprPtr> ExprParser::expression(bool with_condition) {
  Nesting nesting(depth_);
  CADRE_TRY(check_depth());
  return with_condition ? condition() : logical_or();
}

bool ExprParser::at_tuple_end() const {
  const Token& token = peek();
  return token.kind == TokenKind::kPrintEnd || token.kind == TokenKind::kBlockEnd || token.is_operator(")");
}

Result<ExprPtr> ExprParser::expression_or_tuple(bool with_condition, bool may_be_empty) {
  const int line = peek().line;
  if (at_tuple_end()) {
    if (!may_be_empty) return unexpected("an expression");
    return ExprPtr(make(ExprKind::kTuple, line));
  }
  CADRE_ASSIGN(ExprPtr first, expression(with_condition));
  if (!peek().is_operator(",")) return first;
  MutableExpr tuple = make(ExprKind::kTuple, line);
  tuple->items.push_back(std::move(first));
  while (skip_operator(",")) {
    if (at_tuple_end()) break;
    CADRE_ASSIGN(ExprPtr item, expression(with_condition));
    tuple->items.push_back(std::move(item));
  }
  return finish(std::move(tuple));
}

Result<ExprPtr> ExprParser::condition() {
  Nesting nesting(depth_);
  CADRE_TRY(check_depth());
  int line = peek().line;
  CADRE_ASSIGN(ExprPtr value, logical_or());
  while (skip_name("if")) {
    CADRE_ASSIGN(ExprPtr test, logical_or());
    ExprPtr otherwise;
    if (skip_name("else")) {
      CADRE_ASSIGN(otherwise, condition());
    }
    MutableExpr expr = make(ExprKind::kCondition, line);
    expr->items.push_back(std::move(value));
    expr->items.push_back(std::move(test));
    expr->items.push_back(std::move(otherwise));
    CADRE_ASSIGN(value, finish(std::move(expr)));
    line = peek().line;
  }
  return value;
}

Result<ExprPtr> ExprParser::logical_or() {
  CADRE_ASSIGN(ExprPtr left, logical_and());
  if (!peek().is_name("or")) return left;
  MutableExpr expr = make(ExprKind::kOr, peek().line);
  expr->items.push_back(std::move(left));
  while (skip_name("or")) {
    CADRE_ASSIGN(ExprPtr right, logical_and());
    expr->items.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::logical_and() {
  CADRE_ASSIGN(ExprPtr left, logical_not());
  if (!peek().is_name("and")) return left;
  MutableExpr expr = make(ExprKind::kAnd, peek().line);
  expr->items.push_back(std::move(left));
  while (skip_name("and")) {
    CADRE_ASSIGN(ExprPtr right, logical_not());
    expr->items.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::logical_not() {
  if (!peek().is_name("not")) return comparison();
  const int line = next().line;
  Nesting nesting(depth_);
  CADRE_TRY(check_depth());
  CADRE_ASSIGN(ExprPtr value, logical_not());
  return make_unary(ExprKind::kNot, line, std::move(value));
}

Result<ExprPtr> ExprParser::comparison() {
  const int line = peek().line;
  CADRE_ASSIGN(ExprPtr first, sum());
  MutableExpr expr = make(ExprKind::kCompare, line);
  for (;;) {
    std::string op;
    for (std::string_view candidate : {"==", "!=", "<", "<=", ">", ">="}) {
      if (peek().is_operator(candidate)) op = candidate;
    }
    if (!op.empty()) {
      next();
    } else if (skip_name("in")) {
      op = "in";
    } else if (peek().is_name("not") && peek(1).is_name("in")) {
      next();
      next();
      op = "not in";
    } else {
      break;
    }
    if (expr->items.empty()) expr->items.push_back(std::move(first));
    CADRE_ASSIGN(ExprPtr operand, sum());
    expr->operators.push_back(std::move(op));
    expr->items.push_back(std::move(operand));
  }
  if (expr->items.empty()) return first;
  return finish(std::move(expr));
}

template <class Next>
Result<ExprPtr> ExprParser::chain(std::initializer_list<std::string_view> operators, Next next_level) {
  CADRE_ASSIGN(ExprPtr left, (this->*next_level)());
  for (;;) {
    std::string_view found;
    for (std::string_view op : operators) {
      if (peek().is_operator(op)) found = op;
    }
    if (found.empty()) break;
    const int line = next().line;
    CADRE_ASSIGN(ExprPtr right, (this->*next_level)());
    MutableExpr expr = make(ExprKind::kBinary, line);
    expr->name = found;
    expr->items.push_back(std::move(left));
    expr->items.push_back(std::move(right));
    CADRE_ASSIGN(left, finish(std::move(expr)));
  }
  return left;
}

// Each level as Jinja nests them: + - around ~ around * / // % around ** around unary.
Result<ExprPtr> ExprParser::sum() { return chain({"+", "-"}, &ExprParser::concat); }

Result<ExprPtr> ExprParser::concat() {
  CADRE_ASSIGN(ExprPtr left, product());
  if (!peek().is_operator("~")) return left;
  MutableExpr expr = make(ExprKind::kConcat, peek().line);
  expr->items.push_back(std::move(left));
  while (skip_operator("~")) {
    CADRE_ASSIGN(ExprPtr right, product());
    expr->items.push_back(std::move(right));
  }
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::product() { return chain({"*", "/", "//", "%"}, &ExprParser::power); }

Result<ExprPtr> ExprParser::power() { return chain({"**"}, &ExprParser::filtered_unary); }

Result<ExprPtr> ExprParser::filtered_unary() { return unary(true); }

Result<ExprPtr> ExprParser::unary(bool with_filter) {
  Nesting nesting(depth_);
  CADRE_TRY(check_depth());
  const int line = peek().line;
  ExprPtr value;
  if (peek().is_operator("-") || peek().is_operator("+")) {
    const ExprKind kind = next().text == "-" ? ExprKind::kNegative : ExprKind::kPositive;
    CADRE_ASSIGN(ExprPtr operand, unary(false));
    CADRE_ASSIGN(value, make_unary(kind, line, std::move(operand)));
  } else {
    CADRE_ASSIGN(value, primary());
  }
  CADRE_ASSIGN(value, postfix(std::move(value)));
  if (with_filter) {
    CADRE_ASSIGN(value, filters(std::move(value)));
  }
  return value;
}

Result<ExprPtr> ExprParser::primary() {
  const Token token = peek();
  if (token.kind == TokenKind::kName) {
    next();
    if (token.text == "true" || token.text == "True") return make_const(Value::boolean(true), token.line);
    if (token.text == "false" || token.text == "False") return make_const(Value::boolean(false), token.line);
    if (token.text == "none" || token.text == "None") return make_const(Value::none(), token.line);
    for (MacroUse& macro : macros_) {
      macro.caller |= token.text == "caller";
      macro.varargs |= token.text == "varargs";
      macro.kwargs |= token.text == "kwargs";
    }
    MutableExpr expr = make(ExprKind::kName, token.line);
    expr->name = token.text;
    return finish(std::move(expr));
  }
  if (token.kind == TokenKind::kString) {
    std::string text;
    while (peek().kind == TokenKind::kString) text += next().text;
    return make_const(Value::string(std::move(text)), token.line);
  }
  if (token.kind == TokenKind::kInteger || token.kind == TokenKind::kReal) {
    next();
    return make_const(token.kind == TokenKind::kReal ? Value::real(token.real) : Value::integer(token.integer),
                      token.line);
  }
  if (skip_operator("(")) {
    Nesting nesting(depth_);
    CADRE_TRY(check_depth());
    CADRE_ASSIGN(ExprPtr value, expression_or_tuple(true, /*may_be_empty=*/true));
    CADRE_TRY(expect_operator(")"));
    return value;
  }
  if (token.is_operator("[")) return list();
  if (token.is_operator("{")) return dict();
  return unexpected("an expression");
}

Result<ExprPtr> ExprParser::list() {
  MutableExpr expr = make(ExprKind::kList, next().line);
  while (!peek().is_operator("]")) {
    if (!expr->items.empty()) {
      CADRE_TRY(expect_operator(","));
      if (peek().is_operator("]")) break;
    }
    CADRE_ASSIGN(ExprPtr item, expression());
    expr->items.push_back(std::move(item));
  }
  CADRE_TRY(expect_operator("]"));
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::dict() {
  MutableExpr expr = make(ExprKind::kDict, next().line);
  while (!peek().is_operator("}")) {
    if (!expr->items.empty()) {
      CADRE_TRY(expect_operator(","));
      if (peek().is_operator("}")) break;
    }
    CADRE_ASSIGN(ExprPtr key, expression());
    CADRE_TRY(expect_operator(":"));
    CADRE_ASSIGN(ExprPtr value, expression());
    expr->items.push_back(std::move(key));
    expr->items.push_back(std::move(value));
  }
  CADRE_TRY(expect_operator("}"));
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::postfix(ExprPtr value) {
  for (;;) {
    if (peek().is_operator(".") || peek().is_operator("[")) {
      CADRE_ASSIGN(value, subscript(std::move(value)));
    } else if (peek().is_operator("(")) {
      MutableExpr call = make(ExprKind::kCall, peek().line);
      CADRE_ASSIGN(call->call, call_args());
      call->items.push_back(std::move(value));
      CADRE_ASSIGN(value, finish(std::move(call)));
    } else {
      break;
    }
  }
  return value;
}

Result<ExprPtr> ExprParser::subscript(ExprPtr value) {
  const Token open = next();
  if (open.text == ".") {
    const Token name = next();
    if (name.kind == TokenKind::kInteger) {
      return make_pair(ExprKind::kItem, open.line, std::move(value),
                       make_const(Value::integer(name.integer), name.line));
    }
    if (name.kind != TokenKind::kName) return syntax_error(name.line, "want a name or number after '.'");
    MutableExpr expr = make(ExprKind::kAttribute, open.line);
    expr->name = name.text;
    expr->items.push_back(std::move(value));
    return finish(std::move(expr));
  }
  ExprPtr start;
  if (!peek().is_operator(":")) {
    CADRE_ASSIGN(start, expression_or_tuple());
    if (skip_operator("]")) return make_pair(ExprKind::kItem, open.line, std::move(value), std::move(start));
  }
  MutableExpr slice = make(ExprKind::kSlice, open.line);
  slice->items.push_back(std::move(value));
  slice->items.push_back(std::move(start));
  CADRE_TRY(expect_operator(":"));
  for (int i = 0; i < 2; ++i) {
    ExprPtr part;
    if (!peek().is_operator(":") && !peek().is_operator("]")) {
      CADRE_ASSIGN(part, expression());
    }
    slice->items.push_back(std::move(part));
    if (i == 0) skip_operator(":");
  }
  CADRE_TRY(expect_operator("]"));
  return finish(std::move(slice));
}

Result<ExprPtr> ExprParser::filters(ExprPtr value) {
  for (;;) {
    if (skip_operator("|")) {
      CADRE_ASSIGN(value, filter(std::move(value)));
    } else if (peek().is_name("is")) {
      CADRE_ASSIGN(value, test(std::move(value)));
    } else if (peek().is_operator("(")) {
      CADRE_ASSIGN(value, postfix(std::move(value)));
    } else {
      break;
    }
  }
  return value;
}

Result<std::string> ExprParser::dotted_name() {
  CADRE_ASSIGN(std::string name, expect_name());
  while (skip_operator(".")) {
    CADRE_ASSIGN(const std::string part, expect_name());
    name += "." + part;
  }
  return name;
}

Result<ExprPtr> ExprParser::filter(ExprPtr value) {
  MutableExpr expr = make(ExprKind::kFilter, peek().line);
  CADRE_ASSIGN(expr->name, dotted_name());
  if (peek().is_operator("(")) {
    CADRE_ASSIGN(expr->call, call_args());
  } else {
    expr->call = std::make_unique<CallArgs>();
  }
  expr->items.push_back(std::move(value));
  return finish(std::move(expr));
}

Result<ExprPtr> ExprParser::test(ExprPtr value) {
  const int line = next().line;
  const bool negated = skip_name("not");
  MutableExpr expr = make(ExprKind::kTest, line);
  CADRE_ASSIGN(expr->name, dotted_name());
  const Token& token = peek();
  const bool word = token.kind == TokenKind::kName && token.text != "else" && token.text != "or" && token.text != "and";
  if (token.is_operator("(")) {
    CADRE_ASSIGN(expr->call, call_args());
  } else if (word || token.kind == TokenKind::kString || token.kind == TokenKind::kInteger ||
             token.kind == TokenKind::kReal || token.is_operator("[") || token.is_operator("{")) {
    if (token.is_name("is")) return syntax_error(line, "tests cannot follow each other, use 'and'");
    auto args = std::make_unique<CallArgs>();
    CADRE_ASSIGN(ExprPtr arg, primary());
    CADRE_ASSIGN(arg, postfix(std::move(arg)));
    args->positional.push_back(std::move(arg));
    expr->call = std::move(args);
  } else {
    expr->call = std::make_unique<CallArgs>();
  }
  expr->items.push_back(std::move(value));
  CADRE_ASSIGN(ExprPtr test, finish(std::move(expr)));
  if (negated) return make_unary(ExprKind::kNot, line, std::move(test));
  return test;
}

Result<std::unique_ptr<const CallArgs>> ExprParser::call_args() {
  auto args = std::make_unique<CallArgs>();
  const int line = next().line;
  bool first = true;
  while (!peek().is_operator(")")) {
    if (!first) {
      CADRE_TRY(expect_operator(","));
      if (peek().is_operator(")")) break;
    }
    first = false;
    const bool named = peek().kind == TokenKind::kName && peek(1).is_operator("=");
    bool in_order = args->named_rest == nullptr;
    if (skip_operator("*")) {
      in_order = in_order && args->rest == nullptr;
      CADRE_ASSIGN(args->rest, expression());
    } else if (skip_operator("**")) {
      CADRE_ASSIGN(args->named_rest, expression());
    } else if (named) {
      std::string name = next().text;
      next();
      CADRE_ASSIGN(ExprPtr value, expression());
      args->named.emplace_back(std::move(name), std::move(value));
    } else {
      in_order = in_order && args->rest == nullptr && args->named.empty();
      CADRE_ASSIGN(ExprPtr value, expression());
      args->positional.push_back(std::move(value));
    }
    if (!in_order) return syntax_error(line, "an argument stands after named ones, *args or **kwargs");
  }
  CADRE_TRY(expect_operator(")"));
  return std::unique_ptr<const CallArgs>(std::move(args));
}

}  // namespace cadre::chat_template
