#include "text/tokenizer/decoder.h"

#include <algorithm>
#include <tuple>

#include "base/result.h"
#include "text/tokenizer/decoder_stages.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

constexpr std::size_t kMaxStages = 64;
constexpr std::size_t kMaxGrowth = 64;

template <class Running, class... Config>
class Stage : public DecoderStage {
 public:
  explicit Stage(Config... config) : config_(std::move(config)...) {}
  std::unique_ptr<TokenSink> make(TokenSink& next) const override {
    return std::apply([&](const auto&... config) { return std::make_unique<Running>(next, config...); }, config_);
  }

 private:
  std::tuple<Config...> config_;
};

Result<std::string_view> one_character(const JsonValue& json, std::string_view key) {
  CADRE_ASSIGN(const std::string_view text, json.need_string(key));
  if (text.empty() || text.size() != utf8_length(text[0])) {
    return error(Code::kInvalidFile, json.path, ".", key, ": '", text.substr(0, 100), "' is not one character");
  }
  return text;
}

}  // namespace

Result<Decoder> Decoder::from_json(const JsonValue* json) {
  Decoder decoder;
  if (json == nullptr) {
    decoder.stages_.push_back(std::make_unique<Stage<JoinWithSpaces>>());
  } else {
    CADRE_TRY(decoder.add(*json));
  }
  return decoder;
}

Status Decoder::add_replace(const JsonValue& json) {
  CADRE_ASSIGN(const JsonValue* pattern, json.need("pattern"));
  if (pattern->get("Regex") != nullptr) {
    return error(Code::kUnsupported, pattern->path, ": a regular expression in a decoder is not supported");
  }
  CADRE_ASSIGN(const std::string_view from, pattern->need_string("String"));
  CADRE_ASSIGN(const std::string_view to, json.need_string("content"));
  if (from.empty()) return error(Code::kUnsupported, pattern->path, ": an empty text as a pattern is not supported");
  growth_ *= std::max<std::size_t>(1, (to.size() + from.size() - 1) / from.size());
  if (growth_ > kMaxGrowth) {
    return error(Code::kLimitExceeded, json.path, ": makes a text more than ", kMaxGrowth, " times as long");
  }
  stages_.push_back(std::make_unique<Stage<ReplaceText, std::string, std::string>>(std::string(from), std::string(to)));
  return {};
}

Status Decoder::add(const JsonValue& json) {
  CADRE_ASSIGN(const std::string_view type, json.type());
  if (type == "Sequence") {
    CADRE_ASSIGN(const auto* parts, json.need_array("decoders"));
    for (const JsonValue& part : *parts) CADRE_TRY(add(part));
    return {};
  }
  if (stages_.size() >= kMaxStages)
    return error(Code::kLimitExceeded, json.path, ": more than ", kMaxStages, " decoders");
  if (type == "ByteLevel") {
    byte_level_ = true;
    stages_.push_back(std::make_unique<Stage<BytesOfAlphabet>>());
  } else if (type == "Replace") {
    return add_replace(json);
  } else if (type == "ByteFallback") {
    stages_.push_back(std::make_unique<Stage<ByteTokens>>());
  } else if (type == "Fuse") {
    stages_.push_back(std::make_unique<Stage<Fuse>>());
  } else if (type == "Strip") {
    CADRE_ASSIGN(const std::string_view content, one_character(json, "content"));
    CADRE_ASSIGN(const std::int64_t start, json.integer_or("start", 0));
    CADRE_ASSIGN(const std::int64_t stop, json.integer_or("stop", 0));
    if (start < 0 || stop < 0) return error(Code::kInvalidFile, json.path, ": 'start' or 'stop' is negative");
    stages_.push_back(
        std::make_unique<Stage<StripEnds, std::string, std::int64_t, std::int64_t>>(std::string(content), start, stop));
  } else if (type == "Metaspace") {
    CADRE_ASSIGN(const std::string_view mark, one_character(json, "replacement"));
    CADRE_ASSIGN(bool prefix, json.bool_or("add_prefix_space", true));
    if (json.get("prepend_scheme") != nullptr) {
      CADRE_ASSIGN(const std::string_view scheme, json.need_string("prepend_scheme"));
      if (scheme != "always" && scheme != "first" && scheme != "never") {
        return error(Code::kUnsupported, json.path, ".prepend_scheme: '", scheme.substr(0, 100),
                     "' is not supported; supported are always, first, never");
      }
      prefix = scheme != "never";
    }
    stages_.push_back(std::make_unique<Stage<SpacesOfMetaspace, std::string, bool>>(std::string(mark), prefix));
  } else {
    return error(
        Code::kUnsupported, json.path, ": decoder type '", type.substr(0, 100),
        "' is not supported; supported are Sequence, ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace");
  }
  return {};
}

DecoderChain Decoder::start() const {
  DecoderChain chain;
  chain.first_ = chain.out_.get();
  for (auto stage = stages_.rbegin(); stage != stages_.rend(); ++stage) {
    chain.stages_.push_back((*stage)->make(*chain.first_));
    chain.first_ = chain.stages_.back().get();
  }
  return chain;
}

}  // namespace cadre::text
