// What every adapter format is: a recogniser for tensors of the file, and a reader that turns those it took into
// canonical terms. A new format is one file beside this one and a line in registry.cc.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "lora/adapter_config.h"
#include "lora/tensor_names.h"

namespace cadre {

// A tensor of the file, and the place in the model that its name means.
struct FileTensor {
  const TensorInfo* info = nullptr;
  View view;                // its elements, aligned
  std::string_view module;  // as the file spells it, without "base_model.model."
  TensorPart part = TensorPart::kOther;
  ModuleRef ref;      // to nothing if the model has no such module
  bool zero = false;  // every element is 0

  bool empty() const { return !view.defined(); }  // no elements
};

enum class ExpertProjection : std::uint8_t { kGate, kUp, kDown };

// Collects what the formats read, and refuses to bind one place twice.
class AdapterBuilder {
 public:
  AdapterBuilder(const AdapterTargets& targets, const AdapterOptions& options, const AdapterConfig& config,
                 Adapter& adapter)
      : targets_(targets), options_(options), config_(config), adapter_(adapter) {}

  const AdapterTargets& targets() const { return targets_; }
  const AdapterOptions& options() const { return options_; }
  const AdapterConfig& config() const { return config_; }

  // For the report: once for each format found in the file.
  void add_format(std::string_view name);
  void note(std::string text) { adapter_.report.notes.push_back(std::move(text)); }

  // `from` is a tensor of the term, for messages.
  Status set_delta(int dense, const LowRank& term, const FileTensor& from);
  Status set_replacement(int dense, const View& weight, const FileTensor& from);
  bool has_replacement(int dense) const;
  Status set_expert(int experts, ExpertProjection projection, int expert, const LowRank& term, const FileTensor& from);

  // Notes the pairs whose B is all zero.
  void count_zero_b(const FileTensor& b);
  void note_zero_b();
  // Notes the terms whose scale is 0, by lora_alpha or an alpha_pattern.
  void note_zero_scale();

 private:
  const AdapterTargets& targets_;
  const AdapterOptions& options_;
  const AdapterConfig& config_;
  Adapter& adapter_;
  int pairs_ = 0, zero_pairs_ = 0;
  std::string first_zero_;
};

struct AdapterFormat {
  std::string_view name;
  bool (*claims)(const FileTensor& tensor, const AdapterTargets& targets);
  Status (*read)(AdapterBuilder& builder, std::span<const FileTensor* const> tensors);
  bool takes_empty = false;  // a tensor without elements means something; everywhere else it is refused
};
// In order: the first that claims a tensor gets it.
std::span<const AdapterFormat> adapter_formats();

// One in each format's file.
extern const AdapterFormat kPeftLinearFormat, kPeftEmbeddingFormat, kReplacementFormat, kPerExpertFormat,
    kPeftStackedFormat, kPackedExpertsFormat, kTinkerExpertsFormat;

struct TensorPair {
  const FileTensor* a = nullptr;
  const FileTensor* b = nullptr;
};
// A and B of each place, ordered by place. An A without a B, or two of one, is an error.
Result<std::vector<TensorPair>> pair_up(std::span<const FileTensor* const> tensors);

// The message for a tensor of another shape than [rows, columns].
Status wrong_shape(const FileTensor& tensor, std::int64_t rows, std::int64_t columns);
Status wrong_rank(const FileTensor& tensor, std::int64_t got, const AdapterConfig::Term& want,
                  const AdapterConfig& config);
std::string quoted(const FileTensor& tensor);  // "tensor 'x' of /a/adapter_model.safetensors"

// The rows of gate or of up among those of the stacked parameter.
View half_of_rows(const View& both, bool up, const ExpertsTarget& target);

// A pair of one matrix: A [r, in] and B [out, r], r as the config says for the module.
Result<LowRank> plain_term(const AdapterBuilder& builder, const TensorPair& pair, std::int64_t in, std::int64_t out,
                           std::string_view model_name);

// Reads pairs of dense modules, linears or embeddings, under the format's name.
Status read_dense_pairs(AdapterBuilder& builder, std::span<const FileTensor* const> tensors, std::string_view format);

}  // namespace cadre
