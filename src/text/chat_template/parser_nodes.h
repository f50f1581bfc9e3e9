// Making the nodes of an expression's tree, with a limit on its height.
#pragma once

#include "text/chat_template/parser.h"

namespace cadre::chat_template {

// Levels of brackets and blocks, and of the trees they make; each costs stack frames in the parser, the evaluator and
// the destructor.
inline constexpr int kMaxDepth = 120;

MutableExpr make(ExprKind kind, int line);
ExprPtr make_const(Value value, int line);
// Checks the height of the finished tree.
Result<ExprPtr> finish(MutableExpr expr);
Result<ExprPtr> make_pair(ExprKind kind, int line, ExprPtr a, ExprPtr b);
Result<ExprPtr> make_unary(ExprKind kind, int line, ExprPtr a);

}  // namespace cadre::chat_template
