#include "base/result.h"
#include "lora/adapter_reader.h"

namespace cadre {
namespace {

struct Choice {
  std::string_view name, value;
  void (*apply)(AdapterOptions&);
};
constexpr Choice kChoices[] = {
    {"orientation", "auto", [](AdapterOptions& o) { o.orientation = Orientation::kAuto; }},
    {"orientation", "peft", [](AdapterOptions& o) { o.orientation = Orientation::kPeft; }},
    {"orientation", "swapped", [](AdapterOptions& o) { o.orientation = Orientation::kSwapped; }},
    {"b_order", "peft", [](AdapterOptions& o) { o.b_order = BOrder::kPeft; }},
    {"b_order", "expert_major", [](AdapterOptions& o) { o.b_order = BOrder::kExpertMajor; }},
    {"check_weights", "true", [](AdapterOptions& o) { o.check_weights = true; }},
    {"check_weights", "false", [](AdapterOptions& o) { o.check_weights = false; }},
};

// "orientation=auto|peft|swapped, b_order=peft|expert_major, ..."
std::string known_options() {
  std::string text;
  std::string_view last;
  for (const Choice& choice : kChoices) {
    if (choice.name == last) {
      text.append("|").append(choice.value);
    } else {
      text.append(text.empty() ? "" : ", ").append(choice.name).append("=").append(choice.value);
    }
    last = choice.name;
  }
  return text;
}

}  // namespace

Result<AdapterOptions> parse_adapter_options(std::string_view text) {
  AdapterOptions options;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(','));
    text.remove_prefix(item.size() == text.size() ? item.size() : item.size() + 1);
    const Choice* found = nullptr;
    for (const Choice& choice : kChoices) {
      const std::size_t n = choice.name.size();
      if (item.size() == n + 1 + choice.value.size() && item.starts_with(choice.name) && item[n] == '=' &&
          item.ends_with(choice.value)) {
        found = &choice;
      }
    }
    if (found == nullptr) {
      return error(Code::kInvalidArgument, "unknown adapter option '", item, "', want one of ", known_options());
    }
    found->apply(options);
  }
  return options;
}

}  // namespace cadre
