// A model folder's weights: one safetensors file, or shards with an index.
#pragma once

#include <cadre/status.h>

#include <cstdint>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"

namespace cadre {

class Checkpoint {
 public:
  // Looks for, in this order: model.safetensors; model.safetensors.index.json with its shards; a single *.safetensors
  // file of another name. Every header is read and checked, no element is. Pickled weights are refused.
  static Result<std::shared_ptr<Checkpoint>> open(const std::filesystem::path& folder);

  // Tensors that are in no file: `add_made` puts them in, one after another. `called` stands for the folder in
  // messages.
  static std::shared_ptr<Checkpoint> made(std::string called);
  // `tensor.data` lies in `memory`, which the checkpoint keeps. Refuses a second tensor of a name.
  Status add_made(TensorInfo tensor, std::shared_ptr<const void> memory);

  // From here on `find` and `names` know the tensors under other names, and not those for which there is none.
  // TensorInfo::name stays the file's. Refuses two tensors of one name. Returns the files' names that are left out.
  using Rename = std::function<std::optional<std::string>(std::string_view)>;
  Result<std::vector<std::string>> rename(const Rename& rename);

  const std::string& folder() const { return folder_; }
  const TensorInfo* find(std::string_view name) const;                  // nullptr if there is none
  std::vector<std::string_view> names() const;                          // sorted; valid until rename
  const std::deque<TensorInfo>& made_tensors() const { return made_; }  // in the order of add_made
  std::size_t tensor_count() const { return by_name_.size(); }
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }
  const std::vector<std::shared_ptr<SafetensorsFile>>& files() const { return files_; }
  // Tensors that a shard holds and the index does not list: they are found as all others, and worth a warning.
  const std::vector<std::string>& unlisted() const { return unlisted_; }

  // The tensor's pages are not needed for now. `tensor` must be of this checkpoint.
  void drop_pages(const TensorInfo& tensor) const;

 private:
  struct Entry {
    const TensorInfo* tensor;
    const SafetensorsFile* file;  // null: made
  };
  Checkpoint() = default;
  Status add(std::shared_ptr<SafetensorsFile> file);
  Status open_shards(const std::filesystem::path& index);

  std::string folder_;
  std::vector<std::shared_ptr<SafetensorsFile>> files_;
  std::deque<TensorInfo> made_;
  std::set<std::shared_ptr<const void>> memory_;
  std::map<std::string_view, Entry> by_name_;  // keys live in the files' headers
  bool renamed_ = false;
  std::map<std::string, const TensorInfo*, std::less<>> by_new_name_;
  std::uint64_t tensor_bytes_ = 0;
  std::vector<std::string> unlisted_;
};

}  // namespace cadre
