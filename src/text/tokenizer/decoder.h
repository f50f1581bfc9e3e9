// The decoder of tokenizer.json as a chain of stages that take tokens one at a time and let go of text as soon as no
// later token can change it. Decoding a whole sequence runs the same chain, so streaming cannot differ from it.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "text/tokenizer/json_value.h"

namespace cadre::text {

// Receives the text of tokens: text() any number of times with whole characters, then end(), for each token; finish()
// after the last.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void text(std::string_view part) = 0;
  virtual void end() = 0;
  virtual void finish() = 0;
};

// One stage of a file's decoder, as configured; makes the running stage.
class DecoderStage {
 public:
  virtual ~DecoderStage() = default;
  virtual std::unique_ptr<TokenSink> make(TokenSink& next) const = 0;
};

// A running chain.
class DecoderChain {
 public:
  void push(std::string_view token) {
    first_->text(token);
    first_->end();
  }
  void finish() { first_->finish(); }
  // What has come out since the last take().
  std::string take() { return std::exchange(out_->text_, {}); }

 private:
  friend class Decoder;
  struct Output : TokenSink {
    void text(std::string_view part) override { text_ += part; }
    void end() override {}
    void finish() override {}
    std::string text_;
  };
  std::unique_ptr<Output> out_ = std::make_unique<Output>();
  std::vector<std::unique_ptr<TokenSink>> stages_;
  TokenSink* first_ = nullptr;
};

class Decoder {
 public:
  // `json` may be null: tokens are joined with spaces.
  static Result<Decoder> from_json(const JsonValue* json);
  DecoderChain start() const;
  // Whether tokens are spelled in the byte alphabet.
  bool byte_level() const { return byte_level_; }

 private:
  Status add(const JsonValue& json);
  Status add_replace(const JsonValue& json);
  std::vector<std::unique_ptr<DecoderStage>> stages_;
  bool byte_level_ = false;
  std::size_t growth_ = 1;  // how many times its length all Replace stages can make of a text
};

}  // namespace cadre::text
