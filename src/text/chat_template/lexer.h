// Splits a template into text and the tokens inside its tags, white space control already applied.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::chat_template {

enum class TokenKind : std::uint8_t {
  kText,        // outside tags
  kPrintBegin,  // {{
  kPrintEnd,    // }}
  kBlockBegin,  // {%
  kBlockEnd,    // %}
  kName,
  kString,
  kInteger,
  kReal,
  kOperator,  // text holds it
  kEnd,
};

struct Token {
  TokenKind kind = TokenKind::kEnd;
  std::string text;  // of strings, with escapes resolved
  std::int64_t integer = 0;
  double real = 0;
  int line = 1;

  bool is_operator(std::string_view op) const { return kind == TokenKind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == TokenKind::kName && text == name; }
};

// Always ends with a kEnd token.
Result<std::vector<Token>> lex(std::string_view source);

// An error of the template's text: "line 3: ...".
Status syntax_error(int line, std::string_view what);

}  // namespace cadre::chat_template
