#include "text/chat_template/chat_template.h"

#include "base/result.h"
#include "text/chat_template/evaluator.h"
#include "text/chat_template/json.h"
#include "text/chat_template/parser.h"
#include "text/chat_template/unicode.h"

namespace cadre {
namespace {

constexpr std::size_t kMaxSource = 4u << 20;  // bytes; published templates have up to 30 thousand

using chat_template::Evaluator;
using chat_template::Kind;
using chat_template::Value;

Status define_json(Evaluator& evaluator, const std::string& name, const std::string& text, Kind wanted) {
  CADRE_ASSIGN(Value value, chat_template::parse_json(evaluator.budget, text, name));
  if (!value.is(wanted)) {
    return error(Code::kInvalidArgument, name, " is a ", type_name(value), ", want ",
                 wanted == Kind::kList ? "an array" : "an object");
  }
  evaluator.define(name, std::move(value));
  return {};
}

Status define_input(Evaluator& evaluator, const RenderInput& input) {
  for (const auto& [name, token] : input.special_tokens) evaluator.define(name, Value::string(token));
  CADRE_TRY(define_json(evaluator, "messages", input.messages_json, Kind::kList));
  evaluator.define("documents", Value::none());
  evaluator.define("tools", Value::none());
  if (!input.tools_json.empty()) CADRE_TRY(define_json(evaluator, "tools", input.tools_json, Kind::kList));
  evaluator.define("add_generation_prompt", Value::boolean(input.add_generation_prompt));
  if (input.extra_json.empty()) return {};
  CADRE_ASSIGN(const Value extra, chat_template::parse_json(evaluator.budget, input.extra_json, "template variables"));
  if (!extra.is(Kind::kDict)) {
    return error(Code::kInvalidArgument, "template variables are a ", type_name(extra), ", want an object");
  }
  for (const auto& [name, value] : extra.as<chat_template::DictObject>().entries()) {
    evaluator.define(name.as_string(), value);
  }
  return {};
}

}  // namespace

ChatTemplate::ChatTemplate(std::string name, std::unique_ptr<const chat_template::Template> root)
    : name_(std::move(name)), root_(std::move(root)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::shared_ptr<const ChatTemplate>> ChatTemplate::parse(std::string_view source, std::string name) {
  if (source.size() > kMaxSource) {
    return error(Code::kLimitExceeded, name, ": the template has ", source.size(), " bytes, the limit is ", kMaxSource);
  }
  if (!chat_template::is_valid_utf8(source)) return error(Code::kInvalidFile, name, ": the template is not UTF-8");
  auto root = chat_template::parse_template(source);
  if (!root.ok()) return std::move(root).status().with_context(name);
  return std::shared_ptr<const ChatTemplate>(new ChatTemplate(std::move(name), std::move(root).value()));
}

Result<std::string> ChatTemplate::render(const RenderInput& input) const {
  Evaluator evaluator(input.limits, input.now);
  CADRE_TRY(define_input(evaluator, input));
  Result<std::string> text = evaluator.run(*root_);
  if (text.ok()) return text;
  return std::move(text).with_context(name_ + ": line " + std::to_string(evaluator.line()));
}

}  // namespace cadre
