// What a load asks: lines of a file, or random words.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/json.h"
#include "server/load/load_options.h"
#include "server/load/schedule.h"

namespace cadre::server {

struct LoadPrompt {
  std::string text;    // or:
  Json messages;       // an array, for chats only
  int max_tokens = 0;  // 0: as the options say
};

// Of a line of a file: a JSON string, {"prompt": TEXT} or {"messages": [...]}, the last two with "max_tokens" too.
// Other fields are not looked at.
Result<LoadPrompt> parse_prompt(std::string_view line, const std::string& source, bool chat);
// Empty lines are passed over; a file without prompts is an error.
Result<std::vector<LoadPrompt>> read_prompts(const std::string& path, bool chat);

// `count` common words in random order.
std::string random_words(int count, LoadRandom& random);

// The body of a streamed request.
std::string request_body(const LoadOptions& options, const std::string& model, const LoadPrompt& prompt,
                         int max_tokens);

}  // namespace cadre::server
