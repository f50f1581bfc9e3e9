// adapter_config.json of PEFT: what changes the arithmetic is read, what cannot be honoured is refused by name.
#pragma once

#include <cadre/status.h>

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "lora/key_patterns.h"

namespace cadre {

class AdapterConfig {
 public:
  // `source` names the text in messages.
  static Result<AdapterConfig> parse(std::string_view text, std::string_view source);

  struct Term {
    int rank = 0;
    double alpha = 0;
    float scale = 0;  // alpha / rank, or alpha / sqrt(rank)
  };
  // For a module as the file names it, or "<module>.<parameter>" for a targeted parameter. `also` is the model's name
  // of the same, tried where no pattern matches the first.
  Result<Term> term(std::string_view name, std::string_view also = {}) const;

  // Whether target_parameters lists this "<module>.<parameter>".
  bool targets_parameter(std::string_view name) const;

  const std::string& source() const { return source_; }
  int rank() const { return rank_; }
  double alpha() const { return alpha_; }
  bool rslora() const { return rslora_; }
  bool ensure_weight_tying() const { return ensure_weight_tying_; }
  // Empty where target_modules is one expression, or "all-linear".
  const std::vector<std::string>& target_modules() const { return target_modules_; }
  const std::vector<std::string>& target_parameters() const { return target_parameters_; }
  const std::vector<std::string>& modules_to_save() const { return modules_to_save_; }
  // Fields that are set and that this reader does not know.
  const std::vector<std::string>& unknown_fields() const { return unknown_fields_; }

 private:
  std::string source_;
  int rank_ = 0;
  double alpha_ = 0;
  bool rslora_ = false, ensure_weight_tying_ = false;
  KeyPatterns rank_keys_, alpha_keys_;
  std::vector<int> rank_values_;
  std::vector<double> alpha_values_;
  std::vector<std::string> target_modules_, target_parameters_, modules_to_save_, unknown_fields_;
  std::unordered_set<std::string> parameter_set_;  // of target_parameters_
};

}  // namespace cadre
