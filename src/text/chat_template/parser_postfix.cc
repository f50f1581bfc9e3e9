// What follows a value: look-ups, calls, filters and tests.
#include "text/chat_template/parser_nodes.h"

namespace cadre::chat_template {

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
