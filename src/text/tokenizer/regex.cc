#include "text/tokenizer/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <chrono>

#include "base/result.h"
#include "text/tokenizer/unicode.h"

namespace cadre::text {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxPatternBytes = 32 * 1024;
// A match over a text of n characters needs a few steps for each; the rest is room for ordinary backtracking.
constexpr std::uint64_t kMatchSteps = 4'000'000;
constexpr std::uint64_t kMatchStepsPerByte = 16;
constexpr std::uint32_t kHeapKib = 256 * 1024;
constexpr std::uint32_t kDepth = 1'000'000;
constexpr std::size_t kJitStackStart = 64 * 1024;
constexpr std::size_t kJitStackMost = 16 * 1024 * 1024;
// Ordinary patterns split some 20 MB/s. A tokenizer that needs longer than this is taken for hostile.
constexpr double kSecondsBase = 5;
constexpr double kBytesPerSecond = 50'000;
constexpr std::uint32_t kCallsPerClock = 16;

struct CodeFree {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
using Code8 = std::unique_ptr<pcre2_code, CodeFree>;

std::string pcre2_message(int number) {
  PCRE2_UCHAR buffer[256];
  if (pcre2_get_error_message(number, buffer, sizeof buffer) < 0) return "error " + std::to_string(number);
  return reinterpret_cast<const char*>(buffer);
}

}  // namespace

struct RegexScratch::Impl {
  struct Free {
    void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
    void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
    void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
  };
  std::unique_ptr<pcre2_match_data, Free> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Free> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Free> stack{pcre2_jit_stack_create(kJitStackStart, kJitStackMost, nullptr)};
  Clock::time_point deadline = Clock::time_point::max();
  std::uint32_t until_clock = kCallsPerClock;

  Impl() {
    if (!data || !context || !stack) throw std::bad_alloc();
    pcre2_set_heap_limit(context.get(), kHeapKib);
    pcre2_set_depth_limit(context.get(), kDepth);
    pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

RegexScratch::RegexScratch() : impl(std::make_unique<Impl>()) {}
RegexScratch::~RegexScratch() = default;

void RegexScratch::start(std::size_t text_bytes) {
  const std::chrono::duration<double> most(kSecondsBase + static_cast<double>(text_bytes) / kBytesPerSecond);
  impl->deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(most);
}

struct Regex::Impl {
  std::string pattern;
  bool is_literal = false;
  Code8 code;
};

Regex::Regex(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Regex::Regex(Regex&&) noexcept = default;
Regex& Regex::operator=(Regex&&) noexcept = default;
Regex::~Regex() = default;

Result<Regex> Regex::literal(std::string_view text) {
  if (text.empty()) return error(Code::kUnsupported, "an empty text as a pattern is not supported");
  auto impl = std::make_unique<Impl>();
  impl->pattern = text;
  impl->is_literal = true;
  return Regex(std::move(impl));
}

Result<Regex> Regex::compile(std::string_view pattern) {
  if (pattern.empty()) return error(Code::kUnsupported, "an empty pattern is not supported");
  if (pattern.size() > kMaxPatternBytes) {
    return error(Code::kLimitExceeded, "pattern has ", pattern.size(), " bytes, the limit is ", kMaxPatternBytes);
  }
  CADRE_ASSIGN(const std::string translated, translate_pattern(pattern));
  // Lines are as in Ruby: ^ and $ match at every line.
  const std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  int number = 0;
  PCRE2_SIZE offset = 0;
  Code8 code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), options, &number,
                           &offset, nullptr));
  if (!code) {
    return error(Code::kInvalidFile, "pattern '", pattern.substr(0, 200),
                 "' does not compile: ", pcre2_message(number));
  }
  // Without a JIT (an unusual machine) the interpreter does the same, slower.
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  auto impl = std::make_unique<Impl>();
  impl->pattern = pattern;
  impl->code = std::move(code);
  return Regex(std::move(impl));
}

Status Regex::find_all(std::string_view subject, std::uint32_t base, RegexScratch& scratch,
                       std::vector<Span>& out) const {
  auto add = [&](std::size_t begin, std::size_t end) {
    out.push_back({base + static_cast<std::uint32_t>(begin), base + static_cast<std::uint32_t>(end)});
  };
  if (impl_->is_literal) {
    const std::string_view text = impl_->pattern;
    for (std::size_t at = subject.find(text); at != subject.npos; at = subject.find(text, at + text.size())) {
      add(at, at + text.size());
    }
    return {};
  }
  RegexScratch::Impl& memory = *scratch.impl;
  const std::uint64_t steps = kMatchSteps + kMatchStepsPerByte * subject.size();
  pcre2_set_match_limit(memory.context.get(), static_cast<std::uint32_t>(std::min<std::uint64_t>(steps, UINT32_MAX)));
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(memory.data.get());
  std::size_t pos = 0;
  std::size_t last_end = static_cast<std::size_t>(-1);
  while (pos <= subject.size()) {
    if (--memory.until_clock == 0) {
      memory.until_clock = kCallsPerClock;
      if (Clock::now() > memory.deadline) {
        return error(Code::kLimitExceeded, "pattern '", impl_->pattern.substr(0, 200),
                     "' takes far longer than patterns that split text do");
      }
    }
    const int rc = pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(subject.data()), subject.size(), pos,
                               PCRE2_NO_UTF_CHECK, memory.data.get(), memory.context.get());
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    if (rc < 0) {
      return error(Code::kLimitExceeded, "pattern '", impl_->pattern.substr(0, 200), "' on a text of ", subject.size(),
                   " bytes: ", pcre2_message(rc));
    }
    const std::size_t begin = bounds[0];
    const std::size_t end = bounds[1];
    if (begin > end || begin < pos) {
      return error(Code::kUnsupported, "pattern '", impl_->pattern.substr(0, 200), "' moves where its match begins");
    }
    if (begin == end && end == last_end) {
      if (end >= subject.size()) return {};
      pos = end + utf8_length(subject[end]);
      continue;
    }
    add(begin, end);
    last_end = end;
    pos = end;
  }
  return {};
}

}  // namespace cadre::text
