#include "text/tokenizer/tokenizer.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <unordered_map>

#include "base/result.h"
#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/decoder.h"
#include "text/tokenizer/normalizer.h"
#include "text/tokenizer/post_processor.h"
#include "text/tokenizer/pre_tokenizer.h"
#include "text/tokenizer/tokenizer_file.h"
#include "text/tokenizer/unicode.h"
#include "text/tokenizer/vocab.h"

namespace cadre {
namespace {

using namespace text;

// Spans are 32 bits wide, and steps may make a text 32 times as long.
constexpr std::size_t kMaxTextBytes = std::size_t{64} << 20;
constexpr std::size_t kMaxIdleScratches = 64;

struct Scratch {
  SplitScratch split;
  BpeScratch bpe;
  std::vector<Segment> segments;
  std::vector<Segment> inner_segments;
  Pieces pieces;
};

const JsonValue* pointer(const std::optional<JsonValue>& json) { return json ? &*json : nullptr; }

}  // namespace

struct Tokenizer::Impl {
  Bpe bpe;
  Vocab added;
  // How decoding spells added tokens that are looked for in normalized text: normalized, as the model's tokens are.
  std::unordered_map<std::int32_t, std::string> spelled;
  std::vector<bool> special;  // by id; ids beyond its end are not
  TokenFinder plain;          // added tokens looked for in the text as it is
  TokenFinder normalized;     // and after normalizing
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  PostProcessor post_processor;
  Decoder decoder;

  mutable std::mutex mutex;
  mutable std::vector<std::unique_ptr<Scratch>> idle;

  Status build(TokenizerFile file);
  Status add_tokens(const std::vector<AddedToken>& tokens);
  Status check_post_processor() const;
  Status encode_text(std::string_view part, bool at_start, Scratch& scratch, std::vector<std::int32_t>& out) const;
  Status encode_pieces(std::string_view part, bool at_start, Scratch& scratch, std::vector<std::int32_t>& out) const;
  Status encode(std::string_view text, bool add_special_tokens, Scratch& scratch, std::vector<std::int32_t>& out) const;
  // The text of a token that decoding shows, or nothing.
  std::optional<std::string_view> shown(std::int32_t id, bool skip_special_tokens) const;

  std::unique_ptr<Scratch> borrow() const {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return std::make_unique<Scratch>();
    auto scratch = std::move(idle.back());
    idle.pop_back();
    return scratch;
  }
  void give_back(std::unique_ptr<Scratch> scratch) const {
    const std::lock_guard lock(mutex);
    if (idle.size() < kMaxIdleScratches) idle.push_back(std::move(scratch));
  }
};

Status Tokenizer::Impl::build(TokenizerFile file) {
  bpe = std::move(file.bpe);
  CADRE_ASSIGN(normalizer, Normalizer::from_json(pointer(file.normalizer)));
  CADRE_ASSIGN(pre_tokenizer, PreTokenizer::from_json(pointer(file.pre_tokenizer)));
  CADRE_ASSIGN(post_processor, PostProcessor::from_json(pointer(file.post_processor)));
  CADRE_ASSIGN(decoder, Decoder::from_json(pointer(file.decoder)));
  CADRE_TRY(add_tokens(file.added));
  return check_post_processor();
}

Status Tokenizer::Impl::add_tokens(const std::vector<AddedToken>& tokens) {
  RegexScratch regex;
  for (const AddedToken& token : tokens) {
    if (token.content.empty() || added.find(token.content) == token.id) continue;
    const std::int32_t in_model = bpe.vocab().find(token.content);
    if (in_model != Vocab::kNone && in_model != token.id) {
      return error(Code::kInvalidFile, "added_tokens: '", token.content, "' has id ", token.id, ", but ", in_model,
                   " in model.vocab");
    }
    if (in_model == Vocab::kNone && bpe.vocab().has(token.id)) {
      return error(Code::kInvalidFile, "added_tokens: '", token.content, "' has id ", token.id,
                   ", which model.vocab gives to '", bpe.vocab().text(token.id).substr(0, 100), "'");
    }
    CADRE_TRY(added.add(token.content, token.id).with_context("added_tokens"));
    if (token.special) {
      if (static_cast<std::size_t>(token.id) >= special.size()) special.resize(static_cast<std::size_t>(token.id) + 1);
      special[static_cast<std::size_t>(token.id)] = true;
    }
    if (!token.normalized) {
      CADRE_TRY(plain.add(token.content, token));
      continue;
    }
    regex.start(token.content.size());
    CADRE_ASSIGN(std::string pattern, normalizer.apply(token.content, regex));
    if (pattern != token.content) spelled.emplace(token.id, pattern);
    CADRE_TRY(normalized.add(std::move(pattern), token));
  }
  plain.finish();
  normalized.finish();
  return {};
}

Status Tokenizer::Impl::check_post_processor() const {
  for (const auto* ids : {&post_processor.before(), &post_processor.after()}) {
    for (const std::int32_t id : *ids) {
      if (!bpe.vocab().has(id) && !added.has(id)) {
        return error(Code::kInvalidFile, "post_processor: adds id ", id, ", which no token has");
      }
    }
  }
  return {};
}

Status Tokenizer::Impl::encode(std::string_view text, bool add_special_tokens, Scratch& scratch,
                               std::vector<std::int32_t>& out) const {
  if (text.size() > kMaxTextBytes) {
    return error(Code::kLimitExceeded, "the text has ", text.size(), " bytes, the limit is ", kMaxTextBytes);
  }
  std::string repaired;
  if (!valid_utf8(text)) {
    append_lossy(text, /*last=*/true, repaired);
    text = repaired;
  }
  scratch.split.regex.start(text.size());
  if (add_special_tokens) out = post_processor.before();
  scratch.segments.clear();
  plain.split(text, scratch.segments);
  for (const Segment& segment : scratch.segments) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
    } else {
      const auto part = text.substr(segment.begin, segment.end - segment.begin);
      CADRE_TRY(encode_text(part, segment.begin == 0, scratch, out));
    }
  }
  if (add_special_tokens) out.insert(out.end(), post_processor.after().begin(), post_processor.after().end());
  return {};
}

Status Tokenizer::Impl::encode_text(std::string_view part, bool at_start, Scratch& scratch,
                                    std::vector<std::int32_t>& out) const {
  std::string changed;
  if (!normalizer.empty()) {
    CADRE_ASSIGN(changed, normalizer.apply(part, scratch.split.regex));
    part = changed;
  }
  scratch.inner_segments.clear();
  normalized.split(part, scratch.inner_segments);
  for (const Segment& segment : scratch.inner_segments) {
    if (segment.id >= 0) {
      out.push_back(segment.id);
    } else {
      const auto inner = part.substr(segment.begin, segment.end - segment.begin);
      CADRE_TRY(encode_pieces(inner, at_start && segment.begin == 0, scratch, out));
    }
  }
  return {};
}

Status Tokenizer::Impl::encode_pieces(std::string_view part, bool at_start, Scratch& scratch,
                                      std::vector<std::int32_t>& out) const {
  Pieces& pieces = scratch.pieces;
  pieces.text = part;
  pieces.at_start = at_start;
  pieces.spans.assign(1, {0, static_cast<std::uint32_t>(part.size())});
  CADRE_TRY(pre_tokenizer.apply(pieces, scratch.split));
  for (const Span span : pieces.spans) {
    CADRE_TRY(bpe.encode(pieces.text.substr(span.begin, span.end - span.begin), scratch.bpe, out));
  }
  return {};
}

std::optional<std::string_view> Tokenizer::Impl::shown(std::int32_t id, bool skip_special_tokens) const {
  const auto index = static_cast<std::size_t>(id);
  if (id < 0 || (skip_special_tokens && index < special.size() && special[index])) return std::nullopt;
  if (added.has(id)) {
    const auto found = spelled.find(id);
    return found == spelled.end() ? added.text(id) : found->second;
  }
  if (bpe.vocab().has(id)) return bpe.vocab().text(id);
  return std::nullopt;
}

Tokenizer::Tokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Tokenizer::~Tokenizer() = default;

Result<std::unique_ptr<Tokenizer>> Tokenizer::from_json(std::string_view json, std::string source_name) {
  try {
    auto file = parse_tokenizer_file(json);
    if (!file.ok()) return std::move(file).status().with_context(source_name);
    auto impl = std::make_unique<Impl>();
    if (Status status = impl->build(std::move(file).value()); !status.ok()) {
      return std::move(status).with_context(source_name);
    }
    return std::unique_ptr<Tokenizer>(new Tokenizer(std::move(impl)));
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, source_name, ": no memory for the tokenizer");
  }
}

Result<std::unique_ptr<Tokenizer>> Tokenizer::load(const std::string& dir_or_file) {
  namespace fs = std::filesystem;
  std::error_code code;
  fs::path path(dir_or_file);
  if (fs::is_directory(path, code)) path /= "tokenizer.json";
  const auto size = fs::file_size(path, code);
  if (code) return error(Code::kNotFound, path.string(), ": ", code.message(), "; a model needs its tokenizer.json");
  if (size > kMaxTokenizerBytes) {
    return error(Code::kLimitExceeded, path.string(), ": has ", size, " bytes, the limit is ", kMaxTokenizerBytes);
  }
  std::string json(static_cast<std::size_t>(size), '\0');
  std::ifstream in(path, std::ios::binary);
  if (!in.read(json.data(), static_cast<std::streamsize>(json.size()))) {
    return error(Code::kInvalidFile, path.string(), ": cannot be read");
  }
  return from_json(json, path.string());
}

Result<std::vector<std::int32_t>> Tokenizer::encode(std::string_view utf8, bool add_special_tokens) const {
  try {
    std::vector<std::int32_t> ids;
    auto scratch = impl_->borrow();
    const Status status = impl_->encode(utf8, add_special_tokens, *scratch, ids);
    impl_->give_back(std::move(scratch));
    if (!status.ok()) return status;
    return ids;
  } catch (const std::bad_alloc&) {
    return error(Code::kOutOfMemory, "no memory to encode a text of ", utf8.size(), " bytes");
  }
}

std::string Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special_tokens) const {
  DecoderChain chain = impl_->decoder.start();
  for (const std::int32_t id : ids) {
    if (const auto token = impl_->shown(id, skip_special_tokens)) chain.push(*token);
  }
  chain.finish();
  return chain.take();
}

std::optional<std::int32_t> Tokenizer::token_to_id(std::string_view token) const {
  std::int32_t id = impl_->added.find(token);
  if (id == Vocab::kNone) id = impl_->bpe.vocab().find(token);
  if (id == Vocab::kNone) return std::nullopt;
  return id;
}

std::optional<std::string> Tokenizer::id_to_token(std::int32_t id) const {
  for (const Vocab* vocab : {&impl_->added, &impl_->bpe.vocab()}) {
    if (vocab->has(id)) return std::string(vocab->text(id));
  }
  return std::nullopt;
}

std::string Tokenizer::token_bytes(std::int32_t id) const {
  if (impl_->added.has(id)) return std::string(impl_->added.text(id));
  if (!impl_->bpe.vocab().has(id)) return "";
  const std::string_view spelled = impl_->bpe.vocab().text(id);
  std::string out;
  if (impl_->decoder.byte_level()) {
    text::append_bytes_of(spelled, out);
    return out;
  }
  const auto hex = [](char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1; };
  if (spelled.size() == 6 && spelled.starts_with("<0x") && spelled[5] == '>' && hex(spelled[3]) >= 0 &&
      hex(spelled[4]) >= 0) {
    return std::string(1, static_cast<char>(16 * hex(spelled[3]) + hex(spelled[4])));
  }
  constexpr std::string_view kMark = "\u2581";  // how SentencePiece spells a space
  for (std::size_t at = 0; at < spelled.size();) {
    const bool space = spelled.substr(at).starts_with(kMark);
    out += space ? std::string_view(" ") : spelled.substr(at, 1);
    at += space ? kMark.size() : 1;
  }
  return out;
}

std::size_t Tokenizer::longest_token() const {
  std::size_t longest = 0;
  for (const Vocab* vocab : {&impl_->added, &impl_->bpe.vocab()}) {
    for (std::int32_t id = 0; static_cast<std::size_t>(id) < vocab->id_end(); ++id) {
      if (vocab->has(id)) longest = std::max(longest, vocab->text(id).size());
    }
  }
  return longest;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return id >= 0 && static_cast<std::size_t>(id) < impl_->special.size() &&
         impl_->special[static_cast<std::size_t>(id)];
}

std::size_t Tokenizer::vocab_size() const { return std::max(impl_->bpe.vocab().id_end(), impl_->added.id_end()); }

struct StreamDecoder::Impl {
  const Tokenizer::Impl* tokenizer;
  bool skip_special_tokens;
  DecoderChain chain;
};

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : impl_(new Impl{tokenizer.impl_.get(), skip_special_tokens, tokenizer.impl_->decoder.start()}) {}
StreamDecoder::~StreamDecoder() = default;
StreamDecoder::StreamDecoder(StreamDecoder&&) noexcept = default;
StreamDecoder& StreamDecoder::operator=(StreamDecoder&&) noexcept = default;

std::string StreamDecoder::push(std::int32_t id) {
  if (const auto token = impl_->tokenizer->shown(id, impl_->skip_special_tokens)) impl_->chain.push(*token);
  return impl_->chain.take();
}

std::string StreamDecoder::flush() {
  impl_->chain.finish();
  std::string out = impl_->chain.take();
  impl_->chain = impl_->tokenizer->decoder.start();
  return out;
}

}  // namespace cadre
