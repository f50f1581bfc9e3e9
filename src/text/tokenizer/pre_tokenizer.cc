#include "text/tokenizer/pre_tokenizer.h"

#include "base/result.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/split.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

constexpr std::size_t kMaxSteps = 64;

// The split that ByteLevel does by itself, as GPT-2 had it.
constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// Words, and runs of what is neither word nor space. A word here has no superscripts or fractions, but has joiners.
constexpr std::string_view kWordsPattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}\s]+)";

std::string_view view(const Pieces& pieces, Span span) { return pieces.text.substr(span.begin, span.end - span.begin); }

class Split : public PreTokenizerStep {
 public:
  Split(Regex regex, Behavior behavior, bool invert) : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}
  Status apply(Pieces& pieces, SplitScratch& scratch) const override {
    return split_pieces(pieces, behavior_, invert_, scratch, [&](Span piece, std::vector<Span>& matches) {
      return regex_.find_all(view(pieces, piece), piece.begin, scratch.regex, matches);
    });
  }

 private:
  Regex regex_;
  Behavior behavior_;
  bool invert_;
};

// Splits at single characters that a predicate picks.
class SplitCharacters : public PreTokenizerStep {
 public:
  using Predicate = bool (*)(std::uint32_t);
  SplitCharacters(Predicate matches, Behavior behavior) : matches_(matches), behavior_(behavior) {}
  Status apply(Pieces& pieces, SplitScratch& scratch) const override {
    return split_pieces(pieces, behavior_, false, scratch, [&](Span piece, std::vector<Span>& matches) {
      for (std::size_t pos = piece.begin; pos < piece.end;) {
        const auto begin = static_cast<std::uint32_t>(pos);
        if (matches_(next_code_point(pieces.text, pos))) matches.push_back({begin, static_cast<std::uint32_t>(pos)});
      }
      return Status();
    });
  }

 private:
  Predicate matches_;
  Behavior behavior_;
};

// Rewrites every piece: write(piece, is_first, out) appends the new text of a piece.
template <class Write>
Status rewrite(Pieces& pieces, Write write) {
  if (!pieces.spans.empty() && pieces.spans[0].begin != 0) pieces.at_start = false;
  std::string text;
  text.reserve(pieces.text.size() + pieces.text.size() / 2);
  for (std::size_t i = 0; i < pieces.spans.size(); ++i) {
    const auto begin = static_cast<std::uint32_t>(text.size());
    write(view(pieces, pieces.spans[i]), i == 0, text);
    if (text.size() > pieces.limit) {
      return error(Code::kLimitExceeded, "pre-tokenizing makes a text longer than ", pieces.limit, " bytes");
    }
    pieces.spans[i] = {begin, static_cast<std::uint32_t>(text.size())};
  }
  pieces.replace_text(std::move(text));
  return {};
}

class AddPrefixSpace : public PreTokenizerStep {
 public:
  Status apply(Pieces& pieces, SplitScratch&) const override {
    return rewrite(pieces, [](std::string_view piece, bool, std::string& out) {
      if (!piece.starts_with(' ')) out += ' ';
      out += piece;
    });
  }
};

class ByteAlphabet : public PreTokenizerStep {
 public:
  Status apply(Pieces& pieces, SplitScratch&) const override {
    return rewrite(pieces, [](std::string_view piece, bool, std::string& out) { append_byte_alphabet(piece, out); });
  }
};

enum class Prepend : std::uint8_t { kAlways, kFirst, kNever };

class MetaspaceMark : public PreTokenizerStep {
 public:
  MetaspaceMark(std::string mark, Prepend prepend) : mark_(std::move(mark)), prepend_(prepend) {}
  Status apply(Pieces& pieces, SplitScratch&) const override {
    return rewrite(pieces, [&](std::string_view piece, bool first, std::string& out) {
      const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && first && pieces.at_start);
      if (wanted && !piece.starts_with(' ') && !piece.starts_with(mark_)) out += mark_;
      for (const char c : piece) {
        if (c == ' ') {
          out += mark_;
        } else {
          out += c;
        }
      }
    });
  }

 private:
  std::string mark_;
  Prepend prepend_;
};

using Steps = std::vector<std::unique_ptr<PreTokenizerStep>>;

Status add_split(const JsonValue& json, Steps& steps) {
  CADRE_ASSIGN(Regex regex, pattern_from_json(json));
  CADRE_ASSIGN(const std::string_view name, json.need_string("behavior"));
  const auto behavior = behavior_from_name(name);
  if (!behavior) {
    return error(Code::kUnsupported, json.path, ".behavior: '", name,
                 "' is not supported; supported are Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
  }
  CADRE_ASSIGN(const bool invert, json.bool_or("invert", false));
  steps.push_back(std::make_unique<Split>(std::move(regex), *behavior, invert));
  return {};
}

Status add_byte_level(const JsonValue& json, Steps& steps) {
  CADRE_ASSIGN(const bool prefix, json.bool_or("add_prefix_space", true));
  CADRE_ASSIGN(const bool use_regex, json.bool_or("use_regex", true));
  CADRE_TRY(json.bool_or("trim_offsets", true).status());
  if (prefix) steps.push_back(std::make_unique<AddPrefixSpace>());
  if (use_regex) {
    CADRE_ASSIGN(Regex regex, Regex::compile(kGpt2Pattern));
    steps.push_back(std::make_unique<Split>(std::move(regex), Behavior::kIsolated, false));
  }
  steps.push_back(std::make_unique<ByteAlphabet>());
  return {};
}

Status add_metaspace(const JsonValue& json, Steps& steps) {
  CADRE_ASSIGN(const std::string_view mark, json.need_string("replacement"));
  if (mark.empty() || mark.size() != utf8_length(mark[0])) {
    return error(Code::kInvalidFile, json.path, ".replacement: '", mark.substr(0, 100), "' is not one character");
  }
  // Older files say add_prefix_space instead of prepend_scheme.
  CADRE_ASSIGN(const bool prefix, json.bool_or("add_prefix_space", true));
  std::string_view scheme = prefix ? "always" : "never";
  if (json.get("prepend_scheme") != nullptr) {
    CADRE_ASSIGN(scheme, json.need_string("prepend_scheme"));
  }
  Prepend prepend = Prepend::kNever;
  if (scheme == "always") {
    prepend = Prepend::kAlways;
  } else if (scheme == "first") {
    prepend = Prepend::kFirst;
  } else if (scheme != "never") {
    return error(Code::kUnsupported, json.path, ".prepend_scheme: '", scheme.substr(0, 100),
                 "' is not supported; supported are always, first, never");
  }
  CADRE_ASSIGN(const bool split, json.bool_or("split", true));
  CADRE_ASSIGN(Regex regex, Regex::literal(mark));
  steps.push_back(std::make_unique<MetaspaceMark>(std::string(mark), prepend));
  if (split) steps.push_back(std::make_unique<Split>(std::move(regex), Behavior::kMergedWithNext, false));
  return {};
}

}  // namespace

Result<PreTokenizer> PreTokenizer::from_json(const JsonValue* json) {
  PreTokenizer pre_tokenizer;
  if (json != nullptr) CADRE_TRY(pre_tokenizer.add(*json));
  return pre_tokenizer;
}

Status PreTokenizer::add(const JsonValue& json) {
  CADRE_ASSIGN(const std::string_view type, json.type());
  if (type == "Sequence") {
    CADRE_ASSIGN(const auto* steps, json.need_array("pretokenizers"));
    for (const JsonValue& step : *steps) CADRE_TRY(add(step));
    return {};
  }
  if (steps_.size() >= kMaxSteps) {
    return error(Code::kLimitExceeded, json.path, ": more than ", kMaxSteps, " pre-tokenizers");
  }
  if (type == "Split") return add_split(json, steps_);
  if (type == "ByteLevel") return add_byte_level(json, steps_);
  if (type == "Metaspace") return add_metaspace(json, steps_);
  if (type == "Digits") {
    CADRE_ASSIGN(const bool single, json.bool_or("individual_digits", false));
    steps_.push_back(
        std::make_unique<SplitCharacters>(is_numeric, single ? Behavior::kIsolated : Behavior::kContiguous));
  } else if (type == "Whitespace") {
    CADRE_ASSIGN(Regex regex, Regex::compile(kWordsPattern));
    steps_.push_back(std::make_unique<Split>(std::move(regex), Behavior::kRemoved, true));
  } else if (type == "WhitespaceSplit") {
    steps_.push_back(std::make_unique<SplitCharacters>(is_whitespace, Behavior::kRemoved));
  } else if (type == "Punctuation") {
    std::string_view name = "Isolated";
    if (json.get("behavior") != nullptr) {
      CADRE_ASSIGN(name, json.need_string("behavior"));
    }
    const auto behavior = behavior_from_name(name);
    if (!behavior)
      return error(Code::kUnsupported, json.path, ".behavior: '", name.substr(0, 100), "' is not supported");
    steps_.push_back(std::make_unique<SplitCharacters>(is_punctuation, *behavior));
  } else if (type == "BertPreTokenizer") {
    steps_.push_back(std::make_unique<SplitCharacters>(is_whitespace, Behavior::kRemoved));
    steps_.push_back(std::make_unique<SplitCharacters>(is_punctuation, Behavior::kIsolated));
  } else {
    return error(Code::kUnsupported, json.path, ": pre-tokenizer type '", type.substr(0, 100),
                 "' is not supported; supported are Sequence, Split, ByteLevel, Metaspace, Digits, Whitespace, "
                 "WhitespaceSplit, Punctuation, BertPreTokenizer");
  }
  return {};
}

Status PreTokenizer::apply(Pieces& pieces, SplitScratch& scratch) const {
  pieces.limit = grown_limit(pieces.text.size());
  for (const auto& step : steps_) CADRE_TRY(step->apply(pieces, scratch));
  return {};
}

}  // namespace cadre::text
