#include "engine/sampling/generation_config.h"

#include <cmath>
#include <limits>
#include <string_view>

#include "base/result.h"

namespace cadre {
namespace {

constexpr std::int32_t kIdMax = std::numeric_limits<std::int32_t>::max();
constexpr std::size_t kMaxEndTokens = 4096;

Result<std::optional<double>> number(const Json& config, std::string_view key, double min, double max,
                                     std::string_view want) {
  if (!config.has(key)) return std::optional<double>();
  CADRE_ASSIGN(const double value, config.get_double(key));
  if (!std::isfinite(value) || value < min || value > max) {
    return error(Code::kInvalidFile, config.where(key), " is ", value, ", want ", want);
  }
  return std::optional<double>(value);
}

Result<std::optional<std::int32_t>> integer(const Json& config, std::string_view key, std::int64_t min) {
  if (!config.has(key)) return std::optional<std::int32_t>();
  CADRE_ASSIGN(const std::int64_t value, config.get_int(key, min, kIdMax));
  return std::optional<std::int32_t>(static_cast<std::int32_t>(value));
}

// Old conversions write -1 for "there is none".
Result<std::optional<std::int32_t>> token(const Json& config, std::string_view key) {
  CADRE_ASSIGN(std::optional<std::int32_t> id, integer(config, key, -1));
  if (id == -1) id.reset();
  return id;
}

Result<std::vector<std::int32_t>> end_tokens(const Json& config, std::string_view key) {
  std::vector<std::int32_t> ids;
  if (!config.has(key)) return ids;
  const Json& value = *config.find(key);
  if (!value.is_array() && !value.is_number()) {
    return error(Code::kInvalidFile, config.where(key), " is ", describe(value),
                 ", want a token id or a list of token ids");
  }
  if (!value.is_array()) {
    CADRE_ASSIGN(const std::optional<std::int32_t> id, token(config, key));
    if (id) ids.push_back(*id);
    return ids;
  }
  if (value.items().size() > kMaxEndTokens) {
    return error(Code::kInvalidFile, config.where(key), " has ", value.items().size(), " ids, want at most ",
                 kMaxEndTokens);
  }
  for (std::size_t i = 0; i < value.items().size(); ++i) {
    const std::string what = config.where(key) + "[" + std::to_string(i) + "]";
    CADRE_ASSIGN(const std::int64_t id, value.items()[i].as_int(what, -1, kIdMax));
    if (id >= 0) ids.push_back(static_cast<std::int32_t>(id));
  }
  return ids;
}

}  // namespace

Result<GenerationDefaults> read_generation_config(const Json& config) {
  constexpr double kAny = std::numeric_limits<double>::max();
  if (!config.is_object()) {
    return error(Code::kInvalidFile, "generation_config.json is ", describe(config), ", want an object");
  }
  GenerationDefaults out;
  if (config.has("do_sample")) {
    CADRE_ASSIGN(out.do_sample, config.get_bool("do_sample"));
  }
  CADRE_ASSIGN(out.temperature, number(config, "temperature", 0, kAny, "a finite number of at least 0"));
  CADRE_ASSIGN(out.top_k, integer(config, "top_k", -1));
  CADRE_ASSIGN(out.top_p, number(config, "top_p", 0, 1, "between 0 and 1"));
  CADRE_ASSIGN(out.min_p, number(config, "min_p", 0, 1, "between 0 and 1"));
  CADRE_ASSIGN(out.repetition_penalty, number(config, "repetition_penalty", std::numeric_limits<double>::min(), kAny,
                                              "a finite number above 0"));
  CADRE_ASSIGN(out.max_new_tokens, integer(config, "max_new_tokens", 1));
  CADRE_ASSIGN(out.min_new_tokens, integer(config, "min_new_tokens", 0));
  CADRE_ASSIGN(out.eos_token_ids, end_tokens(config, "eos_token_id"));
  CADRE_ASSIGN(out.bos_token_id, token(config, "bos_token_id"));
  CADRE_ASSIGN(out.pad_token_id, token(config, "pad_token_id"));
  return out;
}

}  // namespace cadre
