#include "api/boundary.h"

#include <cstdlib>
#include <exception>
#include <new>
#include <string>

namespace cadre::api {
namespace {

static_assert(CADRE_INVALID_ARGUMENT == static_cast<int>(Code::kInvalidArgument));
static_assert(CADRE_NOT_FOUND == static_cast<int>(Code::kNotFound));
static_assert(CADRE_INVALID_FILE == static_cast<int>(Code::kInvalidFile));
static_assert(CADRE_UNSUPPORTED == static_cast<int>(Code::kUnsupported));
static_assert(CADRE_NO_BACKEND == static_cast<int>(Code::kNoBackend));
static_assert(CADRE_LIMIT_EXCEEDED == static_cast<int>(Code::kLimitExceeded));
static_assert(CADRE_OUT_OF_MEMORY == static_cast<int>(Code::kOutOfMemory));
static_assert(CADRE_CONFLICT == static_cast<int>(Code::kConflict));
static_assert(CADRE_CANCELLED == static_cast<int>(Code::kCancelled));
static_assert(CADRE_INTERNAL == static_cast<int>(Code::kInternal));

// The text, or where there was no memory for one, `fixed`.
struct LastError {
  std::string text;
  const char* fixed = nullptr;
};
thread_local LastError last_error;

cadre_code keep(Code code, std::string_view message) noexcept {
  try {
    last_error.text = message;
    last_error.fixed = nullptr;
  } catch (...) {
    last_error.fixed = "out of memory";
  }
  return static_cast<cadre_code>(code);
}

}  // namespace

cadre_code report(const Status& status) noexcept {
  if (status.ok()) return CADRE_OK;
  return keep(status.code(), status.message());
}

cadre_code report_exception() noexcept {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return keep(Code::kOutOfMemory, "out of memory");
  } catch (const std::exception& e) {
    return keep(Code::kInternal, e.what());
  } catch (...) {
    return keep(Code::kInternal, "an exception of unknown type");
  }
}

Result<char*> copy_text(std::string_view text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) return error(Code::kOutOfMemory, "no memory for a text of ", text.size(), " bytes");
  if (!text.empty()) std::memcpy(copy, text.data(), text.size());
  copy[text.size()] = '\0';
  return copy;
}

}  // namespace cadre::api

using cadre::api::last_error;

extern "C" {

const char* cadre_code_name(int code) {
  if (code < CADRE_OK || code > CADRE_INTERNAL) return "unknown";
  return cadre::code_info(static_cast<cadre::Code>(code)).name;
}

const char* cadre_last_error(void) { return last_error.fixed != nullptr ? last_error.fixed : last_error.text.c_str(); }

const char* cadre_version(void) { return CADRE_VERSION; }

void cadre_string_free(char* text) { std::free(text); }
void cadre_ids_free(int32_t* ids) { std::free(ids); }

}  // extern "C"
