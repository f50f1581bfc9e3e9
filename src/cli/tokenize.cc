// cadre tokenize: text to token ids and back, as JSON.
#include <utility>

#include "base/result.h"
#include "cli/commands.h"
#include "io/json.h"
#include "text/tokenizer/tokenizer.h"

namespace cadre::cli {
namespace {

using Ids = std::vector<std::int32_t>;

Json decoded(const Tokenizer& tokenizer, const Ids& ids, std::vector<Json::Member> members) {
  members.emplace_back("decoded", tokenizer.decode(ids, false));
  members.emplace_back("decoded_skip", tokenizer.decode(ids, true));
  return Json::object(std::move(members));
}

Result<Json> encoded(const Tokenizer& tokenizer, const std::string& text) {
  CADRE_ASSIGN(const Ids ids, tokenizer.encode(text, true));
  CADRE_ASSIGN(const Ids bare, tokenizer.encode(text, false));
  return decoded(tokenizer, bare, {{"ids", Json::array(ids)}, {"ids_no_special", Json::array(bare)}});
}

Result<std::vector<std::string>> texts_of(const TokenizeCommand& command) {
  if (command.text) return std::vector<std::string>{*command.text};
  CADRE_ASSIGN(const Json cases, Json::parse_file(command.cases_file));
  if (!cases.is_array()) {
    return error(Code::kInvalidFile, command.cases_file, ": is ", describe(cases),
                 ", want an array of objects with a field 'text'");
  }
  std::vector<std::string> texts;
  for (const Json& item : cases.items()) {
    const std::string where = command.cases_file + ": case " + std::to_string(texts.size());
    const Json* text = item.find("text");
    if (text == nullptr) return error(Code::kInvalidFile, where, " has no field 'text'");
    CADRE_ASSIGN(std::string value, text->as_string(where + ", field 'text'"));
    texts.push_back(std::move(value));
  }
  return texts;
}

Result<std::vector<Json>> answers(const TokenizeCommand& command) {
  CADRE_ASSIGN(const std::unique_ptr<Tokenizer> tokenizer, Tokenizer::load(command.model_dir));
  std::vector<Json> results;
  if (command.decode) {
    for (const std::int32_t id : *command.decode) {
      if (id < 0 || !tokenizer->id_to_token(id)) {
        return error(Code::kInvalidArgument, "--decode: ", id, " is not the id of a token, want 0 to ",
                     tokenizer->vocab_size() - 1);
      }
    }
    results.push_back(decoded(*tokenizer, *command.decode, {{"ids", Json::array(*command.decode)}}));
    return results;
  }
  CADRE_ASSIGN(const std::vector<std::string> texts, texts_of(command));
  for (const std::string& text : texts) {
    CADRE_ASSIGN(Json result, encoded(*tokenizer, text));
    results.push_back(std::move(result));
  }
  return results;
}

}  // namespace

int execute(const TokenizeCommand& command) {
  const Result<std::vector<Json>> results = answers(command);
  if (!results.ok()) return report(results.status());
  // One object a line, so that the array can be read by people and by line tools too.
  std::string text = "[";
  for (const Json& result : *results) text += (text.size() > 1 ? ",\n " : "") + result.dump();
  Output out;
  out.write(text + "]\n");
  return out.exit_code(0);
}

}  // namespace cadre::cli
