#include "text/tokenizer/normalizer.h"

#include "base/result.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

constexpr std::size_t kMaxSteps = 64;

class UnicodeForm : public NormalizerStep {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    return normalize(text, form_);
  }

 private:
  NormalForm form_;
};

class Prepend : public NormalizerStep {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    return text.empty() ? std::string() : prefix_ + std::string(text);
  }

 private:
  std::string prefix_;
};

class Replace : public NormalizerStep {
 public:
  Replace(Regex regex, std::string content) : regex_(std::move(regex)), content_(std::move(content)) {}
  Result<std::string> apply(std::string_view text, std::size_t limit, RegexScratch& scratch) const override {
    return replace_all(regex_, text, content_, limit, scratch);
  }

 private:
  Regex regex_;
  std::string content_;
};

class Lowercase : public NormalizerStep {
 public:
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    return lowercase(text);
  }
};

class Strip : public NormalizerStep {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    std::size_t begin = 0;
    std::size_t end = text.size();
    for (std::size_t pos = 0; left_ && begin < end && is_whitespace(next_code_point(text, pos));) begin = pos;
    for (std::size_t pos = end; right_ && begin < end && is_whitespace(previous_code_point(text, pos));) end = pos;
    return std::string(text.substr(begin, end - begin));
  }

 private:
  bool left_;
  bool right_;
};

class StripAccents : public NormalizerStep {
 public:
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    std::string out;
    for (std::size_t pos = 0; pos < text.size();) {
      const std::size_t begin = pos;
      if (!is_mark(next_code_point(text, pos))) out += text.substr(begin, pos - begin);
    }
    return out;
  }
};

class ByteAlphabet : public NormalizerStep {
 public:
  Result<std::string> apply(std::string_view text, std::size_t, RegexScratch&) const override {
    std::string out;
    append_byte_alphabet(text, out);
    return out;
  }
};

}  // namespace

Result<Normalizer> Normalizer::from_json(const JsonValue* json) {
  Normalizer normalizer;
  if (json != nullptr) CADRE_TRY(normalizer.add(*json));
  return normalizer;
}

Status Normalizer::add(const JsonValue& json) {
  CADRE_ASSIGN(const std::string_view type, json.type());
  if (type == "Sequence") {
    CADRE_ASSIGN(const auto* steps, json.need_array("normalizers"));
    for (const JsonValue& step : *steps) CADRE_TRY(add(step));
    return {};
  }
  if (steps_.size() >= kMaxSteps)
    return error(Code::kLimitExceeded, json.path, ": more than ", kMaxSteps, " normalizers");
  if (type == "NFC") {
    steps_.push_back(std::make_unique<UnicodeForm>(NormalForm::kC));
  } else if (type == "NFD") {
    steps_.push_back(std::make_unique<UnicodeForm>(NormalForm::kD));
  } else if (type == "NFKC") {
    steps_.push_back(std::make_unique<UnicodeForm>(NormalForm::kKc));
  } else if (type == "NFKD") {
    steps_.push_back(std::make_unique<UnicodeForm>(NormalForm::kKd));
  } else if (type == "Prepend") {
    CADRE_ASSIGN(const std::string_view prefix, json.need_string("prepend"));
    steps_.push_back(std::make_unique<Prepend>(std::string(prefix)));
  } else if (type == "Replace") {
    CADRE_ASSIGN(Regex regex, pattern_from_json(json));
    CADRE_ASSIGN(const std::string_view content, json.need_string("content"));
    steps_.push_back(std::make_unique<Replace>(std::move(regex), std::string(content)));
  } else if (type == "Lowercase") {
    steps_.push_back(std::make_unique<Lowercase>());
  } else if (type == "Strip") {
    CADRE_ASSIGN(const bool left, json.bool_or("strip_left", true));
    CADRE_ASSIGN(const bool right, json.bool_or("strip_right", true));
    steps_.push_back(std::make_unique<Strip>(left, right));
  } else if (type == "StripAccents") {
    steps_.push_back(std::make_unique<StripAccents>());
  } else if (type == "ByteLevel") {
    steps_.push_back(std::make_unique<ByteAlphabet>());
  } else {
    return error(
        Code::kUnsupported, json.path, ": normalizer type '", type.substr(0, 100),
        "' is not supported; supported are Sequence, NFC, NFD, NFKC, NFKD, Prepend, Replace, Lowercase, Strip, "
        "StripAccents, ByteLevel");
  }
  return {};
}

Result<std::string> Normalizer::apply(std::string_view text, RegexScratch& scratch) const {
  const std::size_t limit = grown_limit(text.size());
  std::string out(text);
  for (const auto& step : steps_) {
    CADRE_ASSIGN(out, step->apply(out, limit, scratch));
    if (out.size() > limit) {
      return error(Code::kLimitExceeded, "normalizing makes a text of ", text.size(), " bytes ", out.size(),
                   " bytes long, the limit is ", limit);
    }
  }
  return out;
}

}  // namespace cadre::text
