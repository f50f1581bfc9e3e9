// A parsed template: a tree of statements and expressions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "text/chat_template/value.h"

namespace cadre::chat_template {

struct Expr;
using ExprPtr = std::unique_ptr<const Expr>;
struct Stmt;
using Body = std::vector<std::unique_ptr<const Stmt>>;

enum class ExprKind : std::uint8_t {
  kConst,      // value
  kName,       // name
  kList,       // items
  kTuple,      // items
  kDict,       // items: key, value, key, value, ...
  kAttribute,  // items[0] . name
  kItem,       // items[0] [ items[1] ]
  kSlice,      // items[0] [ items[1] : items[2] : items[3] ], null where left out
  kCall,       // items[0] ( call )
  kFilter,     // items[0] | name ( call ); items[0] is null in a filter block
  kTest,       // items[0] is name ( call )
  kNot,
  kNegative,
  kPositive,
  kAnd,
  kOr,
  kCondition,  // items[0] if items[1] else items[2] (null where left out)
  kConcat,     // items joined by ~
  kBinary,     // items[0] name items[1]
  kCompare,    // items[0], then one operand for each operator of `operators`
};

struct CallArgs {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<std::string, ExprPtr>> named;
  ExprPtr rest;        // *args
  ExprPtr named_rest;  // **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::kConst;
  int line = 1;
  int height = 1;  // of the tree below; the parser limits it, so that recursion over it is safe
  std::string name;
  Value value;
  std::vector<ExprPtr> items;
  std::vector<std::string> operators;
  std::unique_ptr<const CallArgs> call;
};

enum class StmtKind : std::uint8_t {
  kText,      // text
  kPrint,     // expr
  kFor,       // target in expr if condition: body, orelse
  kIf,        // branches, orelse
  kSet,       // target = expr
  kSetBlock,  // target = body, through `expr` (a chain of filters with an open end) where there is one
  kMacro,     // macro
  kCall,      // expr called with `macro` as caller
  kFilter,    // body through expr
  kWith,      // targets = values: body
  kScope,     // body in a scope of its own: {% generation %}
  kBreak,
  kContinue,
};

// A name, an attribute of a namespace, or several targets.
struct Target {
  std::string name;
  std::string attribute;  // of the namespace `name`; empty for a plain name
  std::vector<Target> parts;
  bool is_tuple = false;
};

struct MacroDef {
  std::string name;
  std::vector<std::string> parameters;
  std::vector<ExprPtr> defaults;  // null where there is none
  Body body;
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kText;
  int line = 1;
  std::string text;
  Target target;
  ExprPtr expr;
  ExprPtr condition;
  Body body;
  Body orelse;
  std::vector<std::pair<ExprPtr, Body>> branches;
  std::vector<std::pair<Target, ExprPtr>> bindings;
  std::unique_ptr<const MacroDef> macro;
};

struct Template {
  Body body;
};

}  // namespace cadre::chat_template
