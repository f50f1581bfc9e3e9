#include "text/tokenizer/post_processor.h"

#include "base/result.h"
#include "text/tokenizer/vocab.h"

namespace cadre::text {
namespace {

constexpr std::size_t kMaxIds = 1024;

Result<std::int32_t> to_id(const JsonValue& json) {
  if (json.kind != JsonValue::Kind::kInteger || json.integer < 0 || json.integer > Vocab::kMaxId) {
    return error(Code::kInvalidFile, json.path, ": expected a token id");
  }
  return static_cast<std::int32_t>(json.integer);
}

// ["<s>", 0], as BertProcessing and RobertaProcessing have it.
Result<std::int32_t> named_id(const JsonValue& json, std::string_view key) {
  CADRE_ASSIGN(const auto* pair, json.need_array(key));
  if (pair->size() != 2) return error(Code::kInvalidFile, json.path, ".", key, ": expected [token, id]");
  return to_id((*pair)[1]);
}

}  // namespace

Result<PostProcessor> PostProcessor::from_json(const JsonValue* json) {
  PostProcessor processor;
  if (json != nullptr) CADRE_TRY(processor.add(*json));
  return processor;
}

Status PostProcessor::add_template(const JsonValue& json) {
  CADRE_ASSIGN(const auto* single, json.need_array("single"));
  std::vector<std::int32_t> before;
  std::vector<std::int32_t> after;
  bool seen_text = false;
  for (const JsonValue& part : *single) {
    if (const JsonValue* sequence = part.get("Sequence")) {
      CADRE_ASSIGN(const std::string_view id, sequence->need_string("id"));
      if (id != "A") return error(Code::kInvalidFile, sequence->path, ".id: expected 'A' for one text, got '", id, "'");
      if (seen_text) return error(Code::kUnsupported, json.path, ".single: has the text twice");
      seen_text = true;
      continue;
    }
    CADRE_ASSIGN(const JsonValue* special, part.need("SpecialToken"));
    CADRE_ASSIGN(const std::string_view name, special->need_string("id"));
    CADRE_ASSIGN(const JsonValue* tokens, json.need("special_tokens"));
    CADRE_ASSIGN(const JsonValue* token, tokens->need(name));
    CADRE_ASSIGN(const auto* ids, token->need_array("ids"));
    for (const JsonValue& id : *ids) {
      CADRE_ASSIGN(const std::int32_t value, to_id(id));
      (seen_text ? after : before).push_back(value);
      if (before.size() + after.size() > kMaxIds) {
        return error(Code::kLimitExceeded, json.path, ": adds more than ", kMaxIds, " tokens");
      }
    }
  }
  if (!seen_text) return error(Code::kUnsupported, json.path, ".single: has no place for the text");
  before_.insert(before_.begin(), before.begin(), before.end());
  after_.insert(after_.end(), after.begin(), after.end());
  return {};
}

Status PostProcessor::add(const JsonValue& json) {
  if (before_.size() + after_.size() > kMaxIds) {
    return error(Code::kLimitExceeded, json.path, ": more than ", kMaxIds, " tokens are added before it");
  }
  CADRE_ASSIGN(const std::string_view type, json.type());
  if (type == "Sequence") {
    CADRE_ASSIGN(const auto* parts, json.need_array("processors"));
    if (parts->size() > kMaxIds) return error(Code::kLimitExceeded, json.path, ": more than ", kMaxIds, " processors");
    for (const JsonValue& part : *parts) CADRE_TRY(add(part));
  } else if (type == "TemplateProcessing") {
    return add_template(json);
  } else if (type == "BertProcessing" || type == "RobertaProcessing") {
    CADRE_ASSIGN(const std::int32_t cls, named_id(json, "cls"));
    CADRE_ASSIGN(const std::int32_t sep, named_id(json, "sep"));
    before_.insert(before_.begin(), cls);
    after_.push_back(sep);
  } else if (type != "ByteLevel") {  // which only moves offsets
    return error(Code::kUnsupported, json.path, ": post-processor type '", type.substr(0, 100),
                 "' is not supported; supported are Sequence, TemplateProcessing, ByteLevel, BertProcessing, "
                 "RobertaProcessing");
  }
  return {};
}

}  // namespace cadre::text
