#include <array>
#include <cstdio>
#include <cstdlib>

#include "base/result.h"

namespace cadre {

const CodeInfo& code_info(Code code) {
  static constexpr std::array<CodeInfo, 11> kTable = {{
      {"ok", 0, 200},
      {"invalid_argument", 2, 400},
      {"not_found", 3, 404},
      {"invalid_file", 4, 400},
      {"unsupported", 5, 400},
      {"no_backend", 6, 409},
      {"limit_exceeded", 7, 400},
      {"out_of_memory", 8, 507},
      {"conflict", 9, 409},
      {"cancelled", 130, 499},
      {"internal", 70, 500},
  }};
  return kTable[static_cast<std::size_t>(code)];
}

void check_failed(const char* condition, const char* text, const char* file, int line) {
  std::fprintf(stderr, "cadre: internal error at %s:%d: %s (%s)\n", file, line, text, condition);
  std::abort();
}

}  // namespace cadre
