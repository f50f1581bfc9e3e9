// Status and Result: how every call that can fail says so. No exceptions cross the library's edge.
#pragma once

#include <cstdint>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#if defined(__GNUC__)
#define CADRE_API __attribute__((visibility("default")))
#else
#define CADRE_API
#endif

namespace cadre {

// The kinds of failure. Each maps to one exit code of the command line and one HTTP status (see code_info).
enum class Code : std::uint8_t {
  kOk,
  kInvalidArgument,  // a flag, field or request that cannot be honoured as written
  kNotFound,         // a file, model, adapter or tensor that is not there
  kInvalidFile,      // a file whose content is malformed or contradicts itself
  kUnsupported,      // well-formed, understood, and not something this build can do
  kNoBackend,        // the gate refused every backend, or the one that was required
  kLimitExceeded,    // prompt longer than the context, file over its limit, queue full
  kOutOfMemory,      // foreseen before allocation
  kConflict,         // a name taken, an adapter busy
  kCancelled,        // stopped by the caller
  kInternal,         // a bug; never reachable from a file or a request
};

struct CodeInfo {
  const char* name;  // as printed and as in JSON, e.g. "invalid_file"
  int exit_code;     // of the command line
  int http_status;
};
CADRE_API const CodeInfo& code_info(Code code);

// A code and a message. Messages are lower case, name the file, tensor or field, give got and want, and say what to do
// next. `with_context` prepends where the failure happened: "loading model /m: reading a.safetensors: header is ...".
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  explicit operator bool() const { return ok(); }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }
  Status with_context(std::string_view where) && {
    if (!ok()) message_ = std::string(where) + ": " + message_;
    return std::move(*this);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

// Either a T or a Status that is not ok.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : state_(std::in_place_index<1>, std::move(status)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T value() && { return std::get<0>(std::move(state_)); }  // by value: safe in `for (x : *call())`
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  const Status& status() const& {
    static const Status kOkStatus;
    return ok() ? kOkStatus : std::get<1>(state_);
  }
  Status status() && { return ok() ? Status() : std::get<1>(std::move(state_)); }
  Result with_context(std::string_view where) && {
    if (ok()) return std::move(*this);
    return std::get<1>(std::move(state_)).with_context(where);
  }

 private:
  std::variant<T, Status> state_;
};

}  // namespace cadre
