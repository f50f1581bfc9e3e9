// A tokenizer.json of any size and a text for it, made from a seed: for tests and benchmarks of speed.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

namespace cadre::synthetic {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  std::uint32_t below(std::uint32_t bound) {
    state_ = state_ * 6364136223846793005ULL + 1442695040888963407ULL;
    return static_cast<std::uint32_t>((state_ >> 33) % bound);
  }

 private:
  std::uint64_t state_;
};

// Words with the lengths and the skew of English: a few short ones make up most of a text.
inline std::vector<std::string> words(std::size_t count) {
  Random random(7);
  static constexpr const char* kParts[] = {"th", "e",  "an", "d",  "o",  "f",  "to", "in", "is", "he", "a", "re",
                                           "on", "wh", "at", "er", "st", "ou", "ll", "ea", "m",  "y",  "l", "or",
                                           "s",  "t",  "n",  "r",  "en", "ch", "g",  "h",  "p",  "w",  "b", "v"};
  std::vector<std::string> out;
  std::unordered_set<std::string> seen;
  while (out.size() < count) {
    std::string word;
    for (std::uint32_t n = 1 + random.below(2) + (out.size() > 200 ? random.below(4) : 0); n > 0; --n) {
      word += kParts[random.below(36)];
    }
    if (seen.insert(word).second) out.push_back(word);
  }
  return out;
}

// Verse: lines of about eight words, names, punctuation.
inline std::string text(std::size_t bytes) {
  const std::vector<std::string> all = words(25'000);
  Random random(11);
  std::string out;
  out.reserve(bytes + 100);
  while (out.size() < bytes) {
    for (std::uint32_t n = 6 + random.below(5); n > 0; --n) {
      // A product of uniform numbers prefers the first words, much as Zipf's law does.
      const std::uint32_t a = random.below(1000);
      const std::uint32_t b = random.below(1000);
      std::string word = all[static_cast<std::size_t>(a * a / 1000 * b / 1000 * b / 1000) * 24];
      if (random.below(12) == 0) word[0] = static_cast<char>(word[0] - 'a' + 'A');
      out += word;
      if (random.below(12) == 0) out += "'s";
      if (n > 1) out += random.below(9) == 0 ? ", " : " ";
    }
    out += random.below(3) == 0 ? ".\n\n" : random.below(2) == 0 ? ";\n" : "\n";
  }
  out.resize(bytes);
  return out;
}

// Byte-level BPE with `tokens` tokens and a merge for all but the bytes, split as o200k does.
inline std::string tokenizer_json(std::size_t tokens) {
  std::vector<std::string> vocab;
  std::unordered_set<std::string> seen;
  const auto add = [&](const std::string& token) {
    const bool fresh = seen.insert(token).second;
    if (fresh) vocab.push_back(token);
    return fresh;
  };
  const auto utf8 = [](std::uint32_t point) {
    if (point < 0x80) return std::string(1, static_cast<char>(point));
    return std::string{static_cast<char>(0xC0 | point >> 6), static_cast<char>(0x80 | (point & 0x3F))};
  };
  std::uint32_t next = 0x100;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
    add(utf8(printable ? byte : next++));
  }
  std::string merges;
  const auto merge = [&](const std::string& left, const std::string& right) {
    if (!add(left + right)) return;
    merges += (merges.empty() ? "[\"" : ",[\"") + left + "\",\"" + right + "\"]";
  };
  // Words grown from their front a letter at a time. Those after a space come first, so that nothing inside a word
  // merges before the word does.
  const std::string space = utf8(0x120);
  for (const bool after_space : {true, false}) {
    const std::size_t most = after_space ? tokens / 4 * 3 : tokens;
    for (std::size_t count = 25'000; vocab.size() < most; count *= 2) {
      for (const std::string& word : words(count)) {
        std::string left = after_space ? space : word.substr(0, 1);
        for (std::size_t i = after_space ? 0 : 1; i < word.size() && vocab.size() < most; ++i) {
          merge(left, word.substr(i, 1));
          left += word[i];
        }
      }
    }
  }
  std::string out =
      R"({"version":"1.0","truncation":null,"padding":null,"added_tokens":[{"id":)" + std::to_string(vocab.size()) +
      R"(,"content":"<|endoftext|>","single_word":false,"lstrip":false,"rstrip":false,)"
      R"("normalized":false,"special":true}],"normalizer":null,"pre_tokenizer":{"type":"Sequence",)"
      R"("pretokenizers":[{"type":"Split","pattern":{"Regex":"[^\\r\\n\\p{L}\\p{N}]?)"
      R"([\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
      R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*)"
      R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|)"
      R"(\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)"
      R"({"type":"ByteLevel","add_prefix_space":false,"trim_offsets":true,"use_regex":false}]},)"
      R"("post_processor":null,"decoder":{"type":"ByteLevel","add_prefix_space":true,)"
      R"("trim_offsets":true,"use_regex":true},"model":{"type":"BPE","dropout":null,"unk_token":null,)"
      R"("continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,)"
      R"("byte_fallback":false,"ignore_merges":false,"vocab":{)";
  for (std::size_t id = 0; id < vocab.size(); ++id) {
    std::string escaped;
    for (const char c : vocab[id]) {
      if (c == '"' || c == '\\') escaped += '\\';
      escaped += c;
    }
    out += (id == 0 ? "\"" : ",\"") + escaped + "\":" + std::to_string(id);
  }
  out += "},\"merges\":[" + merges + "]}}";
  return out;
}

}  // namespace cadre::synthetic
