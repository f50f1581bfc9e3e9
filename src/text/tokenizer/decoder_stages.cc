#include "text/tokenizer/decoder_stages.h"

#include "text/tokenizer/byte_level.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

void replace_in(std::string_view text, std::string_view from, std::string_view to, std::string& out) {
  std::size_t done = 0;
  for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
    out += text.substr(done, at - done);
    out += to;
    done = at + from.size();
  }
  out += text.substr(done);
}

}  // namespace

void JoinWithSpaces::token(std::string_view token) {
  if (!first_) next_.text(" ");
  first_ = false;
  emit(token);
}

void Fuse::finish() {
  next_.end();
  next_.finish();
}

void BytesOfAlphabet::token(std::string_view token) {
  append_bytes_of(token, bytes_);
  std::string out;
  bytes_.erase(0, append_lossy(bytes_, /*last=*/false, out));
  next_.text(out);
}

void BytesOfAlphabet::finish() {
  std::string out;
  append_lossy(bytes_, /*last=*/true, out);
  bytes_.clear();
  emit(out);
  next_.finish();
}

void ByteTokens::token(std::string_view token) {
  if (token.size() == 6 && token.starts_with("<0x") && token.ends_with('>')) {
    const int high = hex_value(token[3]);
    const int low = hex_value(token[4]);
    if (high >= 0 && low >= 0) {
      run_ += static_cast<char>(high * 16 + low);
      return;
    }
  }
  end_run();
  emit(token);
}

void ByteTokens::end_run() {
  if (run_.empty()) return;
  if (valid_utf8(run_)) {
    emit(run_);
  } else {
    for (std::size_t i = 0; i < run_.size(); ++i) emit(kReplacement);
  }
  run_.clear();
}

void ByteTokens::finish() {
  end_run();
  next_.finish();
}

void ReplaceText::token(std::string_view token) {
  std::string out;
  replace_in(token, from_, to_, out);
  emit(out);
}

void StripEnds::text(std::string_view part) {
  std::string out;
  for (std::size_t pos = 0; pos < part.size();) {
    const std::string_view character = part.substr(pos, utf8_length(part[pos]));
    pos += character.size();
    if (character == content_) {
      if (to_strip_ > 0) {
        --to_strip_;
      } else if (stop_ > 0) {
        ++held_;
      } else {
        out += character;
      }
      continue;
    }
    to_strip_ = 0;
    for (; held_ > 0; --held_) out += content_;
    out += character;
  }
  next_.text(out);
}

void StripEnds::end() {
  std::string out;
  for (; held_ > stop_; --held_) out += content_;
  held_ = 0;
  to_strip_ = start_;
  next_.text(out);
  next_.end();
}

void SpacesOfMetaspace::text(std::string_view part) {
  std::string out;
  replace_in(part, mark_, drop_ ? "" : " ", out);
  next_.text(out);
}

void SpacesOfMetaspace::end() {
  drop_ = false;
  next_.end();
}

}  // namespace cadre::text
