// A request that may not go on, as the client is told.
#pragma once

#include <cstdint>
#include <string>

namespace cadre::server {

struct Refusal {
  int status = 403;
  std::string type;                // "authentication_error", as OpenAI's error objects have it
  std::string code;                // "invalid_api_key"
  std::string message;             // holds no key, no path and nothing of another tenant
  std::int64_t retry_after_s = 0;  // the Retry-After header, where above 0
  std::string www_authenticate;    // that header, where not empty
  std::string reason;              // for the metric cadre_rejected_total: one of a fixed few
};

}  // namespace cadre::server
