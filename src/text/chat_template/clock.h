// Dates in English, whatever the locale.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace cadre::chat_template {

// strftime of `seconds` since 1970-01-01 UTC.
Result<std::string> format_time(std::int64_t seconds, std::string_view format);

}  // namespace cadre::chat_template
