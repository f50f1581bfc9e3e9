// What every function of cadre.h needs at the border between C and C++: exceptions stop, messages are kept, strings and
// structures are copied.
#pragma once

#include <cadre/cadre.h>
#include <cadre/status.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace cadre::api {

// Keeps the message for cadre_last_error and gives the code; nothing is kept for ok.
cadre_code report(const Status& status) noexcept;
// For a caught exception, from inside its handler.
cadre_code report_exception() noexcept;

// Runs what returns a Status; every exception becomes a code.
template <class F>
cadre_code guarded(F&& body) noexcept {
  try {
    return report(body());
  } catch (...) {
    return report_exception();
  }
}

inline Status missing(std::string_view name) { return error(Code::kInvalidArgument, name, " is NULL"); }

// A copy for C, freed with cadre_string_free.
Result<char*> copy_text(std::string_view text);

inline std::string_view text_or_empty(const char* text) { return text == nullptr ? std::string_view() : text; }

// A copy of a structure from a program that may have been built with an older header, whose missing fields become 0, or
// with a newer one, whose unknown fields must be 0.
template <class T>
Result<T> read_struct(const T* given, std::string_view name) {
  static_assert(std::is_trivially_copyable_v<T>);
  constexpr std::size_t kMaxSize = 4096;
  if (given == nullptr) return missing(name);
  std::size_t size = 0;
  std::memcpy(&size, given, sizeof size);  // struct_size comes first
  if (size < sizeof size || size > kMaxSize) {
    return error(Code::kInvalidArgument, name, ".struct_size is ", size, ", want sizeof(cadre_", name, "), which is ",
                 sizeof(T), " here");
  }
  const auto* bytes = reinterpret_cast<const unsigned char*>(given);
  if (size > sizeof(T) && std::any_of(bytes + sizeof(T), bytes + size, [](unsigned char b) { return b != 0; })) {
    return error(Code::kInvalidArgument, name, " sets fields beyond byte ", sizeof(T), ", which version ",
                 cadre_version(), " does not know; update the library");
  }
  T out = {};
  std::memcpy(&out, given, std::min(size, sizeof(T)));
  return out;
}

}  // namespace cadre::api
