// ApiError: a failure as an OpenAI client reads it, and how the library's own failures become one.
#pragma once

#include <cadre/status.h>

#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace cadre::server {

struct ApiError {
  int status = 400;  // of HTTP
  std::string message;
  std::string type;   // "invalid_request_error"
  std::string param;  // the field at fault: "messages[2].role"; empty: null
  std::string code;   // "model_not_found"; empty: null

  // {"error": {"message", "type", "param", "code"}}
  std::string body() const;
};

// `type` follows from the status: 401 authentication_error, 403 permission_error, 404 not_found_error, 429
// rate_limit_error, 500 and above server_error, everything else invalid_request_error.
ApiError api_error(int status, std::string message, std::string code = "", std::string param = "");
// The status that code_info names, with the code's own name as `code`. `status` is not ok.
ApiError api_error(const Status& status, std::string param = "");
// 404 of a name that is no model, and of one that this key may not see.
ApiError model_not_found(std::string_view model);
// 400 of a field, naming it.
ApiError bad_field(std::string_view field, std::string_view what, std::string code = "");

// Either a T or the error to answer with.
template <class T>
class [[nodiscard]] ApiResult {
 public:
  ApiResult(T value) : state_(std::in_place_index<0>, std::move(value)) {}         // NOLINT: implicit on purpose
  ApiResult(ApiError error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT: implicit on purpose

  bool ok() const { return state_.index() == 0; }
  T& operator*() & { return std::get<0>(state_); }
  const T& operator*() const& { return std::get<0>(state_); }
  T operator*() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &std::get<0>(state_); }
  const T* operator->() const { return &std::get<0>(state_); }
  const ApiError& error() const { return std::get<1>(state_); }

 private:
  std::variant<T, ApiError> state_;
};

}  // namespace cadre::server
