// Any bytes as JSON: refused with a message, or a value that is written and read back as the same.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "io/json.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

// Every accessor on every value, whatever its type.
void visit(const cadre::Json& value) {
  (void)value.as_bool("x").ok();
  (void)value.as_double("x").ok();
  (void)value.as_string("x").ok();
  (void)cadre::describe(value);
  if (const auto number = value.as_int("x"); number.ok()) require(value.is_number());
  for (const cadre::Json& item : value.items()) visit(item);
  for (const auto& [key, member] : value.members()) {
    require(value.find(key) == &member);
    const auto list = value.get_int_list(key);
    if (!list.ok()) require(list.status().message().find("field '") != std::string::npos);
    (void)value.get_string_or(key, "").ok();
    visit(member);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const cadre::JsonDumpOptions python{.indent = -1, .non_finite = cadre::JsonDumpOptions::NonFinite::kPython};
  for (const bool lenient : {true, false}) {
    cadre::JsonParseOptions options;
    options.python_numbers = lenient;
    options.duplicates =
        lenient ? cadre::JsonParseOptions::Duplicates::kLastWins : cadre::JsonParseOptions::Duplicates::kRefuse;
    const cadre::Result<cadre::Json> json = cadre::Json::parse(text, "fuzz.json", options);
    if (!json.ok()) {
      require(json.status().message().starts_with("fuzz.json: "));
      continue;
    }
    visit(*json);
    if (!lenient) {
      // 1e999 is infinity, for which strict JSON has no word.
      require(cadre::Json::parse(json->dump({.indent = 2}), "again", options).ok());
      continue;
    }
    const std::string compact = json->dump(python);
    const cadre::Result<cadre::Json> again = cadre::Json::parse(compact, "again", options);
    require(again.ok() && again->dump(python) == compact);
  }
  return 0;
}
