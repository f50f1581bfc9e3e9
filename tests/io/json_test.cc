#include "io/json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <thread>

#include "support/status_matchers.h"
#include "support/temp_dir.h"

namespace cadre {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

Json parsed(std::string_view text, const JsonParseOptions& options = {}) {
  Result<Json> json = Json::parse(text, "test.json", options);
  EXPECT_THAT(json, Succeeds()) << text;
  return json.ok() ? *json : Json();
}

TEST(JsonParse, EveryType) {
  const Json json =
      parsed(R"( {"n": null, "t": true, "f": false, "i": -12, "d": 2.5e-1, "s": "x", "a": [1, [], {}]} )");
  EXPECT_TRUE(json.find("n")->is_null());
  EXPECT_TRUE(*json.get_bool("t"));
  EXPECT_FALSE(*json.get_bool("f"));
  EXPECT_EQ(*json.get_int("i"), -12);
  EXPECT_EQ(*json.get_double("d"), 0.25);
  EXPECT_EQ(*json.get_double("i"), -12.0);
  EXPECT_EQ(*json.get_string("s"), "x");
  EXPECT_EQ(json.find("a")->items().size(), 3u);
  EXPECT_EQ(json.get_array("a")->size(), 3u);
  EXPECT_EQ(json.find("absent"), nullptr);
  EXPECT_FALSE(json.has("n"));
  EXPECT_TRUE(json.has("f"));
  EXPECT_EQ(json.members()[1].first, "t");
}

TEST(JsonParse, Numbers) {
  const auto number = [](std::string_view text) { return parsed(text).as_double("n"); };
  EXPECT_EQ(*number("0"), 0.0);
  EXPECT_EQ(*number("1e5"), 1e5);
  EXPECT_EQ(*number("1E+5"), 1e5);
  EXPECT_EQ(*number("0.1"), 0.1);
  EXPECT_TRUE(std::signbit(*number("-0.0")));
  EXPECT_EQ(*parsed("9223372036854775807").as_int("n"), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(*parsed("-9223372036854775808").as_int("n"), std::numeric_limits<std::int64_t>::min());
  // Beyond 64 bits: the nearest double, as transformers' model_max_length.
  const Json big = parsed("1000000000000000019884624838656");
  EXPECT_EQ(*big.as_double("n"), 1e30);
  EXPECT_FALSE(big.is_int());
  EXPECT_EQ(*number("9223372036854775808"), 0x1p63);
  // Beyond doubles, as Python.
  EXPECT_EQ(*number("1e400"), kInfinity);
  EXPECT_EQ(*number("-1e400"), -kInfinity);
  EXPECT_EQ(*number("1e-400"), 0.0);
  EXPECT_EQ(*number("1e99999999999999999999999"), kInfinity);
  EXPECT_EQ(*number("1e-99999999999999999999999"), 0.0);
  EXPECT_EQ(*number(std::string(400, '9')), kInfinity);
  EXPECT_EQ(*number("0." + std::string(400, '0') + "1"), 0.0);
  EXPECT_EQ(*number("0." + std::string(400, '0') + "1e401"), 1.0);
  EXPECT_EQ(*number(std::string(400, '9') + "e-1000"), 0.0);
  EXPECT_EQ(*number("0e400"), 0.0);
}

TEST(JsonParse, NumbersOfPython) {
  const Json json = parsed(R"({"a": NaN, "b": Infinity, "c": -Infinity, "d": {"__float__": "Infinity"},
                               "e": {"__float__": "-Infinity"}, "f": [{"__float__": "NaN"}],
                               "g": {"__float__": "other"}, "h": {"__float__": "NaN", "x": 1},
                               "i": {"__float__": 1, "__float__": "Infinity"}})");
  EXPECT_EQ(*json.get_double("i"), kInfinity);
  EXPECT_TRUE(std::isnan(*json.get_double("a")));
  EXPECT_EQ(*json.get_double("b"), kInfinity);
  EXPECT_EQ(*json.get_double("c"), -kInfinity);
  EXPECT_EQ(*json.get_double("d"), kInfinity);
  EXPECT_EQ(*json.get_double("e"), -kInfinity);
  EXPECT_TRUE(std::isnan(json.get_double_list("f")->at(0)));
  EXPECT_TRUE(json.find("g")->is_object());
  EXPECT_TRUE(json.find("h")->is_object());

  const JsonParseOptions strict{.python_numbers = false};
  EXPECT_THAT(Json::parse("[1, -Infinity]", "t", strict),
              FailsWith(Code::kInvalidFile, "t: line 1, column 5: '-Infinity' is not a JSON value"));
  EXPECT_THAT(Json::parse("NaN", "t", strict), FailsWith(Code::kInvalidFile, "'NaN' is not a JSON value"));
  EXPECT_TRUE(parsed(R"({"__float__": "NaN"})", strict).is_object());
}

TEST(JsonParse, Strings) {
  EXPECT_EQ(*parsed(R"("\"\\\/\b\f\n\r\t")").as_string("s"), "\"\\/\b\f\n\r\t");
  EXPECT_EQ(*parsed(R"("\u0041\u00e9\u20AC\ud83d\ude00")").as_string("s"), "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(*parsed("\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"").as_string("s"), "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  EXPECT_EQ(*parsed(R"("a\u0000b")").as_string("s"), std::string("a\0b", 3));
}

TEST(JsonParse, Malformed) {
  const std::pair<std::string, const char*> cases[] = {
      {"", "the text ends where a value should be"},
      {"  \n ", "line 2, column 2: the text ends"},
      {"{", "the end of the text in an object, want a key"},
      {"{\"a\"", "after a key, want ':'"},
      {"{\"a\":}", "'}' where a value should be"},
      {"{\"a\":1", "in an object, want ',' or '}'"},
      {"{\"a\":1,}", "'}' in an object, want a key in double quotes"},
      {"{'a':1}", "''' in an object, want a key"},
      {"[1,]", "']' where a value should be"},
      {"[1 2]", "'2' in an array, want ',' or ']'"},
      {"[1", "the end of the text in an array"},
      {"1 1", "'1' after the end of the JSON value"},
      {"nul", "'n' where a value should be"},
      {"tru", "'t' where"},
      {"fals", "'f' where"},
      {"Nan", "'N' where"},
      {"-Inf", "'-' where"},
      {"01", "leading zero"},
      {"-01", "leading zero"},
      {"-", "where a digit should be"},
      {"1.", "where a digit should be"},
      {"1e", "where a digit should be"},
      {"1e+", "where a digit should be"},
      {".5", "'.' where a value"},
      {"+1", "'+' where a value"},
      {"0x10", "'x' after the end"},
      {"\"abc", "ends inside a string"},
      {"\"abc\\", "ends inside a string"},
      {"\"a\nb\"", "byte 0x0a in a string, want it escaped"},
      {"\"\\x\"", "'x' after a backslash"},
      {"\"\\u12g4\"", "without four hexadecimal digits"},
      {"\"\\u+123\"", "without four hexadecimal digits"},
      {"\"\\u12", "without four hexadecimal digits"},
      {"\"\\ud800\"", "half of a surrogate pair"},
      {"\"\\udc00\"", "half of a surrogate pair"},
      {"\"\\ud800\\u0041\"", "half of a surrogate pair"},
      {"\"\xff\"", "byte 0xff in a string is not UTF-8"},
      {"\"\xc0\x80\"", "not UTF-8"},
      {"\"\xe0\x80\x80\"", "not UTF-8"},
      {"\"\xed\xa0\x80\"", "not UTF-8"},
      {"\"\xf0\x80\x80\x80\"", "not UTF-8"},
      {"\"\xf4\x90\x80\x80\"", "not UTF-8"},
      {"\"\xe2\x82\"", "not UTF-8"},
      {"\xef\xbb\xbf{}", "byte 0xef where a value should be"},
      {"// c\n1", "'/' where a value should be"},
  };
  for (const auto& [text, phrase] : cases) {
    EXPECT_THAT(Json::parse(text, "test.json"), FailsWith(Code::kInvalidFile, phrase)) << text;
    EXPECT_THAT(Json::parse(text, "test.json"), FailsWith(Code::kInvalidFile, "test.json: line ")) << text;
  }
  EXPECT_THAT(Json::parse("[", "request", {.code = Code::kInvalidArgument}),
              FailsWith(Code::kInvalidArgument, "request"));
}

TEST(JsonParse, Limits) {
  const auto nested = [](int depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  EXPECT_THAT(Json::parse(nested(64), "t"), Succeeds());
  EXPECT_THAT(Json::parse(nested(65), "t"), FailsWith(Code::kLimitExceeded, "nested more than 64 deep"));
  EXPECT_THAT(Json::parse(std::string(1'000'000, '['), "t", {.max_depth = 1 << 30}),
              FailsWith(Code::kLimitExceeded, "nested more than 256 deep"));
  EXPECT_THAT(Json::parse("[1,2]", "t", {.max_bytes = 5}), Succeeds());
  EXPECT_THAT(Json::parse("[1,2]", "t", {.max_bytes = 4}),
              FailsWith(Code::kLimitExceeded, "has 5 bytes of JSON, want at most 4"));
  EXPECT_THAT(Json::parse("[1,2]", "t", {.max_values = 3}), Succeeds());
  EXPECT_THAT(Json::parse("[1,2]", "t", {.max_values = 2}), FailsWith(Code::kLimitExceeded, "more than 2 values"));
}

TEST(JsonParse, DuplicateKeys) {
  const char* text = R"({"a": 1, "b": 2, "a": 3, "c": 4, "a": 5})";
  const Json json = parsed(text);
  EXPECT_EQ(json.dump(), R"({"a": 5, "b": 2, "c": 4})");
  EXPECT_EQ(*json.get_int("a"), 5);
  EXPECT_THAT(Json::parse(text, "t", {.duplicates = JsonParseOptions::Duplicates::kRefuse}),
              FailsWith(Code::kInvalidFile, "has the key \"a\" twice"));
}

TEST(JsonParse, File) {
  TempDir dir;
  const Result<Json> json = Json::parse_file(dir.write("a.json", R"({"x": [1, 2]})").string());
  ASSERT_THAT(json, Succeeds());
  EXPECT_EQ(*json->get_int_list("x"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_THAT(Json::parse_file((dir / "b.json").string()), FailsWith(Code::kNotFound, "b.json"));
  EXPECT_THAT(Json::parse_file((dir / "a.json").string(), {.max_bytes = 3}), FailsWith(Code::kLimitExceeded, "a.json"));
}

TEST(JsonAccess, Messages) {
  const Json json =
      parsed(R"({"text_config": {"num_experts": "many", "layers": [{"size": 1.5}], "null": null}, "i": 7})");
  const Json config = *json.get_object("text_config");
  EXPECT_THAT(config.get_int("num_experts"),
              FailsWith(Code::kInvalidFile, "test.json: field 'text_config.num_experts' is \"many\", want an integer"));
  EXPECT_THAT(config.get_int("absent", 1),
              FailsWith(Code::kInvalidFile, "field 'text_config.absent' is missing, want an integer of at least 1"));
  EXPECT_THAT(config.get_bool("null"), FailsWith(Code::kInvalidFile, "'text_config.null' is null, want true or false"));
  EXPECT_THAT(json.get_double("text_config"), FailsWith(Code::kInvalidFile, "is an object, want a number"));
  EXPECT_THAT(config.get_string("layers"), FailsWith(Code::kInvalidFile, "is an array, want a string"));
  EXPECT_THAT(config.get_object("layers"), FailsWith(Code::kInvalidFile, "is an array, want an object"));
  EXPECT_THAT(json.get_array("text_config"), FailsWith(Code::kInvalidFile, "is an object, want an array"));
  EXPECT_THAT(config.get_array("layers")->at(0).get_int("size"),
              FailsWith(Code::kInvalidFile, "field 'text_config.layers[0].size' is 1.5, want an integer"));
  EXPECT_THAT(json.get_int("i", 1, 6), FailsWith(Code::kInvalidFile, "field 'i' is 7, want an integer from 1 to 6"));
  EXPECT_THAT(json.get_int("i", 8), FailsWith(Code::kInvalidFile, "want an integer of at least 8"));
  EXPECT_THAT(json.get_int("i", Json::kIntMin, 6), FailsWith(Code::kInvalidFile, "want an integer of at most 6"));
  EXPECT_THAT(json.find("i")->get_int("x"), FailsWith(Code::kInvalidFile, "field 'x' was looked for in 7"));

  const Json request = parsed(R"({"n": "x"})", {.code = Code::kInvalidArgument});
  EXPECT_THAT(request.get_int("n"), FailsWith(Code::kInvalidArgument, "field 'n'"));
  EXPECT_THAT(request.get_int("m"), FailsWith(Code::kInvalidArgument, "field 'm' is missing"));
}

TEST(JsonAccess, IntegersWrittenAsDoubles) {
  const Json json =
      parsed(R"({"a": 6.0, "b": 1e3, "c": 1e19, "d": 0.5, "e": NaN, "f": Infinity, "g": -9223372036854775808.0})");
  EXPECT_EQ(*json.get_int("a"), 6);
  EXPECT_EQ(*json.get_int("b"), 1000);
  EXPECT_EQ(*json.get_int("g"), std::numeric_limits<std::int64_t>::min());
  for (const char* key : {"c", "d", "e", "f"}) {
    EXPECT_THAT(json.get_int(key), FailsWith(Code::kInvalidFile, "want an integer")) << key;
  }
}

TEST(JsonAccess, Lists) {
  const Json json = parsed(R"({"i": [1, 2.0], "d": [1, 0.5], "s": ["a", "b"], "bad": [1, true], "o": {}, "n": null})");
  EXPECT_EQ(*json.get_int_list("i"), (std::vector<std::int64_t>{1, 2}));
  EXPECT_EQ(*json.get_double_list("d"), (std::vector<double>{1, 0.5}));
  EXPECT_EQ(*json.get_string_list("s"), (std::vector<std::string>{"a", "b"}));
  EXPECT_THAT(json.get_int_list("bad"), FailsWith(Code::kInvalidFile, "field 'bad[1]' is true, want an integer"));
  EXPECT_THAT(json.get_string_list("bad"), FailsWith(Code::kInvalidFile, "field 'bad[0]' is 1, want a string"));
  EXPECT_THAT(json.get_double_list("o"), FailsWith(Code::kInvalidFile, "is an object, want an array of numbers"));
  EXPECT_THAT(json.get_int_list("n"), FailsWith(Code::kInvalidFile, "is null, want an array of integers"));
}

TEST(JsonAccess, Defaults) {
  const Json json = parsed(R"({"null": null, "s": "x", "i": 3, "d": 0.5, "b": true})");
  EXPECT_EQ(*json.get_int_or("absent", 5), 5);
  EXPECT_EQ(*json.get_int_or("null", 5), 5);
  EXPECT_EQ(*json.get_int_or("i", 5), 3);
  EXPECT_EQ(*json.get_double_or("null", 1.5), 1.5);
  EXPECT_EQ(*json.get_double_or("d", 1.5), 0.5);
  EXPECT_EQ(*json.get_bool_or("absent", false), false);
  EXPECT_EQ(*json.get_bool_or("b", false), true);
  EXPECT_EQ(*json.get_string_or("absent", "y"), "y");
  EXPECT_EQ(*json.get_string_or("s", "y"), "x");
  EXPECT_THAT(json.get_int_or("s", 5), FailsWith(Code::kInvalidFile, "field 's' is \"x\", want an integer"));
  EXPECT_THAT(json.get_int_or("i", 5, 4), FailsWith(Code::kInvalidFile, "at least 4"));
  EXPECT_THAT(Json(3).get_int_or("s", 5), FailsWith(Code::kInvalidFile, "want an object"));
}

TEST(JsonAccess, LongKeysAreCutInPaths) {
  const std::string key(1000, 'k');
  const Json json = parsed(R"({"a": {")" + key + R"(": {"b": {"c": 1}}}})");
  const Json inner = *json.find("a")->find(key)->get_object("b");
  EXPECT_THAT(inner.get_bool("c"), FailsWith(Code::kInvalidFile, "field 'a....b.c' is 1"));
}

TEST(JsonAccess, ValuesOutliveTheirRoot) {
  Json inner;
  {
    const Json root = parsed(R"({"a": {"b": [1, 2, {"c": "deep"}]}})");
    inner = *root.get_object("a");
  }
  EXPECT_EQ(*inner.get_array("b")->at(2).get_string("c"), "deep");
  EXPECT_THAT(inner.get_int("x"), FailsWith(Code::kInvalidFile, "test.json: field 'a.x' is missing"));
}

TEST(JsonDump, CompactAndIndented) {
  const Json json = Json::object({{"name", "a\"b\\\n\x01"},
                                  {"n", nullptr},
                                  {"list", Json::array({1, 2.5, true, "x"})},
                                  {"empty", Json::object({})},
                                  {"none", Json::array(std::vector<Json>{})},
                                  {"sizes", Json::array(std::vector<std::int64_t>{3, 4})}});
  EXPECT_EQ(
      json.dump(),
      R"({"name": "a\"b\\\n\u0001", "n": null, "list": [1, 2.5, true, "x"], "empty": {}, "none": [], "sizes": [3, 4]})");
  EXPECT_EQ(Json::object({{"a", Json::array({1, 2})}, {"b", Json::object({})}}).dump({.indent = 2}),
            "{\n  \"a\": [\n    1,\n    2\n  ],\n  \"b\": {}\n}");
  EXPECT_EQ(Json::object({{"a", 1}, {"a", 2}}).dump(), R"({"a": 2})");
}

std::vector<std::string> unasked(const Json& json) {
  std::vector<std::string> all;
  for (const Json::Unasked& member : json.unasked()) {
    std::string path;
    for (const std::string& key : member.path) path += (path.empty() ? "" : ".") + key;
    all.push_back(path + " = " + member.value.dump());
  }
  return all;
}

TEST(JsonWatched, RemembersWhatWasLookedUp) {
  using Names = std::vector<std::string>;
  const Json plain = parsed(R"({"a": 1, "b": {"c": 2, "d": {"e": 3}}, "f": [{"g": 4}, 5], "h": null})");
  EXPECT_EQ(unasked(plain), Names());  // nobody watches
  const Json json = plain.watched();
  EXPECT_EQ(json.dump(), plain.dump());
  const Json again = plain.watched();
  EXPECT_EQ(unasked(again), (Names{"a = 1", R"(b = {"c": 2, "d": {"e": 3}})", R"(f = [{"g": 4}, 5])", "h = null"}));
  EXPECT_EQ(again.get_int("a").value(), 1);
  EXPECT_FALSE(again.has("h"));
  const Json b = again.get_object("b").value();  // shares what is remembered
  EXPECT_EQ(unasked(again), (Names{"b.c = 2", R"(b.d = {"e": 3})", R"(f = [{"g": 4}, 5])"}));
  EXPECT_EQ(b.get_int_or("c", 0).value(), 2);
  EXPECT_FALSE(b.has("a"));  // of another object
  EXPECT_THAT(b.get_object("d"), Succeeds());
  EXPECT_THAT(again.get_array("f"), Succeeds());
  EXPECT_EQ(unasked(again), (Names{"b.d.e = 3", "f.[0].g = 4"}));
  EXPECT_EQ(again.unasked()[0].where, "test.json: field 'b.d.e'");
  for (const auto& [key, value] : b.find("d")->members()) EXPECT_EQ(key, "e");
  EXPECT_EQ(unasked(again), (Names{"f.[0].g = 4"}));
  EXPECT_EQ(unasked(plain.watched()).size(), 4u);  // each copy for itself
}

TEST(JsonWatched, FromSeveralThreads) {
  std::string text = "{";
  for (int i = 0; i < 200; ++i) text += (i ? ", \"k" : "\"k") + std::to_string(i) + "\": " + std::to_string(i);
  const Json json = parsed(text + "}").watched();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&json, t] {
      for (int i = t; i < 190; i += 3) EXPECT_EQ(json.get_int("k" + std::to_string(i)).value(), i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(json.unasked().size(), 10u);
}

TEST(JsonWith, ReplacesOrAddsAMember) {
  const Json json = parsed(R"({"a": {"b": "x", "c": 2}})");
  const Json inner = *json.find("a");
  EXPECT_EQ(inner.with("b", 3).with("d", nullptr).dump(), R"({"b": 3, "c": 2, "d": null})");
  EXPECT_EQ(inner.dump(), R"({"b": "x", "c": 2})");
  EXPECT_EQ(inner.with("b", 3).where("b"), "test.json: field 'a.b'");
}

TEST(JsonDump, Numbers) {
  EXPECT_EQ(Json(6.0).dump(), "6.0");
  EXPECT_EQ(Json(0.1).dump(), "0.1");
  EXPECT_EQ(Json(1e30).dump(), "1e+30");
  EXPECT_EQ(Json(std::numeric_limits<std::int64_t>::min()).dump(), "-9223372036854775808");
  EXPECT_EQ(Json(std::numeric_limits<std::uint64_t>::max()).dump(), "18446744073709551616.0");
  const Json bad = Json::array({std::nan(""), kInfinity, -kInfinity});
  EXPECT_EQ(bad.dump(), "[null, null, null]");
  EXPECT_EQ(bad.dump({.non_finite = JsonDumpOptions::NonFinite::kPython}), "[NaN, Infinity, -Infinity]");
}

TEST(JsonDump, InvalidUtf8IsReplaced) {
  const std::string text = Json("a\xff\xe2\x82").dump();
  EXPECT_EQ(text, "\"a\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\"");
  EXPECT_THAT(Json::parse(text, "t"), Succeeds());
}

TEST(JsonDump, ReadsBackTheSame) {
  const char* text = R"({"b": [1, -2.5, "\u00e9\u0007", null, {"c": {"d": [[], {}]}}], "a": 1e-07})";
  const Json json = parsed(text);
  EXPECT_EQ(parsed(json.dump()).dump(), json.dump());
  EXPECT_EQ(parsed(json.dump({.indent = 4})).dump(), json.dump());
}

}  // namespace
}  // namespace cadre
