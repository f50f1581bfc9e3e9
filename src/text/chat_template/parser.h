// Tokens into a tree. Jinja's grammar and precedence, without templates that use other templates.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template/ast.h"
#include "text/chat_template/lexer.h"

namespace cadre::chat_template {

Result<std::unique_ptr<const Template>> parse_template(std::string_view source);

using MutableExpr = std::unique_ptr<Expr>;

// Expressions; the statements are in parser.cc.
class ExprParser {
 public:
  explicit ExprParser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

 protected:
  // One level of brackets, operators or blocks more; undone on leaving.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  const Token& peek(std::size_t ahead = 0) const {
    return tokens_[at_ + ahead < tokens_.size() ? at_ + ahead : tokens_.size() - 1];
  }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool skip_name(std::string_view name);
  bool skip_operator(std::string_view op);
  Status expect_operator(std::string_view op);
  Result<std::string> expect_name();
  Status unexpected(std::string_view wanted) const;
  Status check_depth() const;

  Result<ExprPtr> expression(bool with_condition = true);
  // An expression, or several with commas between as a tuple.
  Result<ExprPtr> expression_or_tuple(bool with_condition = true, bool may_be_empty = false);
  Result<ExprPtr> primary();
  Result<ExprPtr> filters(ExprPtr value);
  Result<ExprPtr> filter(ExprPtr value);

  struct MacroUse {
    bool caller = false;
    bool varargs = false;
    bool kwargs = false;
  };
  std::vector<MacroUse> macros_;  // being parsed, innermost last
  int depth_ = 0;

 private:
  Result<ExprPtr> condition();
  Result<ExprPtr> logical_or();
  Result<ExprPtr> logical_and();
  Result<ExprPtr> logical_not();
  Result<ExprPtr> comparison();
  Result<ExprPtr> sum();
  Result<ExprPtr> concat();
  Result<ExprPtr> product();
  Result<ExprPtr> power();
  Result<ExprPtr> filtered_unary();
  Result<ExprPtr> unary(bool with_filter);
  Result<ExprPtr> postfix(ExprPtr value);
  Result<ExprPtr> subscript(ExprPtr value);
  Result<ExprPtr> test(ExprPtr value);
  Result<ExprPtr> list();
  Result<ExprPtr> dict();
  Result<std::unique_ptr<const CallArgs>> call_args();
  Result<std::string> dotted_name();
  bool at_tuple_end() const;
  // left-associative chain of binary operators
  template <class Next>
  Result<ExprPtr> chain(std::initializer_list<std::string_view> operators, Next next_level);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
};

}  // namespace cadre::chat_template
