// A conversation: checked, and written again in the form that chat templates expect.
#include <algorithm>
#include <array>

#include "server/openai/parsing.h"

namespace cadre::server {
namespace {

using Kind = KnownField::Kind;

constexpr std::array<std::string_view, 5> kRoles = {"system", "developer", "user", "assistant", "tool"};

// What OpenAI's client sends back with an assistant's message.
constexpr KnownField kKnownOfMessage[] = {
    {"annotations", Kind::kIgnored, ""},
    {"refusal", Kind::kOnlyOff, "is not supported: put the text into 'content'"},
    {"audio", Kind::kOnlyOff, "is not supported: this server reads text only"},
    {"function_call", Kind::kOnlyOff, "is the old form of 'tool_calls', which this server takes"},
};

std::string item(std::string_view list, std::size_t i) { return std::string(list) + "[" + std::to_string(i) + "]"; }

// One text of a list of parts, which most templates could not take; lines join them, as in vLLM.
std::string read_parts(Fields& message, const Json& parts) {
  std::string text;
  for (std::size_t i = 0; i < parts.items().size(); ++i) {
    Fields part = message.inside(item("content", i), parts.items()[i]);
    const std::string type = part.text("type").value_or("");
    if (type != "text") {
      part.fail("type", type.empty() ? "is missing, want \"text\""
                                     : "is " + describe(Json(type)) + ", want \"text\": this server reads text only");
      return {};
    }
    const std::optional<std::string> piece = part.text("text");
    if (!piece) part.fail("text", "is missing");
    part.refuse_others();
    if (!part.ok()) return {};
    if (i > 0) text += '\n';
    text += *piece;
  }
  return text;
}

Json read_content(Fields& message, const RequestLimits& limits, const std::string& role) {
  const Json* content = message.any("content");
  if (content == nullptr) {
    // An assistant's message that is nothing but calls.
    if (role != "assistant") message.fail("content", "is missing");
    return "";
  }
  if (content->is_string()) return *content;
  if (!content->is_array()) {
    message.fail("content", "is " + describe(*content) + ", want a string or a list of text parts");
    return {};
  }
  const Json* parts = message.array("content", limits.max_parts);
  return parts == nullptr ? Json() : Json(read_parts(message, *parts));
}

// OpenAI sends arguments as JSON text, templates write them out from the value.
Json read_arguments(Fields& function) {
  const Json* arguments = function.any("arguments");
  if (arguments == nullptr) return Json::object({});
  if (arguments->is_object()) return *arguments;
  if (arguments->is_string()) {
    const std::string text = *arguments->as_string("");
    if (text.empty()) return Json::object({});
    const Result<Json> value = Json::parse(text, "arguments", {.python_numbers = false});
    if (value.ok() && value->is_object()) return *value;
  }
  function.fail("arguments", "is " + describe(*arguments) + ", want the JSON text of an object");
  return {};
}

Json read_tool_call(Fields call) {
  std::vector<Json::Member> out;
  if (auto id = call.text("id")) out.emplace_back("id", *std::move(id));
  if (const std::string type = call.text("type").value_or("function"); type != "function") {
    call.fail("type", "is " + describe(Json(type)) + ", want \"function\"");
  }
  out.emplace_back("type", "function");
  const Json* function = call.object("function");
  static constexpr KnownField kIndex[] = {{"index", Kind::kIgnored, ""}};  // of a streamed delta that was sent back
  call.refuse_others(kIndex);
  if (function == nullptr) {
    call.fail("function", "is missing");
    return {};
  }
  Fields inner = call.inside("function", *function);
  const std::string name = inner.text("name").value_or("");
  if (name.empty()) inner.fail("name", "is missing");
  Json arguments = read_arguments(inner);
  inner.refuse_others();
  out.emplace_back("function", Json::object({{"name", name}, {"arguments", std::move(arguments)}}));
  return Json::object(std::move(out));
}

Json read_message(Fields message, const RequestLimits& limits) {
  const std::string role = message.text("role").value_or("");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    message.fail("role", (role.empty() ? "is missing" : "is " + describe(Json(role))) +
                             ", want system, developer, user, assistant or tool");
  }
  std::vector<Json::Member> out;
  out.emplace_back("role", role);
  out.emplace_back("content", read_content(message, limits, role));
  if (auto name = message.text("name")) out.emplace_back("name", *std::move(name));
  if (auto id = message.text("tool_call_id")) {
    if (role != "tool") message.fail("tool_call_id", "is only for messages of the role tool");
    out.emplace_back("tool_call_id", *std::move(id));
  }
  // Two names are in use; templates know the first.
  std::optional<std::string> reasoning = message.text("reasoning_content");
  const std::optional<std::string> other = message.text("reasoning");
  if (!reasoning) reasoning = other;
  if (reasoning) out.emplace_back("reasoning_content", *std::move(reasoning));
  if (other) out.emplace_back("reasoning", *other);
  if (const Json* calls = message.array("tool_calls", limits.max_tool_calls); calls && !calls->items().empty()) {
    if (role != "assistant") message.fail("tool_calls", "is only for messages of the role assistant");
    std::vector<Json> list;
    for (std::size_t i = 0; i < calls->items().size(); ++i) {
      list.push_back(read_tool_call(message.inside(item("tool_calls", i), calls->items()[i])));
    }
    out.emplace_back("tool_calls", Json::array(std::move(list)));
  }
  message.refuse_others(kKnownOfMessage);
  return Json::object(std::move(out));
}

void check_tool(Fields tool) {
  if (const std::string type = tool.text("type").value_or(""); type != "function") {
    tool.fail("type", (type.empty() ? "is missing" : "is " + describe(Json(type))) + ", want \"function\"");
  }
  const Json* function = tool.object("function");
  if (function == nullptr) return tool.fail("function", "is missing");
  tool.refuse_others();
  Fields inner = tool.inside("function", *function);
  if (inner.text("name").value_or("").empty()) inner.fail("name", "is missing");
  inner.text("description");
  inner.object("parameters");
  if (inner.boolean("strict").value_or(false)) {
    inner.fail("strict", "is not supported: this server does not constrain what the model writes; leave it out");
  }
  inner.refuse_others();
}

// The name of a tool choice that is not a word.
std::string chosen_function(const Json& choice) {
  const Json* function = choice.find("function");
  const Json* name = function == nullptr ? nullptr : function->find("name");
  return name != nullptr && name->is_string() ? "the function " + describe(*name) : describe(choice);
}

void read_tools(Fields& fields, const RequestLimits& limits, ChatInput& out, bool& parse_tools) {
  const Json* tools = fields.array("tools", limits.max_tools);
  const bool given = tools != nullptr && !tools->items().empty();
  if (given) {
    for (std::size_t i = 0; i < tools->items().size(); ++i) {
      check_tool(fields.inside(item("tools", i), tools->items()[i]));
    }
  }
  bool wanted = given;
  if (const Json* choice = fields.any("tool_choice")) {
    const std::string word = choice->is_string() ? *choice->as_string("") : "";
    if (word == "none") {
      wanted = false;
    } else if (word != "auto") {
      const std::string got = word.empty() ? chosen_function(*choice) : describe(*choice);
      fields.fail("tool_choice", "is " + got + ", want \"auto\" or \"none\": this server does not constrain what the " +
                                     "model writes, so it cannot force a call");
    } else if (!given) {
      fields.fail("tool_choice", "is only for requests with 'tools'");
    }
  }
  // A model that sees tools may write a call that nobody would parse, so with "none" it sees none.
  parse_tools = wanted;
  if (wanted) out.tools_json = tools->dump();
}

// A template could be told something else than what was checked.
constexpr std::array<std::string_view, 3> kOurVariables = {"messages", "tools", "add_generation_prompt"};

void read_variables(Fields& fields, ChatInput& out) {
  std::vector<Json::Member> variables;
  if (const Json* given = fields.object("chat_template_kwargs")) {
    for (const auto& [name, value] : given->members()) {
      if (std::find(kOurVariables.begin(), kOurVariables.end(), name) != kOurVariables.end()) {
        return fields.fail("chat_template_kwargs", "has '" + name + "', which is a field of the request itself");
      }
      variables.emplace_back(name, value);
    }
  }
  // For templates that know it; no harm to others.
  if (auto effort = fields.text("reasoning_effort")) variables.emplace_back("reasoning_effort", *std::move(effort));
  if (!variables.empty()) out.kwargs_json = Json::object(std::move(variables)).dump();
}

}  // namespace

void read_chat(Fields& fields, const RequestLimits& limits, ChatInput& out, bool& parse_tools) {
  const Json* messages = fields.array("messages", limits.max_messages);
  if (messages == nullptr || messages->items().empty()) {
    fields.fail("messages", messages == nullptr ? "is missing" : "is empty, want at least one message");
    return;
  }
  std::vector<Json> list;
  for (std::size_t i = 0; i < messages->items().size() && fields.ok(); ++i) {
    list.push_back(read_message(fields.inside(item("messages", i), messages->items()[i]), limits));
  }
  out.messages_json = Json::array(std::move(list)).dump();
  read_tools(fields, limits, out, parse_tools);
  read_variables(fields, out);
  out.add_generation_prompt = fields.boolean("add_generation_prompt").value_or(true);
}

}  // namespace cadre::server
