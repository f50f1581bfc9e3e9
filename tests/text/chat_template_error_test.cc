#include <gmock/gmock.h>

#include "text/chat_template_support.h"

namespace cadre {
namespace {

using ::testing::HasSubstr;

TEST(ChatTemplateErrors, NameTheTemplateAndTheLine) {
  EXPECT_EQ(render("a\nb {% if x %}\n"), "error: t.jinja: line 2: a block is not closed: '{% endif %}' is missing");
  EXPECT_EQ(render("\n\n{{ 1 + }}"), "error: t.jinja: line 3: got '}}', want an expression");
  EXPECT_EQ(render("a\n{{ missing.x }}"),
            "error: t.jinja: line 2: 'missing' is not defined, so it has no attribute 'x'");
  EXPECT_EQ(render("\n{{ 'a' | nope }}"), "error: t.jinja: line 2: there is no filter 'nope'");
  EXPECT_EQ(render("{{ 1 is nope }}"), "error: t.jinja: line 1: there is no test 'nope'");
  EXPECT_EQ(render("{{ 1 +\n 'a' }}"), "error: t.jinja: line 1: no '+' between int and str");
}

TEST(ChatTemplateErrors, CodesTellWhoIsAtFault) {
  EXPECT_EQ(render_code("{{"), Code::kInvalidFile);
  EXPECT_EQ(render_code("{% include 'x' %}"), Code::kUnsupported);
  EXPECT_EQ(render_code("{{ 1 | nope }}"), Code::kUnsupported);
  EXPECT_EQ(render_code("{{ none + 1 }}"), Code::kInvalidArgument);
  EXPECT_EQ(render_code("\xFF"), Code::kInvalidFile);
  EXPECT_EQ(render_code("{{ range(1000000) }}"), Code::kLimitExceeded);
}

TEST(ChatTemplateErrors, RaiseExceptionGivesItsMessage) {
  const std::string source = "{% if messages | length > 1 %}{{ raise_exception('one turn only') }}{% endif %}";
  EXPECT_EQ(render(source), "error: t.jinja: line 1: one turn only");
  EXPECT_EQ(render_code(source), Code::kInvalidArgument);
}

TEST(ChatTemplateErrors, InputHasToBeJsonOfTheRightKind) {
  RenderInput input = plain_input();
  input.messages_json = "[{]";
  EXPECT_THAT(render("x", input), HasSubstr("messages is not valid JSON"));
  input.messages_json = "{}";
  EXPECT_THAT(render("x", input), HasSubstr("messages is a dict, want an array"));
  input = plain_input();
  input.extra_json = "[]";
  EXPECT_THAT(render("x", input), HasSubstr("want an object"));
  input = plain_input();
  input.messages_json = std::string(200, '[') + std::string(200, ']');
  EXPECT_THAT(render("x", input), HasSubstr("nests deeper than"));
}

TEST(ChatTemplateErrors, ValuesCannotBeChanged) {
  EXPECT_THAT(render("{{ messages.append(1) }}"), HasSubstr("changes its object"));
  EXPECT_THAT(render("{% set messages.x = 1 %}"), HasSubstr("'messages' is not a namespace"));
}

// What a hostile template may try; each has to end soon, with an error that says which limit it met.
TEST(ChatTemplateErrors, EverythingThatCanGrowHasALimit) {
  EXPECT_EQ(render_code("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"),
            Code::kLimitExceeded);
  RenderInput input = plain_input();  // from here on with less patience
  input.limits.max_steps = 2'000'000;
  input.limits.max_memory = 64u << 20;
  const auto limited = [&](const std::string& source) {
    EXPECT_EQ(render_code(source, input), Code::kLimitExceeded)
        << source.substr(0, 80) << ": " << render(source, input);
  };
  limited("{{ 'x' * 100000000 }}");
  limited("{{ [0] * 100000000 }}");
  limited("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}");
  limited("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}");
  limited("{% set ns = namespace(s='xx') %}{% for i in range(64) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}");
  limited("{% set ns = namespace(l=[]) %}{% for i in range(9999) %}{% set ns.l = [ns.l] %}{% endfor %}");
  limited(
      "{% set ns = namespace(l=[1]) %}{% for i in range(90) %}{% set ns.l = [ns.l, ns.l] %}{% endfor %}{{ ns.l == ns.l "
      "}}");
  limited("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}");
  limited(
      "{% set ns = namespace() %}{% macro a() %}{% macro b() %}{{ 1 }}{% endmacro %}{% set ns.f = b %}{% endmacro %}"
      "{% for i in range(99999) %}{{ a() }}{% for j in range(99) %}{{ ns.f() }}{% endfor %}{% endfor %}");
  limited(
      "{% set ns = namespace(p=none) %}{% for i in range(99999) %}{% for j in range(99) %}{% set ns.p = "
      "namespace(p=ns.p) %}"
      "{% endfor %}{% endfor %}");
  limited("{{ '{:99999999}'.format(1) }}");
  limited("{{ '%99999999d' % 1 }}");
  limited("{{ 'a' | indent(99999999) }}");
  limited("{{ 'a'.ljust(999999999) }}");
  limited("{{ 'a' | center(999999999) }}");
  limited("{{ ('a' * 9999999).replace('', 'bbbb') }}");
  limited("{{ ('a' * 9999999).find('a' * 4999999 ~ 'b') }}");
  limited("{{ " + std::string(500, '(') + "1" + std::string(500, ')') + " }}");
  limited("{{ " + std::string(500, '[') + std::string(500, ']') + " }}");
  limited("{{ " + std::string(500, '-') + "1 }}");
  std::string chain = "{{ 1";
  for (int i = 0; i < 500; ++i) chain += " + 1";
  limited(chain + " }}");
  std::string nots = "{{ ";
  for (int i = 0; i < 500; ++i) nots += "not ";
  limited(nots + "1 }}");
  std::string pipes = "{% filter trim";
  for (int i = 0; i < 500; ++i) pipes += "|trim";
  limited(pipes + " %}x{% endfilter %}");
  std::string blocks;
  for (int i = 0; i < 500; ++i) blocks += "{% if 1 %}";
  limited(blocks);
}

TEST(ChatTemplateErrors, NumbersDoNotOverflow) {
  for (const char* source : {"{{ 9223372036854775807 + 1 }}", "{{ -9223372036854775807 - 2 }}", "{{ 2 ** 64 }}",
                             "{{ 99999999999 * 99999999999 }}", "{{ (-9223372036854775807 - 1) // -1 }}",
                             "{{ -(-9223372036854775807 - 1) }}", "{{ (-9223372036854775807 - 1) | abs }}"}) {
    EXPECT_THAT(render(source), HasSubstr("fit in 64 bits")) << source;
  }
  EXPECT_EQ(render("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_EQ(
      render("{{ 'abc'[9223372036854775807:] }}{{ 'abc'[::9223372036854775807] }}{{ 'abc'[::-9223372036854775807] }}"),
      "ac");
  EXPECT_THAT(render("{{ 99999999999999999999 }}"), HasSubstr("out of range"));
}

}  // namespace
}  // namespace cadre
