#include "text/chat_template_support.h"

namespace cadre {
namespace {

TEST(ChatTemplate, RendersAConversation) {
  EXPECT_EQ(render("{{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m['content'] }}\n{% endfor %}"
                   "{% if add_generation_prompt %}[assistant]{% endif %}"),
            "<s>[user] Grüße\n[assistant] Hi\n[assistant]");
}

TEST(ChatTemplate, GenerationPromptIsTheCallersChoice) {
  RenderInput input = plain_input();
  input.add_generation_prompt = false;
  EXPECT_EQ(render("{{ 'yes' if add_generation_prompt else 'no' }}", input), "no");
}

TEST(ChatTemplate, ToolsAreNoneUnlessGiven) {
  RenderInput input = plain_input();
  EXPECT_EQ(render("{{ tools is none }} {{ documents }}", input), "True None");
  input.tools_json = R"([{"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [1.0, null]}}}])";
  EXPECT_EQ(render("{{ tools[0] | tojson }}", input),
            R"({"type": "function", "function": {"name": "f", "parameters": {"b": 1, "a": [1.0, null]}}})");
}

TEST(ChatTemplate, ExtraVariablesComeLast) {
  RenderInput input = plain_input();
  input.extra_json = R"({"enable_thinking": false, "bos_token": "<other>"})";
  EXPECT_EQ(render("{{ enable_thinking }} {{ bos_token }}", input), "False <other>");
}

TEST(ChatTemplate, BlocksTakeTheirLineAway) {
  EXPECT_EQ(render("a\n  {% if true %}\n  b\n  {% endif %}\nc\n"), "a\n  b\nc");
  EXPECT_EQ(render("a\n  {%+ if true %}\n  b\n  {% endif +%}\nc"), "a\n    b\n\nc");
  EXPECT_EQ(render("a \n {%- if true -%} \n b \n {%- endif -%} \n c"), "abc");
  EXPECT_EQ(render("  {# gone #}\nx {# and gone -#}  y"), "x y");
}

TEST(ChatTemplate, NamespacesOutliveLoops) {
  EXPECT_EQ(render("{% set ns = namespace(n=0) %}{% set plain = 0 %}"
                   "{% for m in messages %}{% set ns.n = ns.n + 1 %}{% set plain = plain + 1 %}{% endfor %}"
                   "{{ ns.n }} {{ plain }}"),
            "2 0");
}

TEST(ChatTemplate, LoopConditionIsReadAsLateAsPossible) {
  const std::string body = "{% set ns = namespace(go=true) %}{% for i in [1, 2, 3] if ns.go %}{{ i }}";
  EXPECT_EQ(render(body + "{% set ns.go = false %}{% endfor %}"), "1");
  EXPECT_EQ(render(body + "{{ loop.length }}{% set ns.go = false %}{% endfor %}"), "132333");
}

TEST(ChatTemplate, MacrosSeeWhatIsSetLater) {
  EXPECT_EQ(render("{% macro m(a, b='-') %}{{ a }}{{ b }}{{ later }}{% endmacro %}{% set later = 'L' %}{{ m(1) }}{{ "
                   "m(b=2, a=3) }}"),
            "1-L32L");
}

TEST(ChatTemplate, StringsCountCodePoints) {
  EXPECT_EQ(render("{% set s = messages[0].content %}{{ s | length }} {{ s[::-1] }} {{ s[2] }} {{ s | upper }}"),
            "5 eßürG ü GRÜSSE");
}

TEST(ChatTemplate, ValuesPrintAsInPython) {
  EXPECT_EQ(render("{{ [1, 2.0, 1e16, true, none, 'it\\'s', ('a',), {'k': []}] }}"),
            R"([1, 2.0, 1e+16, True, None, "it's", ('a',), {'k': []}])");
}

TEST(ChatTemplate, ClockIsGiven) {
  RenderInput input = plain_input();
  input.now = 1709210096;  // a leap day
  EXPECT_EQ(render("{{ strftime_now('%d %b %Y, %A, %H:%M:%S, day %j') }}", input),
            "29 Feb 2024, Thursday, 12:34:56, day 060");
  input.now = -1;
  EXPECT_EQ(render("{{ strftime_now('%Y-%m-%d %T') }}", input), "1969-12-31 23:59:59");
  input.now = INT64_MAX;
  EXPECT_EQ(render("{{ strftime_now('%Y') }}", input), "9999");
}

TEST(ChatTemplate, GenerationBlockPassesItsTextOn) {
  EXPECT_EQ(render("{% for m in messages %}{% generation %}{{ m.content }}.{% endgeneration %}{% endfor %}"),
            "Grüße.Hi.");
}

TEST(ChatTemplate, RenderingIsRepeatableAndLeavesNoTrace) {
  auto parsed = ChatTemplate::parse(
      "{% set ns = namespace(n=1) %}{% set ns.self = ns %}{% macro m() %}{{ ns.n }}{% endmacro %}"
      "{% set ns.m = m %}{{ ns.m() }}",
      "t");
  ASSERT_TRUE(parsed.ok());
  for (int i = 0; i < 3; ++i) {
    auto text = (*parsed)->render(plain_input());
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(*text, "1");
  }
}

// The tables are searched by halving, so each name has to be found in its place.
TEST(ChatTemplate, EveryFilterTestAndMethodIsFound) {
  for (const char* name :
       {"abs",    "attr",       "batch",   "capitalize", "center",      "count",  "d",       "default",    "dictsort",
        "e",      "escape",     "first",   "float",      "forceescape", "format", "groupby", "indent",     "int",
        "items",  "join",       "last",    "length",     "list",        "lower",  "map",     "max",        "min",
        "reject", "rejectattr", "replace", "reverse",    "round",       "safe",   "select",  "selectattr", "sort",
        "string", "sum",        "title",   "tojson",     "trim",        "unique", "upper",   "wordcount"}) {
    EXPECT_EQ(render(std::string("{{ '") + name + "' is filter }}"), "True") << name;
  }
  for (const char* name :
       {"!=",       "<",           "<=",          "==",      ">",       ">=",        "boolean",  "callable",
        "defined",  "divisibleby", "eq",          "equalto", "escaped", "even",      "false",    "filter",
        "float",    "ge",          "greaterthan", "gt",      "in",      "integer",   "iterable", "le",
        "lessthan", "lower",       "lt",          "mapping", "ne",      "none",      "number",   "odd",
        "sameas",   "sequence",    "string",      "test",    "true",    "undefined", "upper"}) {
    EXPECT_EQ(render(std::string("{{ '") + name + "' is test }}"), "True") << name;
  }
  for (const char* name :
       {"capitalize", "casefold", "center",    "count",      "endswith",  "find",         "format",       "index",
        "isalnum",    "isalpha",  "isdecimal", "isdigit",    "islower",   "isnumeric",    "isspace",      "isupper",
        "join",       "ljust",    "lower",     "lstrip",     "partition", "removeprefix", "removesuffix", "replace",
        "rfind",      "rindex",   "rjust",     "rpartition", "rsplit",    "rstrip",       "split",        "splitlines",
        "startswith", "strip",    "swapcase",  "title",      "upper",     "zfill"}) {
    EXPECT_EQ(render(std::string("{{ ''.") + name + " is defined }}"), "True") << name;
  }
}

}  // namespace
}  // namespace cadre
