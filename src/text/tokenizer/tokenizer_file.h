// tokenizer.json as parsed: the model built, the short parts as JSON for their own readers.
#pragma once

#include <cadre/status.h>

#include <optional>
#include <string_view>
#include <vector>

#include "text/tokenizer/added_tokens.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/json_value.h"

namespace cadre::text {

// The largest published tokenizer.json has 33 MB.
inline constexpr std::size_t kMaxTokenizerBytes = std::size_t{256} << 20;

struct TokenizerFile {
  Bpe bpe;
  std::vector<AddedToken> added;
  std::optional<JsonValue> normalizer;
  std::optional<JsonValue> pre_tokenizer;
  std::optional<JsonValue> post_processor;
  std::optional<JsonValue> decoder;
};

Result<TokenizerFile> parse_tokenizer_file(std::string_view json);

}  // namespace cadre::text
