#include "server/http/http_server.h"
#include "server/http/http_text.h"

namespace cadre::server {

std::string_view HttpRequest::header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (same_name(key, name)) return value;
  }
  return {};
}

}  // namespace cadre::server
