#include "model/rope_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/result.h"
#include "model/config.h"

namespace cadre {
namespace {

// Everything the variants need, whatever the style of the file.
struct Source {
  Json fields;  // rope_parameters or rope_scaling; null if there is none
  std::string type = "default";
  double theta = 10000, partial = 1;
  std::int64_t dim = 0, max_context = 0, original_context = 0;
  bool base_factor = false;
};

using Compute = Status (*)(const Source&, RopeConfig&);

// A number that the formulas divide by or take the logarithm of.
Result<double> positive(const Json& fields, std::string_view key, double value) {
  if (!(value > 0) || !std::isfinite(value)) {
    return error(Code::kInvalidFile, fields.where(key), " is ", value, ", want a finite number above 0");
  }
  return value;
}
Result<double> read_positive(const Json& fields, std::string_view key) {
  CADRE_ASSIGN(const double value, fields.get_double(key));
  return positive(fields, key, value);
}
Result<double> read_positive_or(const Json& fields, std::string_view key, double otherwise) {
  CADRE_ASSIGN(const double value, fields.get_double_or(key, otherwise));
  return positive(fields, key, value);
}

double base_power(const Source& s, std::size_t i) {
  return std::pow(s.theta, 2.0 * static_cast<double>(i) / static_cast<double>(s.dim));
}

std::vector<float> plain(const Source& s) {
  std::vector<float> out(static_cast<std::size_t>(s.dim / 2));
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = static_cast<float>(1.0 / base_power(s, i));
  return out;
}

Status make_default(const Source& s, RopeConfig& out) {
  out.inv_freq = plain(s);
  return {};
}

Status make_linear(const Source& s, RopeConfig& out) {
  CADRE_ASSIGN(const double factor, read_positive(s.fields, "factor"));
  out.inv_freq = plain(s);
  for (float& f : out.inv_freq) f = static_cast<float>(f / factor);
  return {};
}

Status make_dynamic(const Source& s, RopeConfig& out) {
  if (s.fields.has("alpha")) {
    if (!s.base_factor) {
      return error(Code::kUnsupported, s.fields.where("alpha"),
                   ": rotary embeddings of type dynamic with an alpha are ", "those of hunyuan_v1_moe only");
    }
    CADRE_ASSIGN(const double alpha, read_positive(s.fields, "alpha"));
    Source scaled = s;
    scaled.theta *= std::pow(alpha, static_cast<double>(s.dim) / static_cast<double>(s.dim - 2));
    out.inv_freq = plain(scaled);
    return {};
  }
  CADRE_ASSIGN(out.rope.factor, read_positive(s.fields, "factor"));
  out.rope.length = Rope::Length::kDynamic;
  out.inv_freq = plain(s);
  return {};
}

Status make_yarn(const Source& s, RopeConfig& out) {
  CADRE_ASSIGN(const double factor, read_positive(s.fields, "factor"));
  CADRE_ASSIGN(const double fast, read_positive_or(s.fields, "beta_fast", 32));
  CADRE_ASSIGN(const double slow, read_positive_or(s.fields, "beta_slow", 1));
  CADRE_ASSIGN(const bool truncate, s.fields.get_bool_or("truncate", true));
  const auto mscale = [&](double m) { return factor <= 1 ? 1.0 : 0.1 * m * std::log(factor) + 1.0; };
  double scale = mscale(1);
  const bool has_one = s.fields.has("mscale"), has_other = s.fields.has("mscale_all_dim");
  if (has_one && has_other) {
    CADRE_ASSIGN(const double m, s.fields.get_double("mscale"));
    CADRE_ASSIGN(const double all, s.fields.get_double("mscale_all_dim"));
    if (m != 0 && all != 0) scale = mscale(m) / mscale(all);
  }
  CADRE_ASSIGN(scale, read_positive_or(s.fields, "attention_factor", scale));
  out.rope.scale = static_cast<float>(scale);
  // The dimension whose wavelength makes `turns` full turns within the original context.
  const auto dimension = [&](double turns) {
    return static_cast<double>(s.dim) *
           std::log(static_cast<double>(s.original_context) / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.theta));
  };
  double low = dimension(fast), high = dimension(slow);
  if (truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(s.dim - 1));
  if (low == high) high += 0.001;
  out.inv_freq.resize(static_cast<std::size_t>(s.dim / 2));
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i) {
    const double extrapolated = 1.0 / base_power(s, i), interpolated = extrapolated / factor;
    const double ramp = std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    out.inv_freq[i] = static_cast<float>(interpolated * ramp + extrapolated * (1 - ramp));
  }
  return {};
}

Status make_llama3(const Source& s, RopeConfig& out) {
  CADRE_ASSIGN(const double factor, read_positive(s.fields, "factor"));
  CADRE_ASSIGN(const double low, read_positive(s.fields, "low_freq_factor"));
  CADRE_ASSIGN(const double high, read_positive(s.fields, "high_freq_factor"));
  // Llama 4 has equal ones: no band between the two.
  if (!(high >= low)) {
    return error(Code::kInvalidFile, s.fields.where("high_freq_factor"), " is ", high,
                 ", want at least low_freq_factor ", low);
  }
  const double context = static_cast<double>(s.original_context);
  out.inv_freq = plain(s);
  for (float& f : out.inv_freq) {
    const double wavelength = 2 * std::numbers::pi / f;
    if (wavelength < context / high) continue;
    if (wavelength > context / low) {
      f = static_cast<float>(f / factor);
    } else if (high > low) {
      const double smooth = (context / wavelength - low) / (high - low);
      f = static_cast<float>((1 - smooth) * f / factor + smooth * f);
    }
  }
  return {};
}

Status make_longrope(const Source& s, RopeConfig& out) {
  const double stretch = static_cast<double>(s.max_context) / static_cast<double>(s.original_context);
  CADRE_ASSIGN(const double factor, read_positive_or(s.fields, "factor", stretch));
  const double automatic =
      factor <= 1 ? 1.0 : std::sqrt(1 + std::log(factor) / std::log(static_cast<double>(s.original_context)));
  CADRE_ASSIGN(const double scale, read_positive_or(s.fields, "attention_factor", automatic));
  out.rope.scale = static_cast<float>(scale);
  out.rope.length = Rope::Length::kLongShort;
  const auto table = [&](std::string_view key, std::vector<float>& to) -> Status {
    CADRE_ASSIGN(const std::vector<double> factors, s.fields.get_double_list(key));
    to = plain(s);
    if (factors.size() != to.size()) {
      return error(Code::kInvalidFile, s.fields.where(key), " has ", factors.size(), " values, want ", to.size(),
                   ", half of the rotated dimensions");
    }
    for (std::size_t i = 0; i < to.size(); ++i) {
      CADRE_TRY(positive(s.fields, key, factors[i]).status());
      to[i] = static_cast<float>(1.0 / (factors[i] * base_power(s, i)));
    }
    return {};
  };
  CADRE_TRY(table("short_factor", out.inv_freq));
  return table("long_factor", out.long_inv_freq);
}

// The frequencies of a whole head, of which the last do not turn at all.
Status make_proportional(const Source& s, RopeConfig& out) {
  CADRE_ASSIGN(const double factor, read_positive_or(s.fields, "factor", 1));
  out.inv_freq = plain(s);
  const auto turning = static_cast<std::size_t>(s.partial * static_cast<double>(s.dim) / 2);
  for (std::size_t i = 0; i < out.inv_freq.size(); ++i) {
    out.inv_freq[i] = i < turning ? static_cast<float>(out.inv_freq[i] / factor) : 0.0f;
  }
  return {};
}

constexpr std::string_view kProportional = "proportional";
constexpr std::pair<std::string_view, Compute> kTypes[] = {
    {"default", make_default}, {"linear", make_linear},     {"dynamic", make_dynamic},          {"yarn", make_yarn},
    {"llama3", make_llama3},   {"longrope", make_longrope}, {kProportional, make_proportional},
};

// Names of one rotation: of Phi, and of models that see.
constexpr std::pair<std::string_view, std::string_view> kSameTypes[] = {{"su", "longrope"}, {"mrope", "default"}};

Result<std::string> read_type(const Json& fields) {
  CADRE_ASSIGN(const std::string older, fields.get_string_or("type", "default"));
  CADRE_ASSIGN(const std::string type, fields.get_string_or("rope_type", older));
  const bool same = type == older || std::any_of(std::begin(kSameTypes), std::end(kSameTypes), [&](const auto& names) {
                      return names.first == older && names.second == type;
                    });
  if (fields.has("type") && !same) {
    return error(Code::kInvalidFile, fields.where("rope_type"), " is '", type, "' and ", fields.where("type"), " is '",
                 older, "', which mean the same; want one of the two");
  }
  return type;
}

// What the object says and the config beside it as well: the object would win without a word.
// `default_outside` is what transformers writes outside whatever the object says.
Status refuse_conflict(const Json& config, std::string_view object, std::string_view key, double default_outside = 0) {
  const Json* fields = config.find(object);
  if (!config.has(key) || !fields->has(key)) return {};
  CADRE_ASSIGN(const double outside, config.get_double(key));
  CADRE_ASSIGN(const double inside, fields->get_double(key));
  if (outside == inside || outside == default_outside) return {};
  return error(Code::kInvalidFile, config.where(key), " is ", outside, " and ", fields->where(key), " is ", inside,
               ", which mean the same, and the latter would count; set ", object, ".", key, ", as an object: {\"",
               object, "\": {\"", key, "\": ..., and its other fields}}");
}

bool same_members(const Json& a, const Json& b) {
  if (a.members().size() != b.members().size()) return false;  // looks all of them up
  return std::all_of(a.members().begin(), a.members().end(), [&](const Json::Member& member) {
    const Json* other = b.find(member.first);
    if (other == nullptr) return false;
    if (member.second.is_number() && other->is_number()) {
      return member.second.as_double("").value() == other->as_double("").value();
    }
    return member.second.dump() == other->dump();
  });
}

// Version 5's object beside that of version 4.
Status refuse_two_objects(const Json& config) {
  if (!config.has("rope_parameters") || !config.has("rope_scaling")) return {};
  CADRE_ASSIGN(const Json scaling, config.get_object("rope_scaling"));
  CADRE_ASSIGN(const Json parameters, config.get_object("rope_parameters"));
  if (scaling.members().empty() || same_members(scaling, parameters)) return {};
  return error(Code::kInvalidFile, config.where("rope_scaling"), " and ", config.where("rope_parameters"),
               " mean the same and differ; give rope_parameters instead, with all its fields, rope_theta among them, ",
               "and no rope_scaling");
}

// theta, partial, type and original_context of one object.
Status read_fields(Source& s) {
  CADRE_ASSIGN(s.theta, s.fields.get_double_or("rope_theta", s.theta));
  CADRE_ASSIGN(s.partial, s.fields.get_double_or("partial_rotary_factor", s.partial));
  CADRE_ASSIGN(s.type, read_type(s.fields));
  CADRE_ASSIGN(s.original_context, s.fields.get_int_or("original_max_position_embeddings", 0, 1, kMaxConfigSize));
  return {};
}

Result<Source> read_source(const Json& config, const RopeOptions& options) {
  Source s;
  s.base_factor = options.base_factor;
  CADRE_TRY(refuse_two_objects(config));
  for (const std::string_view key : {"rope_parameters", "rope_scaling"}) {
    if (!config.has(key)) continue;
    CADRE_ASSIGN(s.fields, config.get_object(key));
    CADRE_TRY(refuse_conflict(config, key, "rope_theta"));
    CADRE_TRY(refuse_conflict(config, key, "partial_rotary_factor", options.partial_otherwise));
    CADRE_TRY(refuse_conflict(config, key, "original_max_position_embeddings"));
    break;
  }
  CADRE_ASSIGN(s.theta, config.get_double_or("rope_theta", 10000));
  CADRE_ASSIGN(s.partial, config.get_double_or("partial_rotary_factor", options.partial_otherwise));
  if (s.fields.is_object()) CADRE_TRY(read_fields(s));
  // Phi keeps it at the top level.
  CADRE_ASSIGN(const std::int64_t outside, config.get_int_or("original_max_position_embeddings", 0, 1, kMaxConfigSize));
  if (s.original_context == 0) s.original_context = outside;
  return s;
}

Result<RopeConfig> compute(const Json& config, Source s, std::int64_t head_dim, std::int64_t max_context) {
  if (!(s.partial > 0 && s.partial <= 1) || !(s.theta > 1) || !std::isfinite(s.theta)) {
    return error(Code::kInvalidFile, config.where("rope_parameters"), ": got rope_theta ", s.theta,
                 " and partial_rotary_factor ", s.partial, ", want a finite theta above 1 and a factor in (0, 1]");
  }
  s.dim = s.type == kProportional ? head_dim : static_cast<std::int64_t>(static_cast<double>(head_dim) * s.partial);
  s.max_context = max_context;
  if (s.original_context == 0) s.original_context = max_context;
  if (s.dim < 4 || s.dim % 2 != 0) {
    return error(Code::kInvalidFile, config.where("head_dim"), ": ", s.dim,
                 " rotated dimensions, want an even number above 2");
  }
  RopeConfig out;
  out.rope.dim = static_cast<int>(s.dim);
  out.rope.theta = s.theta;
  out.rope.original_context = s.original_context;
  std::string known;
  for (const auto& [name, make] : kTypes) {
    known += (known.empty() ? "" : ", ") + std::string(name);
    if (name != s.type) continue;
    CADRE_TRY(make(s, out));
    for (const auto* table : {&out.inv_freq, &out.long_inv_freq}) {
      if (std::all_of(table->begin(), table->end(), [](float f) { return std::isfinite(f); })) continue;
      return error(Code::kInvalidFile, config.where("rope_parameters"),
                   ": its numbers give frequencies that are not finite");
    }
    if (!std::isfinite(out.rope.scale)) {
      return error(Code::kInvalidFile, config.where("rope_parameters"),
                   ": its numbers give a scale that is not finite");
    }
    return out;
  }
  return error(Code::kUnsupported, config.where("rope_parameters.rope_type"), " is '", s.type,
               "', want one of: ", known);
}

}  // namespace

Result<RopeConfig> read_rope(const Json& config, std::int64_t head_dim, std::int64_t max_context,
                             const RopeOptions& options) {
  CADRE_ASSIGN(Source source, read_source(config, options));
  return compute(config, std::move(source), head_dim, max_context);
}

Result<RopeConfig> read_layer_rope(const Json& config, std::string_view layer_type, std::int64_t head_dim,
                                   std::int64_t max_context) {
  Source source;
  CADRE_TRY(refuse_two_objects(config));
  CADRE_ASSIGN(const Json all, config.get_object("rope_parameters"));
  CADRE_ASSIGN(source.fields, all.get_object(layer_type));
  CADRE_TRY(source.fields.get_double("rope_theta").status());
  CADRE_TRY(read_fields(source));
  return compute(config, std::move(source), head_dim, max_context);
}

}  // namespace cadre
