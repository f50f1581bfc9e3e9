#include "text/chat_template/parser_nodes.h"

#include <algorithm>

namespace cadre::chat_template {

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

}  // namespace cadre::chat_template
