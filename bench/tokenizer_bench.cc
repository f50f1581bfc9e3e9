// Loads a tokenizer.json and encodes and decodes text on one core.
//   tokenizer_bench                       a synthetic vocabulary of 200,000 tokens and synthetic verse
//   tokenizer_bench MODEL_DIR TEXT_FILE   real ones
#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>

#include "text/tokenizer/tokenizer.h"
#include "text/tokenizer_synthetic.h"

namespace {

double since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 1 && argc != 3) {
    std::fprintf(stderr, "usage: %s [MODEL_DIR TEXT_FILE]\n", argv[0]);
    return 2;
  }
  std::string json;
  std::string text;
  if (argc == 1) {
    json = cadre::synthetic::tokenizer_json(200'000);
    text = cadre::synthetic::text(16'000'000);
  } else {
    std::ifstream in(argv[2], std::ios::binary);
    text.assign(std::istreambuf_iterator<char>(in), {});
  }
  auto begin = std::chrono::steady_clock::now();
  auto loaded = argc == 1 ? cadre::Tokenizer::from_json(json, "synthetic") : cadre::Tokenizer::load(argv[1]);
  if (!loaded.ok()) {
    std::fprintf(stderr, "%s\n", loaded.status().message().c_str());
    return 1;
  }
  std::printf("load    %8.1f ms   %zu tokens\n", since(begin) * 1e3, (*loaded)->vocab_size());
  for (int round = 0; round < 3; ++round) {
    begin = std::chrono::steady_clock::now();
    const auto ids = (*loaded)->encode(text, true);
    const double encode_seconds = since(begin);
    if (!ids.ok()) {
      std::fprintf(stderr, "%s\n", ids.status().message().c_str());
      return 1;
    }
    begin = std::chrono::steady_clock::now();
    const std::string decoded = (*loaded)->decode(*ids, true);
    const double decode_seconds = since(begin);
    const double megabytes = static_cast<double>(text.size()) * 1e-6;
    std::printf("encode  %8.1f MB/s  %zu tokens, %.2f bytes each\n", megabytes / encode_seconds, ids->size(),
                static_cast<double>(text.size()) / static_cast<double>(ids->size()));
    std::printf("decode  %8.1f MB/s  %s\n", static_cast<double>(decoded.size()) * 1e-6 / decode_seconds,
                decoded == text ? "same text" : "other text");
  }
  return 0;
}
