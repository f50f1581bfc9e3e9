#include "text/tokenizer/tokenizer_file.h"

#include <simdjson.h>

#include <string>

#include "base/result.h"

namespace cadre::text {
namespace {

namespace dom = simdjson::dom;

constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxNodes = 200'000;  // of all parts but model and added_tokens
constexpr std::size_t kMaxAddedTokens = 1'000'000;
constexpr std::size_t kMaxPath = 200;  // bytes of a path in messages: keys come from the file

const char* type_name(dom::element element) {
  switch (element.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::INT64:
    case dom::element_type::UINT64:
      return "an integer";
    case dom::element_type::DOUBLE:
      return "a number";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "a boolean";
    case dom::element_type::NULL_VALUE:
      return "null";
  }
  return "nothing";
}

Status wrong_type(std::string_view field, const char* want, dom::element got) {
  return error(Code::kInvalidFile, field, ": expected ", want, ", got ", type_name(got));
}

// The member, or nothing when it is absent or null.
std::optional<dom::element> member(dom::object object, std::string_view key) {
  dom::element value;
  if (object.at_key(key).get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::string join_path(const std::string& path, std::string_view key) {
  if (path.size() > kMaxPath) return path;
  return path + "." + std::string(key.substr(0, kMaxPath));
}

// The parser has bounded the depth.
Status convert(dom::element element, std::string path, std::size_t& nodes, JsonValue& out) {
  if (++nodes > kMaxNodes) {
    return error(Code::kLimitExceeded, path, ": the parts of the file besides the model have more than ", kMaxNodes,
                 " values");
  }
  out.path = std::move(path);
  switch (element.type()) {
    case dom::element_type::ARRAY: {
      out.kind = JsonValue::Kind::kArray;
      for (dom::element item : dom::array(element)) {
        std::string item_path = out.path;
        if (item_path.size() <= kMaxPath) item_path += "[" + std::to_string(out.items.size()) + "]";
        out.items.emplace_back();
        CADRE_TRY(convert(item, std::move(item_path), nodes, out.items.back()));
      }
      break;
    }
    case dom::element_type::OBJECT: {
      out.kind = JsonValue::Kind::kObject;
      for (dom::key_value_pair field : dom::object(element)) {
        out.keys.emplace_back(field.key);
        out.items.emplace_back();
        CADRE_TRY(convert(field.value, join_path(out.path, field.key), nodes, out.items.back()));
      }
      break;
    }
    case dom::element_type::INT64:
      out.kind = JsonValue::Kind::kInteger;
      out.integer = std::int64_t(element);
      break;
    case dom::element_type::UINT64:  // above the range of int64_t: no field has such integers
    case dom::element_type::DOUBLE:
      out.kind = JsonValue::Kind::kNumber;
      out.number = double(element);
      break;
    case dom::element_type::STRING:
      out.kind = JsonValue::Kind::kString;
      out.string = std::string(std::string_view(element));
      break;
    case dom::element_type::BOOL:
      out.kind = JsonValue::Kind::kBool;
      out.boolean = bool(element);
      break;
    case dom::element_type::NULL_VALUE:
      break;
  }
  return {};
}

Status convert_member(dom::object root, const char* key, std::size_t& nodes, std::optional<JsonValue>& out) {
  const auto value = member(root, key);
  if (!value) return {};
  if (!value->is_object()) return wrong_type(key, "an object", *value);
  return convert(*value, key, nodes, out.emplace());
}

Result<bool> bool_member(dom::object model, const char* key) {
  const auto value = member(model, key);
  if (!value) return false;
  if (!value->is_bool()) return wrong_type(std::string("model.") + key, "true or false", *value);
  return bool(*value);
}

Result<std::string> string_member(dom::object model, const char* key) {
  const auto value = member(model, key);
  if (!value) return std::string();
  if (!value->is_string()) return wrong_type(std::string("model.") + key, "a string", *value);
  return std::string(std::string_view(*value));
}

Status read_vocab(dom::object model, Vocab& vocab) {
  const auto value = member(model, "vocab");
  if (!value) return error(Code::kInvalidFile, "model: lacks 'vocab'");
  if (!value->is_object()) return wrong_type("model.vocab", "an object", *value);
  const dom::object entries(*value);
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (dom::key_value_pair entry : entries) {
    ++count;
    bytes += entry.key.size();
  }
  if (count > Vocab::kMaxTokens) {
    return error(Code::kLimitExceeded, "model.vocab: has ", count, " tokens, the limit is ", Vocab::kMaxTokens);
  }
  vocab.reserve(count, bytes);
  for (dom::key_value_pair entry : entries) {
    std::int64_t id = 0;
    if (entry.value.get(id) != simdjson::SUCCESS) {
      return error(Code::kInvalidFile, "model.vocab: token '", entry.key.substr(0, 100),
                   "' has a value that is not an id, but ", type_name(entry.value));
    }
    CADRE_TRY(vocab.add(entry.key, id).with_context("model.vocab"));
  }
  return {};
}

// A merge is ["a", "b"], or "a b" in older files.
Status read_merge(dom::element merge, std::size_t index, Bpe& bpe) {
  if (merge.is_string()) {
    const std::string_view text(merge);
    const auto space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      return error(Code::kInvalidFile, "merge ", index, ": '", text.substr(0, 100),
                   "' is not two tokens and one space");
    }
    return bpe.add_merge(text.substr(0, space), text.substr(space + 1));
  }
  if (!merge.is_array()) {
    return error(Code::kInvalidFile, "merge ", index, ": expected a string or two strings, got ", type_name(merge));
  }
  std::string_view parts[2];
  std::size_t count = 0;
  for (dom::element part : dom::array(merge)) {
    if (count == 2 || part.get(parts[count]) != simdjson::SUCCESS) {
      count = 3;
      break;
    }
    ++count;
  }
  if (count != 2) return error(Code::kInvalidFile, "merge ", index, ": expected two strings");
  return bpe.add_merge(parts[0], parts[1]);
}

Status read_merges(dom::object model, Bpe& bpe) {
  const auto value = member(model, "merges");
  if (!value) return error(Code::kInvalidFile, "model: lacks 'merges'");
  if (!value->is_array()) return wrong_type("model.merges", "an array", *value);
  const dom::array merges(*value);
  std::size_t count = 0;
  for (dom::element merge : merges) {
    (void)merge;
    ++count;
  }
  if (count > Bpe::kMaxMerges) {
    return error(Code::kLimitExceeded, "model.merges: has ", count, " merges, the limit is ", Bpe::kMaxMerges);
  }
  bpe.reserve_merges(count);
  std::size_t index = 0;
  for (dom::element merge : merges) CADRE_TRY(read_merge(merge, index++, bpe).with_context("model.merges"));
  return {};
}

Status read_model(dom::object root, Bpe& bpe) {
  const auto value = member(root, "model");
  if (!value) return error(Code::kInvalidFile, "lacks 'model': not a tokenizer.json");
  if (!value->is_object()) return wrong_type("model", "an object", *value);
  const dom::object model(*value);
  CADRE_ASSIGN(std::string type, string_member(model, "type"));
  if (type.empty() && member(model, "merges")) type = "BPE";  // older files do not say
  if (type != "BPE") {
    return error(Code::kUnsupported, "model.type: '", type.substr(0, 100), "' is not supported; supported is BPE");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    CADRE_ASSIGN(const std::string text, string_member(model, key));
    if (!text.empty()) {
      return error(Code::kUnsupported, "model.", key, ": '", text.substr(0, 100), "' is not supported");
    }
  }
  if (const auto dropout = member(model, "dropout")) {
    double rate = 0;
    if (dropout->get(rate) != simdjson::SUCCESS) return wrong_type("model.dropout", "a number", *dropout);
    if (rate != 0) {
      return error(Code::kUnsupported, "model.dropout: ", rate, " would give other tokens each time; set it to null");
    }
  }
  BpeOptions options;
  CADRE_ASSIGN(options.byte_fallback, bool_member(model, "byte_fallback"));
  CADRE_ASSIGN(options.fuse_unk, bool_member(model, "fuse_unk"));
  CADRE_ASSIGN(options.ignore_merges, bool_member(model, "ignore_merges"));
  CADRE_ASSIGN(options.unk_token, string_member(model, "unk_token"));
  CADRE_TRY(read_vocab(model, bpe.vocab()));
  CADRE_TRY(read_merges(model, bpe));
  bpe.finish(std::move(options));
  return {};
}

Status read_added(dom::object root, std::vector<AddedToken>& out) {
  const auto value = member(root, "added_tokens");
  if (!value) return {};
  if (!value->is_array()) return wrong_type("added_tokens", "an array", *value);
  for (dom::element item : dom::array(*value)) {
    if (out.size() >= kMaxAddedTokens) {
      return error(Code::kLimitExceeded, "added_tokens: has more than ", kMaxAddedTokens, " tokens");
    }
    JsonValue json;
    std::size_t nodes = 0;
    CADRE_TRY(convert(item, "added_tokens[" + std::to_string(out.size()) + "]", nodes, json));
    CADRE_ASSIGN(AddedToken token, AddedToken::from_json(json));
    out.push_back(std::move(token));
  }
  return {};
}

}  // namespace

Result<TokenizerFile> parse_tokenizer_file(std::string_view json) {
  if (json.size() > kMaxTokenizerBytes) {
    return error(Code::kLimitExceeded, "has ", json.size(), " bytes, the limit is ", kMaxTokenizerBytes);
  }
  dom::parser parser;
  if (parser.allocate(json.size(), kMaxDepth) != simdjson::SUCCESS) {
    return error(Code::kOutOfMemory, "no memory to parse ", json.size(), " bytes");
  }
  dom::element root;
  if (const auto code = parser.parse(json.data(), json.size()).get(root); code != simdjson::SUCCESS) {
    if (code == simdjson::DEPTH_ERROR) {
      return error(Code::kLimitExceeded, "is nested deeper than ", kMaxDepth, " levels");
    }
    return error(Code::kInvalidFile, "is not valid JSON: ", simdjson::error_message(code));
  }
  if (!root.is_object()) return wrong_type("the file", "an object", root);
  const dom::object object(root);
  TokenizerFile file;
  std::size_t nodes = 0;
  CADRE_TRY(convert_member(object, "normalizer", nodes, file.normalizer));
  CADRE_TRY(convert_member(object, "pre_tokenizer", nodes, file.pre_tokenizer));
  CADRE_TRY(convert_member(object, "post_processor", nodes, file.post_processor));
  CADRE_TRY(convert_member(object, "decoder", nodes, file.decoder));
  CADRE_TRY(read_added(object, file.added));
  CADRE_TRY(read_model(object, file.bpe));
  return file;
}

}  // namespace cadre::text
