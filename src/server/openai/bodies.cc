#include "server/openai/bodies.h"

#include "io/json.h"

namespace cadre::server {
namespace {

Json card_json(const ModelCard& card) {
  std::vector<Json::Member> out = {{"id", card.id},
                                   {"object", "model"},
                                   {"created", card.created},
                                   {"owned_by", "cadre"},
                                   {"root", card.root},
                                   {"parent", card.parent.empty() ? Json() : Json(card.parent)},
                                   {"max_model_len", card.max_model_len}};
  if (!card.digest.empty()) {
    out.emplace_back("digest", card.digest);
    out.emplace_back("version", card.version);
  }
  return Json::object(std::move(out));
}

}  // namespace

std::string models_body(const std::vector<ModelCard>& cards) {
  std::vector<Json> data;
  for (const ModelCard& card : cards) data.push_back(card_json(card));
  return Json::object({{"object", "list"}, {"data", Json::array(std::move(data))}}).dump();
}

std::string model_body(const ModelCard& card) { return card_json(card).dump(); }

std::string tokenize_body(const std::vector<std::int32_t>& ids, std::int64_t max_model_len,
                          const std::optional<std::vector<std::string>>& texts) {
  return Json::object({{"count", ids.size()},
                       {"max_model_len", max_model_len},
                       {"tokens", Json::array(ids)},
                       {"token_strs", texts ? Json::array(*texts) : Json()}})
      .dump();
}

std::string detokenize_body(std::string_view text) { return Json::object({{"prompt", text}}).dump(); }

std::string version_body(std::string_view version) { return Json::object({{"version", version}}).dump(); }

}  // namespace cadre::server
