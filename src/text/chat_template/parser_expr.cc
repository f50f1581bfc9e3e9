// Operators, by precedence, and literals.
#include "text/chat_template/parser_nodes.h"

namespace cadre::chat_template {
namespace {

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

}  // namespace cadre::chat_template
