// Any bytes as a tokenizer.json; where they load, encoding, decoding and streaming a short text.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "text/tokenizer/tokenizer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tokenizer = cadre::Tokenizer::from_json({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!tokenizer.ok()) return 0;
  constexpr std::string_view kText =
      " Hello, w\xC3\xB6rld!\r\n\t 123abc  <s>a b\xE2\x96\x81\xF0\x9F\x99\x82\xFFz'll e\xCC\x81 ";
  const auto ids = (*tokenizer)->encode(kText, true);
  if (!ids.ok()) return 0;
  for (const bool skip : {false, true}) {
    cadre::StreamDecoder stream(**tokenizer, skip);
    std::string text;
    for (const std::int32_t id : *ids) text += stream.push(id);
    text += stream.flush();
    if (text != (*tokenizer)->decode(*ids, skip)) std::abort();
  }
  return 0;
}
