// Text to token ids and back, as a Hugging Face tokenizer.json describes it: added tokens, normalizer, pre-tokenizer,
// byte-pair model, post-processor, decoder. What a file asks for and this cannot do is refused by name when loading.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace cadre {

// Safe to use from several threads at once.
class Tokenizer {
 public:
  // `source_name` (a path, usually) begins every error message.
  static Result<std::unique_ptr<Tokenizer>> from_json(std::string_view json, std::string source_name);
  // A tokenizer.json, or a folder that holds one.
  static Result<std::unique_ptr<Tokenizer>> load(const std::string& dir_or_file);

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Bytes that are not UTF-8 are read as U+FFFD. `add_special_tokens` runs the post-processor (bos, eos).
  Result<std::vector<std::int32_t>> encode(std::string_view utf8, bool add_special_tokens) const;
  // Ids that no token has are left out.
  std::string decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const;

  std::optional<std::int32_t> token_to_id(std::string_view token) const;
  // The token as the file spells it; nothing for an id that no token has.
  std::optional<std::string> id_to_token(std::int32_t id) const;
  // The bytes that the token stands for inside a text, which need not be whole characters: " th", half of an emoji.
  // Empty for an id that no token has.
  std::string token_bytes(std::int32_t id) const;
  std::size_t longest_token() const;  // bytes, as spelled; looks at the whole vocabulary
  bool is_special(std::int32_t id) const;
  // One more than the largest id.
  std::size_t vocab_size() const;

 private:
  friend class StreamDecoder;
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Decodes token by token. What push() and flush() return, joined, is what decode() gives for all ids at once. No call
// returns half a character, or text that a later token could still change. The tokenizer must outlive it.
class StreamDecoder {
 public:
  StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens);
  ~StreamDecoder();
  StreamDecoder(StreamDecoder&&) noexcept;
  StreamDecoder& operator=(StreamDecoder&&) noexcept;

  std::string push(std::int32_t id);
  // What was held back. The next push() starts a new text.
  std::string flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace cadre
