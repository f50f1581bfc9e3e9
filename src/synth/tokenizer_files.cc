#include "synth/tokenizer_files.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace cadre {
namespace {

constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kMost = std::int64_t{1} << 22;  // what a tokenizer.json may have

// The printable character that stands for a byte in byte-level vocabularies: itself where it is printable, otherwise
// one from U+0100 on, in the order of the bytes (GPT-2's table).
std::string character_of(int byte) {
  const auto printable = [](int b) { return (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 0x80) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
}

// The n-th made-up word, with the blank before it: syllables of a consonant and a vowel, two at least. Those of two are
// in a mixed order, so that neighbours do not look alike.
std::string word(std::int64_t n) {
  constexpr std::string_view kConsonants = "bdfghjklmnprstvz", kVowels = "aeiou";
  constexpr std::int64_t kSyllables = static_cast<std::int64_t>(kConsonants.size() * kVowels.size());
  constexpr std::int64_t kShort = kSyllables * kSyllables, kStep = 2741;  // without a common factor
  if (n < kShort) n = n * kStep % kShort;
  std::string text;
  int count = 0;
  for (; n > 0 || count < 2; n /= kSyllables, ++count) {
    const auto at = static_cast<std::size_t>(n % kSyllables);
    text.insert(0, {kConsonants[at / kVowels.size()], kVowels[at % kVowels.size()]});
  }
  return "\u0120" + text;  // the character of the blank
}

std::optional<std::int64_t> id_of(const Json& json, std::string_view key, std::int64_t vocab) {
  const Json* value = json.find(key);
  if (value == nullptr || !value->is_int()) return std::nullopt;
  const Result<std::int64_t> id = value->as_int(key, 0, vocab - 1);
  return id.ok() ? std::optional(*id) : std::nullopt;
}

constexpr const char* kChatTemplate =
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}";

}  // namespace

Result<std::vector<std::pair<std::string, std::string>>> make_tokenizer_files(const ModelConfig& config) {
  const std::int64_t vocab = config.vocab;
  if (vocab > kMost) {
    return error(Code::kLimitExceeded, config.json.where("vocab_size"), " is ", vocab, ", want at most ", kMost,
                 " for a tokenizer");
  }
  std::map<std::int64_t, std::string> special;
  std::vector<std::int64_t> ends;
  for (const std::int32_t id : config.eos_ids) {
    if (id >= vocab || special.contains(id)) continue;
    special.emplace(id, ends.empty() ? "<|eos|>" : "<|eos_" + std::to_string(id) + "|>");
    ends.push_back(id);
  }
  if (ends.empty()) {
    ends.push_back(vocab - 1);
    special.emplace(vocab - 1, "<|eos|>");
  }
  if (const auto id = id_of(config.json, "bos_token_id", vocab)) special.emplace(*id, "<|bos|>");
  if (const auto id = id_of(config.json, "pad_token_id", vocab)) special.emplace(*id, "<|pad|>");
  if (vocab < kBytes + static_cast<std::int64_t>(special.size())) {
    return error(Code::kInvalidArgument, config.json.where("vocab_size"), " is ", vocab, ", want at least ",
                 kBytes + static_cast<std::int64_t>(special.size()), " for a tokenizer of bytes and ", special.size(),
                 " special tokens");
  }

  std::vector<Json::Member> vocabulary;
  std::vector<Json> added;
  int byte = 0;
  std::int64_t words = 0;
  for (std::int64_t id = 0; id < vocab; ++id) {
    if (const auto at = special.find(id); at != special.end()) {
      added.push_back(Json::object({{"id", id},
                                    {"content", at->second},
                                    {"single_word", false},
                                    {"lstrip", false},
                                    {"rstrip", false},
                                    {"normalized", false},
                                    {"special", true}}));
    } else {
      vocabulary.emplace_back(byte < kBytes ? character_of(byte++) : word(words++), id);
    }
  }
  const Json bytes =
      Json::object({{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", true}});
  const Json tokenizer = Json::object({{"version", "1.0"},
                                       {"truncation", nullptr},
                                       {"padding", nullptr},
                                       {"added_tokens", Json::array(std::move(added))},
                                       {"normalizer", nullptr},
                                       {"pre_tokenizer", bytes},
                                       {"post_processor", nullptr},
                                       {"decoder", bytes},
                                       {"model", Json::object({{"type", "BPE"},
                                                               {"dropout", nullptr},
                                                               {"unk_token", nullptr},
                                                               {"continuing_subword_prefix", nullptr},
                                                               {"end_of_word_suffix", nullptr},
                                                               {"fuse_unk", false},
                                                               {"byte_fallback", false},
                                                               {"vocab", Json::object(std::move(vocabulary))},
                                                               {"merges", Json::array(std::vector<Json>{})}})}});
  const Json tokenizer_config = Json::object({{"tokenizer_class", "PreTrainedTokenizerFast"},
                                              {"clean_up_tokenization_spaces", false},
                                              {"eos_token", special.at(ends.front())},
                                              {"model_max_length", config.max_context},
                                              {"chat_template", kChatTemplate}});
  const Json generation = Json::object({{"eos_token_id", Json::array(ends)}});
  const JsonDumpOptions pretty{.indent = 2};
  return std::vector<std::pair<std::string, std::string>>{
      {"tokenizer.json", tokenizer.dump() + "\n"},
      {"tokenizer_config.json", tokenizer_config.dump(pretty) + "\n"},
      {"generation_config.json", generation.dump(pretty) + "\n"}};
}

}  // namespace cadre
