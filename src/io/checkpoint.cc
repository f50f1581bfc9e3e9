#include "io/checkpoint.h"

#include <algorithm>
#include <system_error>

#include "base/result.h"
#include "io/json.h"

namespace cadre {
namespace {

constexpr std::string_view kSingle = "model.safetensors";
constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::uint64_t kMaxIndexBytes = 64u << 20;
constexpr std::size_t kNamed = 4;  // of a longer list in a message

// "'a', 'b' and 7 more"
std::string list_text(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamed; ++i) {
    if (i > 0) text += i + 1 == names.size() ? " and " : ", ";
    text += "'" + names[i] + "'";
  }
  if (names.size() > kNamed) text += " and " + std::to_string(names.size() - kNamed) + " more";
  return text;
}

// A shard is a file of the folder itself, whatever the index says.
bool is_plain_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

struct FolderFiles {
  std::vector<std::string> safetensors;
  std::vector<std::string> refused;  // weights in a form that is not read: pickles and others
  bool has_adapter = false;
};

Result<FolderFiles> list_folder(const std::filesystem::path& folder) {
  FolderFiles files;
  std::error_code failure;
  std::filesystem::directory_iterator at(folder, failure);
  for (; !failure && at != std::filesystem::directory_iterator(); at.increment(failure)) {
    const std::string name = at->path().filename().string();
    const std::string extension = at->path().extension().string();
    if (name == "adapter_model.safetensors") {
      files.has_adapter = true;
    } else if (extension == ".safetensors") {
      files.safetensors.push_back(name);
    } else if (extension == ".bin" || extension == ".pt" || extension == ".pth" || extension == ".ckpt" ||
               extension == ".gguf") {
      files.refused.push_back(name);
    }
  }
  if (failure) {
    const bool absent = failure == std::errc::no_such_file_or_directory;
    return error(absent ? Code::kNotFound : Code::kInvalidFile, "cannot read folder '", folder.string(),
                 "': ", failure.message());
  }
  std::sort(files.safetensors.begin(), files.safetensors.end());
  std::sort(files.refused.begin(), files.refused.end());
  return files;
}

bool is_there(const std::filesystem::path& path) {
  std::error_code failure;
  return std::filesystem::exists(
      std::filesystem::symlink_status(path, failure));  // a broken link is reported by opening
}

// Why a folder without safetensors weights cannot be used.
Status no_weights(const std::string& folder, const FolderFiles& files) {
  if (files.safetensors.size() > 1) {
    return error(Code::kInvalidFile, "'", folder, "' holds ", files.safetensors.size(), " safetensors files (",
                 list_text(files.safetensors), ") and no ", kIndex, " that says how they belong together");
  }
  if (!files.refused.empty()) {
    return error(Code::kUnsupported, "'", folder, "' holds its weights as ", list_text(files.refused),
                 "; only safetensors files are read (pickles can run code when loaded): convert them, e.g. load the "
                 "model with transformers and call save_pretrained");
  }
  if (files.has_adapter) {
    return error(Code::kInvalidArgument, "'", folder,
                 "' holds an adapter (adapter_model.safetensors), not a model; name the folder of its base model here");
  }
  return error(Code::kNotFound, "'", folder, "' has no ", kSingle, ", no ", kIndex,
               " and no other safetensors file; want a model folder as downloaded from Hugging Face");
}

}  // namespace

Status Checkpoint::add(std::shared_ptr<SafetensorsFile> file) {
  for (const TensorInfo& tensor : file->tensors()) {
    const auto [at, is_new] = by_name_.emplace(tensor.name, Entry{&tensor, file.get()});
    if (!is_new) {
      return error(Code::kInvalidFile, "tensor '", tensor.name, "' is in both '", at->second.file->path(), "' and '",
                   file->path(), "'; remove the shard that does not belong to this model");
    }
    tensor_bytes_ += tensor.nbytes;
  }
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::open_shards(const std::filesystem::path& index) {
  const std::string where = index.string();
  CADRE_ASSIGN(const Json json, Json::parse_file(where, {.max_bytes = kMaxIndexBytes, .max_depth = 16}));
  CADRE_ASSIGN(const Json weight_map, json.get_object("weight_map"));
  if (weight_map.members().empty()) return error(Code::kInvalidFile, where, ": 'weight_map' is empty");

  std::map<std::string, std::vector<std::string>> shards;  // shard -> its tensors
  for (const auto& [tensor, shard] : weight_map.members()) {
    CADRE_ASSIGN(std::string name, shard.as_string(weight_map.where(tensor)));
    if (!is_plain_name(name)) {
      return error(Code::kInvalidFile, weight_map.where(tensor), " is ", describe(shard),
                   ", want the plain name of a file in the same folder");
    }
    if (!name.ends_with(".safetensors")) {
      return error(Code::kUnsupported, weight_map.where(tensor), " is ", describe(shard),
                   ", want a safetensors file; convert the model first");
    }
    shards[std::move(name)].push_back(tensor);
  }

  std::vector<std::string> missing;
  std::size_t missing_tensors = 0;
  for (const auto& [shard, tensors] : shards) {
    if (is_there(index.parent_path() / shard)) continue;
    missing.push_back(shard);
    missing_tensors += tensors.size();
  }
  if (!missing.empty()) {
    return error(Code::kNotFound, where, ": shard", missing.size() > 1 ? "s " : " ", list_text(missing),
                 missing.size() > 1 ? " are" : " is", " missing, which should hold ", missing_tensors, " of ",
                 weight_map.members().size(), " tensors; download the model again");
  }
  for (const auto& [shard, tensors] : shards) {
    CADRE_ASSIGN(std::shared_ptr<SafetensorsFile> file, SafetensorsFile::open(index.parent_path() / shard));
    std::vector<std::string> absent;
    for (const std::string& tensor : tensors) {
      if (file->find(tensor) == nullptr) absent.push_back(tensor);
    }
    if (!absent.empty()) {
      return error(Code::kInvalidFile, file->path(), ": lacks ", absent.size(), " of the ", tensors.size(),
                   " tensors that the index lists for it: ", list_text(absent));
    }
    for (const TensorInfo& tensor : file->tensors()) {
      if (weight_map.find(tensor.name) == nullptr) unlisted_.push_back(tensor.name);
    }
    CADRE_TRY(add(std::move(file)));
  }
  return {};
}

Result<std::shared_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& folder) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->folder_ = folder.string();
  std::error_code failure;
  const auto status = std::filesystem::status(folder, failure);
  if (!std::filesystem::exists(status)) {
    return error(Code::kNotFound, "model folder '", checkpoint->folder_, "' does not exist");
  }
  if (!std::filesystem::is_directory(status)) {
    return error(Code::kInvalidArgument, "'", checkpoint->folder_, "' is a file, want the folder of a model");
  }

  std::filesystem::path single = folder / kSingle;
  if (!is_there(single)) {
    const std::filesystem::path index = folder / kIndex;
    if (is_there(index)) {
      CADRE_TRY(checkpoint->open_shards(index));
      return checkpoint;
    }
    CADRE_ASSIGN(const FolderFiles files, list_folder(folder));
    if (files.safetensors.size() != 1) return no_weights(checkpoint->folder_, files);
    single = folder / files.safetensors.front();
  }
  CADRE_ASSIGN(std::shared_ptr<SafetensorsFile> file, SafetensorsFile::open(single));
  CADRE_TRY(checkpoint->add(std::move(file)));
  return checkpoint;
}

std::shared_ptr<Checkpoint> Checkpoint::made(std::string called) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint());
  checkpoint->folder_ = std::move(called);
  return checkpoint;
}

Status Checkpoint::add_made(TensorInfo tensor, std::shared_ptr<const void> memory) {
  CADRE_CHECK(!renamed_, "tensors are made before they are renamed");
  if (by_name_.contains(tensor.name)) {
    return error(Code::kInvalidArgument, folder_, ": tensor '", tensor.name, "' is made twice");
  }
  const TensorInfo& kept = made_.emplace_back(std::move(tensor));
  by_name_.emplace(kept.name, Entry{&kept, nullptr});
  tensor_bytes_ += kept.nbytes;
  memory_.insert(std::move(memory));
  return {};
}

Result<std::vector<std::string>> Checkpoint::rename(const Rename& rename) {
  std::vector<std::string> left_out;
  by_new_name_.clear();
  for (const auto& [name, entry] : by_name_) {
    std::optional<std::string> other = rename(name);
    if (!other) {
      left_out.emplace_back(name);
      continue;
    }
    const auto [at, is_new] = by_new_name_.emplace(std::move(*other), entry.tensor);
    if (!is_new) {
      return error(Code::kInvalidFile, folder_, ": tensors '", at->second->name, "' and '", name,
                   "' are both the model's '", at->first, "'; remove the one that does not belong to it");
    }
  }
  renamed_ = true;
  return left_out;
}

const TensorInfo* Checkpoint::find(std::string_view name) const {
  if (renamed_) {
    const auto at = by_new_name_.find(name);
    return at == by_new_name_.end() ? nullptr : at->second;
  }
  const auto at = by_name_.find(name);
  return at == by_name_.end() ? nullptr : at->second.tensor;
}

std::vector<std::string_view> Checkpoint::names() const {
  std::vector<std::string_view> names;
  names.reserve(by_name_.size());
  if (renamed_) {
    for (const auto& [name, tensor] : by_new_name_) names.push_back(name);
    return names;
  }
  for (const auto& [name, entry] : by_name_) names.push_back(name);
  return names;
}

void Checkpoint::drop_pages(const TensorInfo& tensor) const {
  const auto at = by_name_.find(tensor.name);
  if (at != by_name_.end() && at->second.file != nullptr) at->second.file->drop_pages(*at->second.tensor);
}

}  // namespace cadre
