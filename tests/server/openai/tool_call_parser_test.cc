#include "server/openai/tool_call_parser.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace cadre::server {
namespace {

// "text" pieces joined, calls as "[name arguments]".
void append(std::string& out, const std::vector<ToolPiece>& pieces) {
  for (const ToolPiece& piece : pieces) {
    if (const auto* call = std::get_if<ToolCall>(&piece)) {
      out += "[" + call->name + " " + call->arguments + "]";
    } else {
      out += std::get<std::string>(piece);
    }
  }
}

std::string parse(std::string_view text, const std::vector<std::size_t>& cuts = {}) {
  ToolCallParser parser;
  std::string out;
  std::size_t at = 0;
  for (const std::size_t cut : cuts) {
    append(out, parser.feed(text.substr(at, cut - at)));
    at = cut;
  }
  append(out, parser.feed(text.substr(at)));
  append(out, parser.flush());
  return out;
}

struct Case {
  std::string text, want;
};

std::string tag(const std::string& body) { return "<tool_call>" + body + "</tool_call>"; }

std::vector<Case> cases() {
  const std::string f = R"({"name": "f", "arguments": {"a": 1}})";
  const std::string call = "<tool_call>\n" + f + "\n</tool_call>";
  std::vector<Case> list = {
      {call, R"([f {"a": 1}])"},
      {tag(f), R"([f {"a": 1}])"},
      {"Let me see.\n" + call, R"(Let me see.[f {"a": 1}])"},
      {call + "\n" + call, R"([f {"a": 1}][f {"a": 1}])"},
      {call + call + "\n", R"([f {"a": 1}][f {"a": 1}])"},
      {"a " + call + " b " + call + "\n c \n", "a[f {\"a\": 1}] b[f {\"a\": 1}]\n c \n"},
      {tag(R"({"arguments": {"x": {"y": [1, "}"]}}, "name": "g"})"), R"([g {"x": {"y": [1, "}"]}}])"},
      {tag(R"({"name":"f","arguments":{}})"), "[f {}]"},
      {tag(R"({"name":"f"})"), "[f {}]"},
      {tag(R"({"name":"f","arguments":null})"), "[f {}]"},
      {tag(R"({"name":"f","arguments":"{\"a\": 2}"})"), R"([f {"a": 2}])"},
      {tag(R"({"name":"f","argum\u0065nts":{"a": 1}})"), R"([f {"a": 1}])"},
      // Numbers beyond 64 bits stay as they were written.
      {tag(R"({"name": "f", "arguments": {"id": 12345678901234567890123} })"),
       R"([f {"id": 12345678901234567890123}])"},
      // Tags and quotes inside strings.
      {tag(R"({"name":"f","arguments":{"s":"</tool_call> \" <tool_call>"}})"),
       R"([f {"s":"</tool_call> \" <tool_call>"}])"},
      {tag(R"({"name":"f","arguments":{"s":"\\"}})"), R"([f {"s":"\\"}])"},
      {tag(R"({"name":"f","arguments":{"s":"Grüße 👩"}})"), R"([f {"s":"Grüße 👩"}])"},
      // The end of the text closes a complete call.
      {"<tool_call>\n" + f, R"([f {"a": 1}])"},
      {"x <tool_call>" + f + "\n", R"(x[f {"a": 1}])"},
  };
  const std::vector<std::string> verbatim = {
      "",
      "plain text",
      " spaces  \n\n around \n ",
      "<",
      "<tool_call",
      "<tool_call>",
      "\n <tool_call> \n",
      "a < b <tool_ <tool_calls> </tool_call>",
      "the tag <tool_call> in a sentence",
      "<tool_call>\n<function=f>\n</function>\n</tool_call>",
      "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": 1}",
      "<tool_call>" + f + "</tool_cal",
      tag("{}"),
      tag("{bad}"),
      tag("[1]"),
      tag(R"({"name": 5, "arguments": {}})"),
      tag(R"({"name": "", "arguments": {}})"),
      tag(R"({"name": "f", "arguments": [1]})"),
      tag(R"({"name": "f", "arguments": "x"})"),
      tag(R"({"name": "f", "name": "g"})"),
      tag(R"({"name": "f", "arguments": {"a": NaN}})"),
      tag("{\"name\": \"f"),
  };
  for (const std::string& text : verbatim) list.push_back({text, text});
  // A broken call does not hide a good one.
  list.push_back({tag("{bad}") + "\n" + call, tag("{bad}") + R"([f {"a": 1}])"});
  list.push_back({tag("{\"open: 1}") + "\n" + call + " ok", tag("{\"open: 1}") + R"([f {"a": 1}] ok)"});
  list.push_back({"<tool_call> hm " + call, R"(<tool_call> hm[f {"a": 1}])"});
  list.push_back({"<tool_call>\n" + call, R"(<tool_call>[f {"a": 1}])"});
  // More white space than is held back.
  list.push_back({"a" + std::string(300, '\n') + call, "a" + std::string(44, '\n') + R"([f {"a": 1}])"});
  list.push_back({std::string(600, ' '), std::string(600, ' ')});
  return list;
}

TEST(ToolCallParser, WholeText) {
  for (const Case& c : cases()) EXPECT_EQ(parse(c.text), c.want) << c.text;
}

TEST(ToolCallParser, EverySplitInTwo) {
  for (const Case& c : cases()) {
    for (std::size_t cut = 0; cut <= c.text.size(); ++cut) ASSERT_EQ(parse(c.text, {cut}), c.want) << c.text << cut;
  }
}

TEST(ToolCallParser, ByteByByteAndAtRandom) {
  std::mt19937 random(5);
  for (const Case& c : cases()) {
    std::vector<std::size_t> every;
    for (std::size_t i = 0; i <= c.text.size(); ++i) every.push_back(i);
    EXPECT_EQ(parse(c.text, every), c.want) << c.text;
    for (int round = 0; round < 20; ++round) {
      std::vector<std::size_t> cuts;
      for (std::size_t i = 0; i <= c.text.size(); ++i) {
        if (random() % 7 == 0) cuts.push_back(i);
      }
      ASSERT_EQ(parse(c.text, cuts), c.want) << c.text;
    }
  }
}

// Texts of the pieces that matter, in random order: the way they are cut must never show.
TEST(ToolCallParser, RandomTextsCutAtRandom) {
  const std::vector<std::string> parts = {"<tool_call>",
                                          "</tool_call>",
                                          "\n",
                                          " ",
                                          "{",
                                          "}",
                                          "\"",
                                          "\\",
                                          "<tool",
                                          "x",
                                          R"({"name":"f","arguments":{"a":1}})",
                                          R"({"name":")",
                                          "</tool_",
                                          R"(<tool_call>{"name":"f"}</tool_call>)"};
  std::mt19937 random(7);
  int calls = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (auto i = 1 + random() % 12; i > 0; --i) text += parts[random() % parts.size()];
    std::vector<std::size_t> cuts;
    for (std::size_t i = 0; i <= text.size(); ++i) {
      if (random() % 4 == 0) cuts.push_back(i);
    }
    const std::string whole = parse(text);
    ASSERT_EQ(parse(text, cuts), whole) << text;
    if (whole.find("[f ") == std::string::npos) {
      ASSERT_EQ(whole, text);  // without a call nothing is lost
    } else {
      ++calls;
    }
  }
  EXPECT_GT(calls, 50);
}

TEST(ToolCallParser, EachPieceComesAsSoonAsItIsCertain) {
  ToolCallParser parser;
  std::string out;
  append(out, parser.feed("Hello wor"));
  EXPECT_EQ(out, "Hello wor");
  append(out, parser.feed("ld <too"));
  EXPECT_EQ(out, "Hello world");
  append(out, parser.feed("thless>"));
  EXPECT_EQ(out, "Hello world <toothless>");
  append(out, parser.feed(R"(<tool_call>{"name":"f"}</tool_call>)"));
  EXPECT_EQ(out, "Hello world <toothless>[f {}]");
  EXPECT_TRUE(parser.flush().empty());
}

TEST(ToolCallParser, ACallWithoutEndIsTextAtTheLimit) {
  ToolCallParser parser;
  const std::string begin = "<tool_call>{\"name\": \"";
  std::string text = begin, out;
  append(out, parser.feed(begin));
  const std::string piece(1 << 16, 'x');
  for (int i = 0; i < 20; ++i) {
    append(out, parser.feed(piece));
    text += piece;
  }
  EXPECT_GE(out.size(), ToolCallParser::kMaxCall);
  append(out, parser.flush());
  EXPECT_EQ(out, text);
}

}  // namespace
}  // namespace cadre::server
