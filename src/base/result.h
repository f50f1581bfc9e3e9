// Helpers around cadre::Status for the library's own code.
#pragma once

#include <cadre/status.h>

#include <sstream>
#include <string>

namespace cadre {

// error(Code::kInvalidFile, "tensor '", name, "' has ", n, " elements, want ", m): the parts streamed into one message.
template <class... Parts>
Status error(Code code, const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return Status(code, std::move(out).str());
}

}  // namespace cadre

#define CADRE_CONCAT_INNER(a, b) a##b
#define CADRE_CONCAT(a, b) CADRE_CONCAT_INNER(a, b)

// Returns the Status of `expr` to the caller if it is not ok.
#define CADRE_TRY(expr)                                                                    \
  do {                                                                                     \
    if (::cadre::Status cadre_status_ = (expr); !cadre_status_.ok()) return cadre_status_; \
  } while (false)

// CADRE_ASSIGN(auto x, f()): x is f()'s value, or its Status is returned to the caller.
#define CADRE_ASSIGN(lhs, expr) CADRE_ASSIGN_INNER(CADRE_CONCAT(cadre_result_, __LINE__), lhs, expr)
#define CADRE_ASSIGN_INNER(tmp, lhs, expr)       \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()

// A broken invariant of ours: never reachable from a file or a request.
#define CADRE_CHECK(cond, text)                                          \
  do {                                                                   \
    if (!(cond)) ::cadre::check_failed(#cond, text, __FILE__, __LINE__); \
  } while (false)

namespace cadre {
[[noreturn]] void check_failed(const char* condition, const char* text, const char* file, int line);
}  // namespace cadre
