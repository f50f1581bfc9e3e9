#include "server/load/prompts.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/result.h"

namespace cadre::server {
namespace {

constexpr std::size_t kMaxFileBytes = 256 << 20;
constexpr int kMaxTokens = 1 << 24;

constexpr const char* kWords[] = {
    "the",  "of",    "and",    "a",     "to",    "in",    "is",     "you",   "that",   "it",    "he",    "was",
    "for",  "on",    "are",    "as",    "with",  "his",   "they",   "at",    "be",     "this",  "have",  "from",
    "or",   "one",   "had",    "by",    "word",  "but",   "not",    "what",  "all",    "were",  "we",    "when",
    "your", "can",   "said",   "there", "use",   "an",    "each",   "which", "she",    "do",    "how",   "their",
    "if",   "will",  "up",     "other", "about", "out",   "many",   "then",  "them",   "these", "so",    "some",
    "her",  "would", "make",   "like",  "him",   "into",  "time",   "has",   "look",   "two",   "more",  "write",
    "go",   "see",   "number", "no",    "way",   "could", "people", "my",    "than",   "first", "water", "been",
    "call", "who",   "oil",    "its",   "now",   "find",  "long",   "down",  "day",    "did",   "get",   "come",
    "made", "may",   "part",   "over",  "new",   "sound", "take",   "only",  "little", "work",  "know",  "place",
    "year", "live",  "me",     "back",  "give",  "most",  "very",   "after", "thing",  "our",   "just",  "name"};

}  // namespace

Result<LoadPrompt> parse_prompt(std::string_view line, const std::string& source, bool chat) {
  JsonParseOptions options;
  CADRE_ASSIGN(const Json json, Json::parse(line, source, options));
  LoadPrompt prompt;
  if (json.is_string()) {
    CADRE_ASSIGN(prompt.text, json.as_string(source));
    return prompt;
  }
  if (!json.is_object()) {
    return error(Code::kInvalidFile, source, ": got ", describe(json),
                 ", want a string or an object with prompt or messages");
  }
  if (json.has("messages") == json.has("prompt")) {
    return error(Code::kInvalidFile, source, ": want one of prompt and messages");
  }
  if (json.has("messages")) {
    if (!chat) return error(Code::kInvalidFile, source, ": messages are for --endpoint chat, want prompt");
    prompt.messages = *json.find("messages");
    if (prompt.messages.items().empty()) {
      return error(Code::kInvalidFile, source, ": messages is ", describe(prompt.messages),
                   ", want a list of messages");
    }
  } else {
    CADRE_ASSIGN(prompt.text, json.get_string("prompt"));
  }
  CADRE_ASSIGN(const std::int64_t tokens, json.get_int_or("max_tokens", 0, 0, kMaxTokens));
  prompt.max_tokens = static_cast<int>(tokens);
  return prompt;
}

Result<std::vector<LoadPrompt>> read_prompts(const std::string& path, bool chat) {
  std::error_code failure;
  if (!std::filesystem::exists(path, failure)) return error(Code::kNotFound, "there is no file '", path, "'");
  if (!std::filesystem::is_regular_file(path, failure)) {
    return error(Code::kInvalidArgument, "'", path, "' is no file");
  }
  if (const auto size = std::filesystem::file_size(path, failure); failure || size > kMaxFileBytes) {
    return error(Code::kLimitExceeded, "'", path, "' is larger than ", kMaxFileBytes, " bytes");
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return error(Code::kNotFound, "'", path, "' cannot be read");
  std::vector<LoadPrompt> prompts;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    CADRE_ASSIGN(LoadPrompt prompt, parse_prompt(line, path + ":" + std::to_string(number), chat));
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) return error(Code::kInvalidFile, "'", path, "' holds no prompts, want JSON lines");
  return prompts;
}

std::string random_words(int count, LoadRandom& random) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    if (i > 0) text += ' ';
    text += kWords[random.below(std::size(kWords))];
  }
  return text;
}

std::string request_body(const LoadOptions& options, const std::string& model, const LoadPrompt& prompt,
                         int max_tokens) {
  std::vector<Json::Member> members = {{"model", model}};
  if (!options.chat) {
    members.emplace_back("prompt", prompt.text);
  } else if (prompt.messages.is_null()) {
    members.emplace_back("messages",
                         Json::array(std::vector<Json>{Json::object({{"role", "user"}, {"content", prompt.text}})}));
  } else {
    members.emplace_back("messages", prompt.messages);
  }
  members.emplace_back("max_tokens", max_tokens);
  members.emplace_back("stream", true);
  members.emplace_back("stream_options", Json::object({{"include_usage", true}}));
  if (options.temperature >= 0) members.emplace_back("temperature", options.temperature);
  if (options.ignore_eos) members.emplace_back("ignore_eos", true);
  return Json::object(std::move(members)).dump();
}

}  // namespace cadre::server
