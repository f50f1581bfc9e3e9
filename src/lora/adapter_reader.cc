#include "lora/adapter_reader.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <unordered_set>

#include "base/result.h"
#include "io/mapped_file.h"
#include "lora/adapter_report.h"
#include "lora/formats/format.h"
#include "lora/weights_scan.h"

namespace cadre {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 64u << 20;
constexpr const char* kConfigFile = "adapter_config.json";
constexpr const char* kWeightsFile = "adapter_model.safetensors";

// What the views of an adapter point into.
struct AdapterFiles {
  std::shared_ptr<SafetensorsFile> weights;
  std::vector<std::unique_ptr<std::byte[]>> copies;  // of tensors at odd addresses
};

Status check_folder(const fs::path& folder) {
  std::error_code ignored;
  if (!fs::exists(folder, ignored)) {
    return error(Code::kNotFound, folder.string(), " is not there; want a folder with ", kConfigFile, " and ",
                 kWeightsFile);
  }
  if (!fs::is_directory(folder, ignored)) {
    return error(Code::kInvalidArgument, folder.string(), " is a file, want a folder with ", kConfigFile, " and ",
                 kWeightsFile);
  }
  if (!fs::exists(folder / kConfigFile, ignored)) {
    return error(Code::kNotFound, (folder / kConfigFile).string(), " is not there");
  }
  if (fs::exists(folder / kWeightsFile, ignored)) return {};
  for (const char* pickle : {"adapter_model.bin", "adapter_model.pt"}) {
    if (fs::exists(folder / pickle, ignored)) {
      return error(Code::kUnsupported, (folder / pickle).string(),
                   " is a pickle, which can run code when it is read; convert it to safetensors: load it with PEFT and "
                   "call save_pretrained(folder, safe_serialization=True)");
    }
  }
  return error(Code::kNotFound, (folder / kWeightsFile).string(), " is not there");
}

Status no_matrix(const TensorInfo& tensor) {
  return error(Code::kInvalidFile, *tensor.file, ": tensor '", tensor.name, "' is ", describe(tensor),
               ", want a matrix");
}

Result<View> view_of(const TensorInfo& tensor, AdapterFiles* files) {
  if (tensor.elements() == 0) return View{};  // a placeholder in one format, refused in the others
  if (tensor.shape.empty() || tensor.shape.size() > View::kMaxRank) return no_matrix(tensor);
  View view;
  view.dtype = tensor.dtype;
  view.rank = static_cast<int>(tensor.shape.size());
  std::int64_t step = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    view.shape[i] = tensor.shape[i];
    view.stride[i] = step;
    step *= tensor.shape[i];
  }
  const std::byte* data = tensor.data;
  if (!tensor.is_aligned()) {
    files->copies.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(tensor.nbytes)));
    std::memcpy(files->copies.back().get(), data, static_cast<std::size_t>(tensor.nbytes));
    data = files->copies.back().get();
  }
  view.data = const_cast<std::byte*>(data);  // a View does not say that it is read-only; nothing writes to adapters
  return view;
}

// The tensors of the file with their places in the model. Kinds that are never supported are refused here.
Result<std::vector<FileTensor>> locate(const SafetensorsFile& file, const WeightsScan& scan, const ModuleIndex& index,
                                       AdapterFiles* files) {
  std::vector<FileTensor> tensors;
  tensors.reserve(file.tensors().size());
  for (std::size_t i = 0; i < file.tensors().size(); ++i) {
    const TensorInfo& info = file.tensors()[i];
    const TensorName name = parse_tensor_name(info.name);
    if (name.part == TensorPart::kMagnitude) {
      return error(Code::kUnsupported, file.path(), ": tensor '", info.name,
                   "' is of DoRA, which is not supported; merge the adapter into the base weights");
    }
    if (name.part == TensorPart::kBias) {
      return error(Code::kUnsupported, file.path(), ": tensor '", info.name,
                   "' is a trained bias, which is not supported; train with bias='none', or merge the adapter");
    }
    FileTensor& tensor = tensors.emplace_back();
    tensor.info = &info;
    tensor.module = name.module;
    tensor.part = name.part;
    tensor.zero = scan.zero[i];
    if (const auto ref = index.find(name.module)) tensor.ref = *ref;
    CADRE_ASSIGN(tensor.view, view_of(info, files));
  }
  return tensors;
}

Status refuse_left_over(const std::vector<const FileTensor*>& tensors, const SafetensorsFile& file,
                        const ModuleIndex& index) {
  constexpr std::size_t kShown = 10;
  std::string names;
  for (std::size_t i = 0; i < std::min(kShown, tensors.size()); ++i) {
    names.append(i == 0 ? "'" : ", '").append(tensors[i]->info->name).append("'");
  }
  if (tensors.size() > kShown) names += ", ...";
  const FileTensor& first = *tensors.front();
  std::string hint;
  if (first.ref.dense >= 0 || first.ref.experts >= 0) {
    hint = "the module is in the model, but a tensor of this name is not supported";
  } else {
    hint = index.hint(first.module);
  }
  return error(Code::kInvalidFile, file.path(), ": ", tensors.size(), " of ", file.tensors().size(),
               " tensors bind to nothing: ", names, "; ", hint);
}

// Which modules may be saved whole: lm_head and the embedding.
Status check_modules_to_save(const AdapterConfig& config, const AdapterTargets& targets) {
  for (const std::string& name : config.modules_to_save()) {
    const std::string_view last = last_component(name);
    bool known = last == "lm_head" || last == "embed_tokens";
    for (const DenseTarget& target : targets.dense)
      known = known || (target.embedding && target.module.ends_with(name));
    if (!known) {
      return error(Code::kUnsupported, config.source(), ": modules_to_save lists '", name,
                   "'; only lm_head and the embedding are supported; merge the adapter into the base weights");
    }
  }
  return {};
}

// A whole weight that training changed and that is not in the file would silently be the base's.
Status check_saved(const AdapterConfig& config, const AdapterTargets& targets, const std::vector<FileTensor>& tensors,
                   const std::string& file) {
  for (const std::string& name : config.modules_to_save()) {
    const auto is_it = [&](std::string_view module) {
      return module == name || (module.ends_with(name) && module[module.size() - name.size() - 1] == '.');
    };
    const bool there = std::any_of(tensors.begin(), tensors.end(), [&](const FileTensor& tensor) {
      if (tensor.ref.dense < 0) return false;
      const DenseTarget& target = targets.dense[static_cast<std::size_t>(tensor.ref.dense)];
      // The embedding goes by another name in some families; lm_head is lm_head everywhere.
      return is_it(tensor.module) || is_it(target.module) ||
             (target.embedding && last_component(name) == "embed_tokens");
    });
    if (!there) {
      return error(Code::kInvalidFile, config.source(), ": modules_to_save lists '", name, "', and ", file,
                   " holds no tensor of it: the trained weight is lost; save the adapter again, or take '", name,
                   "' out of modules_to_save if it was not trained");
    }
  }
  return {};
}

// ensure_weight_tying makes PEFT train lm_head and the embedding as one.
Status check_tying(const AdapterConfig& config, const AdapterTargets& targets, const Adapter& adapter) {
  if (!config.ensure_weight_tying()) return {};
  const bool tied = std::any_of(targets.dense.begin(), targets.dense.end(), [](const auto& t) { return t.tied; });
  for (const auto& [index, lora] : adapter.dense) {
    const DenseTarget& target = targets.dense[static_cast<std::size_t>(index)];
    if (tied && (target.embedding || target.tied)) {
      return error(Code::kUnsupported, config.source(), ": ensure_weight_tying is set and '", target.module,
                   "' is adapted, while the model ties lm_head to the embedding: this is not supported; merge the "
                   "adapter into the base weights");
    }
  }
  return {};
}

// Entries of a list in the config that match no module of the file.
void note_unmatched(AdapterBuilder& builder, std::string_view field, const std::vector<std::string>& listed,
                    const std::vector<std::string>& bound) {
  if (listed.empty()) return;
  std::unordered_set<std::string_view> unmatched(listed.begin(), listed.end());
  unmatched.erase("all-linear");
  for (const std::string& module : bound) {
    for (std::string_view end = module; !unmatched.empty();) {
      unmatched.erase(end);
      const std::size_t dot = end.find('.');
      if (dot == std::string_view::npos) break;
      end.remove_prefix(dot + 1);
    }
  }
  constexpr std::size_t kShown = 10;
  std::string names;
  std::size_t shown = 0;
  for (const std::string& name : listed) {
    if (!unmatched.contains(name)) continue;
    if (shown++ == kShown) break;
    names += (names.empty() ? "'" : ", '") + name + "'";
  }
  if (unmatched.size() > kShown) names += " and " + std::to_string(unmatched.size() - kShown) + " more";
  if (!unmatched.empty()) {
    builder.note(std::string(field) + " lists " + names + ", and the file holds no tensor for it");
  }
}

void add_notes(AdapterBuilder& builder, const std::vector<FileTensor>& tensors) {
  const AdapterConfig& config = builder.config();
  bool stacked = false;
  std::vector<std::string> modules, parameters;
  for (const FileTensor& tensor : tensors) {
    // One of a pair is enough; whole weights have no pair.
    if (tensor.part == TensorPart::kLoraB || tensor.part == TensorPart::kEmbeddingB) continue;
    modules.emplace_back(tensor.module);
    if (tensor.ref.dense >= 0) parameters.push_back(modules.back() + ".weight");
    if (tensor.ref.experts < 0) continue;
    const ExpertsTarget& target = builder.targets().experts[static_cast<std::size_t>(tensor.ref.experts)];
    if (!tensor.ref.rest.empty() && tensor.ref.rest != "base_layer") {
      parameters.push_back(target.module + "." + tensor.ref.rest);  // packed experts name the parameter
      continue;
    }
    stacked = true;
    parameters.push_back(target.module + "." + target.stacked_up_name);
    parameters.push_back(target.module + "." + target.stacked_down_name);
  }
  note_unmatched(builder, "target_modules", config.target_modules(), modules);
  note_unmatched(builder, "target_parameters", config.target_parameters(), parameters);
  builder.note_zero_b();
  builder.note_zero_scale();
  if (!stacked && builder.options().orientation != Orientation::kAuto) {
    builder.note("option orientation changes nothing: the file holds no stacked experts");
  }
  if (!stacked && builder.options().b_order != BOrder::kPeft) {
    builder.note("option b_order changes nothing: the file holds no stacked experts");
  }
  for (const std::string& field : config.unknown_fields()) {
    builder.note("field '" + field + "' of the config is set, not known here, and ignored");
  }
}

Result<std::shared_ptr<const Adapter>> read(const fs::path& folder, const std::string& name,
                                            const AdapterTargets& targets, const AdapterOptions& options,
                                            std::vector<std::string>* left_over) {
  CADRE_TRY(check_folder(folder));
  CADRE_ASSIGN(const std::string text, read_text_file(folder / kConfigFile, kMaxConfigBytes));
  CADRE_ASSIGN(const AdapterConfig config, AdapterConfig::parse(text, (folder / kConfigFile).string()));
  CADRE_TRY(check_modules_to_save(config, targets));

  auto files = std::make_shared<AdapterFiles>();
  // A copy, not a map: adapters are replaced and deleted while they serve, and a map of a file that shrinks kills the
  // process.
  CADRE_ASSIGN(files->weights, SafetensorsFile::read(folder / kWeightsFile));
  const SafetensorsFile& file = *files->weights;
  if (file.tensors().empty()) return error(Code::kInvalidFile, file.path(), " holds no tensors");
  CADRE_ASSIGN(const WeightsScan scan, scan_weights(text, file, options.check_weights));

  const ModuleIndex index(targets);
  CADRE_ASSIGN(const std::vector<FileTensor> tensors, locate(file, scan, index, files.get()));

  auto adapter = std::make_shared<Adapter>();
  adapter->name = name;
  adapter->digest = scan.digest;
  AdapterBuilder builder(targets, options, config, *adapter);

  const std::span<const AdapterFormat> formats = adapter_formats();
  std::vector<std::vector<const FileTensor*>> claimed(formats.size());
  std::vector<const FileTensor*> unclaimed;
  for (const FileTensor& tensor : tensors) {
    const auto format =
        std::find_if(formats.begin(), formats.end(), [&](const AdapterFormat& f) { return f.claims(tensor, targets); });
    if (tensor.empty() && (format == formats.end() || !format->takes_empty)) return no_matrix(*tensor.info);
    (format == formats.end() ? unclaimed : claimed[static_cast<std::size_t>(format - formats.begin())])
        .push_back(&tensor);
  }
  if (!unclaimed.empty()) {
    if (left_over != nullptr) {
      for (const FileTensor* tensor : unclaimed) left_over->push_back(tensor->info->name);
    }
    return refuse_left_over(unclaimed, file, index);
  }
  for (std::size_t i = 0; i < formats.size(); ++i) {
    if (!claimed[i].empty()) CADRE_TRY(formats[i].read(builder, claimed[i]));
  }
  if (adapter->dense.empty() && adapter->experts.empty()) {
    return error(Code::kInvalidFile, file.path(), " holds placeholders without elements only: the adapter is empty");
  }
  CADRE_TRY(check_saved(config, targets, tensors, file.path()));
  CADRE_TRY(check_tying(config, targets, *adapter));
  add_notes(builder, tensors);
  for (const TensorInfo& tensor : file.tensors()) adapter->report.bytes += static_cast<std::int64_t>(tensor.nbytes);
  add_bindings(targets, adapter.get());
  adapter->files = std::move(files);
  return std::shared_ptr<const Adapter>(std::move(adapter));
}

}  // namespace

Result<std::shared_ptr<const Adapter>> read_adapter(const std::string& folder, const std::string& name,
                                                    const AdapterTargets& targets, const AdapterOptions& options,
                                                    std::vector<std::string>* left_over) {
  return read(folder, name, targets, options, left_over).with_context("adapter '" + name + "'");
}

}  // namespace cadre
