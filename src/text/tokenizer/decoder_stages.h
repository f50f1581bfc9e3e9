// The stages of a decoder chain. Each says when it can let text go.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "text/tokenizer/decoder.h"

namespace cadre::text {

class RunningStage : public TokenSink {
 public:
  explicit RunningStage(TokenSink& next) : next_(next) {}
  void finish() override { next_.finish(); }

 protected:
  TokenSink& next_;
};

// A stage that looks at whole tokens: token() is called with each.
class WholeTokens : public RunningStage {
 public:
  using RunningStage::RunningStage;
  void text(std::string_view part) override { token_ += part; }
  void end() override {
    token(token_);
    token_.clear();
  }

 protected:
  virtual void token(std::string_view token) = 0;
  void emit(std::string_view token) {
    next_.text(token);
    next_.end();
  }

 private:
  std::string token_;
};

// No decoder in the file: tokens joined with a space.
class JoinWithSpaces : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;

 private:
  void token(std::string_view token) override;
  bool first_ = true;
};

// All tokens become one. Passes text through at once.
class Fuse : public RunningStage {
 public:
  using RunningStage::RunningStage;
  void text(std::string_view part) override { next_.text(part); }
  void end() override {}
  void finish() override;
};

// ByteLevel: characters of the byte alphabet to bytes, and all bytes to one token. Holds back an unfinished character.
class BytesOfAlphabet : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void finish() override;

 private:
  void token(std::string_view token) override;
  std::string bytes_;
};

// ByteFallback: a run of tokens <0x00> to <0xFF> becomes text if the run as a whole is UTF-8, and one U+FFFD for each
// byte if not, so nothing can go before the run ends.
class ByteTokens : public WholeTokens {
 public:
  using WholeTokens::WholeTokens;
  void finish() override;

 private:
  void token(std::string_view token) override;
  void end_run();
  std::string run_;
};

// Replace within each token.
class ReplaceText : public WholeTokens {
 public:
  ReplaceText(TokenSink& next, std::string from, std::string to)
      : WholeTokens(next), from_(std::move(from)), to_(std::move(to)) {}

 private:
  void token(std::string_view token) override;
  std::string from_;
  std::string to_;
};

// Strip: at most `start` times `content` from the front of each token and `stop` times from its end. Holds back content
// that may be the end.
class StripEnds : public RunningStage {
 public:
  StripEnds(TokenSink& next, std::string content, std::int64_t start, std::int64_t stop)
      : RunningStage(next), content_(std::move(content)), start_(start), stop_(stop), to_strip_(start) {}
  void text(std::string_view part) override;
  void end() override;

 private:
  std::string content_;
  std::int64_t start_;
  std::int64_t stop_;
  std::int64_t to_strip_;
  std::int64_t held_ = 0;
};

// Metaspace: the mark becomes a space; in the first token it goes, where the pre-tokenizer puts one there.
class SpacesOfMetaspace : public RunningStage {
 public:
  SpacesOfMetaspace(TokenSink& next, std::string mark, bool prefix)
      : RunningStage(next), mark_(std::move(mark)), drop_(prefix) {}
  void text(std::string_view part) override;
  void end() override;

 private:
  std::string mark_;
  bool drop_;
};

}  // namespace cadre::text
