#include "server/openai/api_error.h"

#include "io/json.h"

namespace cadre::server {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 429:
      return "rate_limit_error";
    default:
      return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

std::string ApiError::body() const {
  return Json::object({{"error", Json::object({{"message", message},
                                               {"type", type},
                                               {"param", text_or_null(param)},
                                               {"code", text_or_null(code)}})}})
      .dump();
}

ApiError api_error(int status, std::string message, std::string code, std::string param) {
  return {status, std::move(message), type_of(status), std::move(param), std::move(code)};
}

ApiError api_error(const Status& status, std::string param) {
  const CodeInfo& info = code_info(status.code());
  return api_error(info.http_status, status.message(), info.name, std::move(param));
}

ApiError model_not_found(std::string_view model) {
  return api_error(404, "the model '" + std::string(model) + "' does not exist; /v1/models lists those that do",
                   "model_not_found", "model");
}

ApiError bad_field(std::string_view field, std::string_view what, std::string code) {
  return api_error(400, std::string(field) + " " + std::string(what), std::move(code), std::string(field));
}

}  // namespace cadre::server
