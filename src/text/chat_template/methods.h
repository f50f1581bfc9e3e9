#pragma once

#include <string_view>

#include "text/chat_template/runtime.h"

namespace cadre::chat_template {

// The methods of Python's str: methods_string.cc.
Native find_string_method(std::string_view name);

}  // namespace cadre::chat_template
