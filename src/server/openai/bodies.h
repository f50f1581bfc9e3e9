// The replies of the routes that generate nothing, as JSON text.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace cadre::server {

// One model of /v1/models: the base, or an adapter.
struct ModelCard {
  std::string id;
  std::int64_t created = 0;  // seconds since 1970
  std::string root;          // vLLM: where it lies; the id for those who may not see paths
  std::string parent;        // the base model of an adapter; empty: null
  std::int64_t max_model_len = 0;
  std::string digest;  // of an adapter; empty: left out, with the version
  std::uint64_t version = 0;
};
std::string models_body(const std::vector<ModelCard>& cards);
std::string model_body(const ModelCard& card);

// /tokenize; `texts` of each token where they were asked for.
std::string tokenize_body(const std::vector<std::int32_t>& ids, std::int64_t max_model_len,
                          const std::optional<std::vector<std::string>>& texts);
std::string detokenize_body(std::string_view text);
std::string version_body(std::string_view version);

}  // namespace cadre::server
