#include "text/chat_template/parser.h"

#include <algorithm>

namespace cadre::chat_template {
namespace {

class Parser : public ExprParser {
 public:
  using ExprParser::ExprParser;

  Result<std::unique_ptr<const Template>> run() {
    auto root = std::make_unique<Template>();
    CADRE_ASSIGN(root->body, body({}));
    if (peek().kind != TokenKind::kEnd) return unexpected("the end of the template");
    return std::unique_ptr<const Template>(std::move(root));
  }

 private:
  using StmtPtr = std::unique_ptr<Stmt>;

  // Statements up to one of the `ends`, whose name is the next token then. Without `ends`, up to the end of the
  // template.
  Result<Body> body(std::vector<std::string_view> ends) {
    Nesting nesting(depth_);
    CADRE_TRY(check_depth());
    const int begin_line = peek().line;
    Body out;
    for (;;) {
      const Token& token = peek();
      if (token.kind == TokenKind::kEnd) {
        if (ends.empty()) return out;
        return syntax_error(begin_line, "a block is not closed: '{% " + std::string(ends.back()) + " %}' is missing");
      }
      if (token.kind == TokenKind::kText) {
        auto text = make(StmtKind::kText);
        text->text = next().text;
        out.push_back(std::move(text));
      } else if (token.kind == TokenKind::kPrintBegin) {
        next();
        auto print = make(StmtKind::kPrint);
        CADRE_ASSIGN(print->expr, expression_or_tuple());
        if (peek().kind != TokenKind::kPrintEnd) return unexpected("'}}'");
        next();
        out.push_back(std::move(print));
      } else {
        next();
        if (std::find(ends.begin(), ends.end(), peek().text) != ends.end() && peek().kind == TokenKind::kName) {
          return out;
        }
        CADRE_ASSIGN(StmtPtr stmt, statement());
        out.push_back(std::move(stmt));
      }
    }
  }

  StmtPtr make(StmtKind kind) const {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->line = peek().line;
    return stmt;
  }

  Status end_block() {
    if (peek().kind != TokenKind::kBlockEnd) return unexpected("'%}'");
    next();
    return {};
  }

  // `%} body {% name %}`
  Result<Body> body_until(std::string_view name) {
    CADRE_TRY(end_block());
    CADRE_ASSIGN(Body out, body({name}));
    next();
    CADRE_TRY(end_block());
    return out;
  }

  Result<StmtPtr> statement() {
    if (peek().kind != TokenKind::kName) return unexpected("the name of a block, such as 'for'");
    const std::string name = peek().text;
    const int line = peek().line;
    if (name == "for") return for_loop();
    if (name == "if") return if_block();
    if (name == "set") return set();
    if (name == "macro") return macro();
    if (name == "call") return call_block();
    if (name == "filter") return filter_block();
    if (name == "with") return with();
    if (name == "generation") {
      auto stmt = make(StmtKind::kScope);
      next();
      // Its body is a function of its own: a loop around it is out of reach of break and continue.
      const int loops = std::exchange(loops_, 0);
      CADRE_ASSIGN(stmt->body, body_until("endgeneration"));
      loops_ = loops;
      return stmt;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) return syntax_error(line, "'" + name + "' stands outside a loop");
      auto stmt = make(name == "break" ? StmtKind::kBreak : StmtKind::kContinue);
      next();
      CADRE_TRY(end_block());
      return stmt;
    }
    for (std::string_view other :
         {"extends", "include", "import", "from", "block", "autoescape", "do", "print", "trans"}) {
      if (name == other) {
        return error(Code::kUnsupported, "line ", line, ": the block '", name, "' is not part of chat templates");
      }
    }
    return syntax_error(line, "unknown block '" + name + "'");
  }

  Result<Target> target(bool with_namespace, std::string_view end_name) {
    Nesting nesting(depth_);
    CADRE_TRY(check_depth());
    CADRE_ASSIGN(Target first, target_part(with_namespace));
    if (!peek().is_operator(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(first));
    while (skip_operator(",")) {
      if (peek().is_name(end_name) || peek().is_operator("=") || peek().is_operator(")")) break;
      CADRE_ASSIGN(Target part, target_part(with_namespace));
      tuple.parts.push_back(std::move(part));
    }
    return tuple;
  }

  Result<Target> target_part(bool with_namespace) {
    if (skip_operator("(")) {
      CADRE_ASSIGN(Target inner, target(with_namespace, ""));
      CADRE_TRY(expect_operator(")"));
      return inner;
    }
    Target out;
    const int line = peek().line;
    CADRE_ASSIGN(out.name, expect_name());
    for (std::string_view constant : {"true", "True", "false", "False", "none", "None"}) {
      if (out.name == constant) return syntax_error(line, "'" + out.name + "' cannot be assigned");
    }
    if (with_namespace && skip_operator(".")) {
      CADRE_ASSIGN(out.attribute, expect_name());
    }
    return out;
  }

  static bool names_loop(const Target& target) {
    return target.name == "loop" || std::any_of(target.parts.begin(), target.parts.end(), names_loop);
  }

  Result<StmtPtr> for_loop() {
    auto stmt = make(StmtKind::kFor);
    next();
    CADRE_ASSIGN(stmt->target, target(false, "in"));
    if (names_loop(stmt->target)) return syntax_error(stmt->line, "'loop' cannot be the variable of a loop");
    if (!skip_name("in")) return unexpected("'in'");
    CADRE_ASSIGN(stmt->expr, expression_or_tuple(/*with_condition=*/false));
    if (skip_name("if")) {
      CADRE_ASSIGN(stmt->condition, expression());
    }
    if (peek().is_name("recursive")) {
      return error(Code::kUnsupported, "line ", peek().line, ": recursive loops are not supported, use a macro");
    }
    CADRE_TRY(end_block());
    ++loops_;
    CADRE_ASSIGN(stmt->body, body({"else", "endfor"}));
    --loops_;
    if (skip_name("else")) {
      CADRE_ASSIGN(stmt->orelse, body_until("endfor"));
      return stmt;
    }
    next();
    CADRE_TRY(end_block());
    return stmt;
  }

  Result<StmtPtr> if_block() {
    auto stmt = make(StmtKind::kIf);
    next();
    for (;;) {
      CADRE_ASSIGN(ExprPtr condition, expression_or_tuple(/*with_condition=*/false));
      CADRE_TRY(end_block());
      CADRE_ASSIGN(Body branch, body({"elif", "else", "endif"}));
      stmt->branches.emplace_back(std::move(condition), std::move(branch));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        CADRE_ASSIGN(stmt->orelse, body_until("endif"));
        return stmt;
      }
      next();
      CADRE_TRY(end_block());
      return stmt;
    }
  }

  Result<StmtPtr> set() {
    auto stmt = make(StmtKind::kSet);
    next();
    CADRE_ASSIGN(stmt->target, target(true, ""));
    if (skip_operator("=")) {
      CADRE_ASSIGN(stmt->expr, expression_or_tuple());
      CADRE_TRY(end_block());
      return stmt;
    }
    stmt->kind = StmtKind::kSetBlock;
    while (skip_operator("|")) {
      CADRE_ASSIGN(stmt->expr, filter(std::move(stmt->expr)));
    }
    CADRE_ASSIGN(stmt->body, body_until("endset"));
    return stmt;
  }

  // `(a, b=1)`
  Status signature(MacroDef& macro) {
    CADRE_TRY(expect_operator("("));
    while (!peek().is_operator(")")) {
      if (!macro.parameters.empty()) CADRE_TRY(expect_operator(","));
      CADRE_ASSIGN(std::string name, expect_name());
      macro.parameters.push_back(std::move(name));
      macro.defaults.emplace_back();
      if (skip_operator("=")) {
        CADRE_ASSIGN(macro.defaults.back(), expression());
      } else if (macro.defaults.size() > 1 && macro.defaults[macro.defaults.size() - 2] != nullptr) {
        return syntax_error(peek().line, "a parameter without a default follows one that has a default");
      }
    }
    return expect_operator(")");
  }

  Status macro_body(MacroDef& macro, std::string_view end) {
    macros_.emplace_back();
    const int loops = std::exchange(loops_, 0);
    CADRE_ASSIGN(macro.body, body_until(end));
    loops_ = loops;
    macro.uses_caller = macros_.back().caller;
    macro.uses_varargs = macros_.back().varargs;
    macro.uses_kwargs = macros_.back().kwargs;
    macros_.pop_back();
    return {};
  }

  Result<StmtPtr> macro() {
    auto stmt = make(StmtKind::kMacro);
    next();
    auto macro = std::make_unique<MacroDef>();
    CADRE_ASSIGN(macro->name, expect_name());
    CADRE_TRY(signature(*macro));
    CADRE_TRY(macro_body(*macro, "endmacro"));
    stmt->macro = std::move(macro);
    return stmt;
  }

  Result<StmtPtr> call_block() {
    auto stmt = make(StmtKind::kCall);
    next();
    auto caller = std::make_unique<MacroDef>();
    caller->name = "caller";
    if (peek().is_operator("(")) CADRE_TRY(signature(*caller));
    CADRE_ASSIGN(stmt->expr, expression());
    if (stmt->expr->kind != ExprKind::kCall) return syntax_error(stmt->line, "a call block wants the call of a macro");
    CADRE_TRY(macro_body(*caller, "endcall"));
    stmt->macro = std::move(caller);
    return stmt;
  }

  Result<StmtPtr> filter_block() {
    auto stmt = make(StmtKind::kFilter);
    next();
    CADRE_ASSIGN(stmt->expr, filter(nullptr));
    while (skip_operator("|")) {
      CADRE_ASSIGN(stmt->expr, filter(std::move(stmt->expr)));
    }
    CADRE_ASSIGN(stmt->body, body_until("endfilter"));
    return stmt;
  }

  Result<StmtPtr> with() {
    auto stmt = make(StmtKind::kWith);
    next();
    while (peek().kind != TokenKind::kBlockEnd) {
      if (!stmt->bindings.empty()) CADRE_TRY(expect_operator(","));
      CADRE_ASSIGN(Target name, target_part(false));
      CADRE_TRY(expect_operator("="));
      CADRE_ASSIGN(ExprPtr value, expression());
      stmt->bindings.emplace_back(std::move(name), std::move(value));
    }
    CADRE_ASSIGN(stmt->body, body_until("endwith"));
    return stmt;
  }

  int loops_ = 0;  // around the statement, inside the innermost macro
};

}  // namespace

Result<std::unique_ptr<const Template>> parse_template(std::string_view source) {
  CADRE_ASSIGN(std::vector<Token> tokens, lex(source));
  return Parser(std::move(tokens)).run();
}

}  // namespace cadre::chat_template
