// A model folder as anyone may write it, of those kinds whose weights are not taken as they lie there: quantised to FP8
// or MXFP4, or the text part of a multimodal wrapper. A case is text: one line with the config, one with the header of
// the weights' file, and then bytes that are repeated as often as the header promises data. Whatever is accepted must
// be usable: every weight there and finite.
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "base/dot.h"
#include "io/checkpoint.h"
#include "model/families/family.h"
#include "model/text_part.h"

namespace {

using namespace cadre;
namespace fs = std::filesystem;

constexpr std::int64_t kMaxData = 1 << 20;

void require(bool held) {
  if (!held) std::abort();
}

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "cadre-fuzz-XXXXXX").string();
    require(::mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// Where the header's tensors end, as far as it is a header.
std::int64_t data_bytes(std::string_view header) {
  std::int64_t end = 0;
  const auto json = Json::parse(header, "header");
  if (!json.ok() || !json->is_object()) return 0;
  for (const auto& [name, tensor] : json->members()) {
    if (!tensor.is_object()) continue;
    const auto offsets = tensor.get_int_list("data_offsets");
    if (!offsets.ok()) continue;
    for (const std::int64_t offset : *offsets) end = std::max(end, offset);
  }
  return std::min(end, kMaxData);
}

void write_weights(const fs::path& path, std::string_view header, std::string_view pattern) {
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>((header.size() >> (8 * i)) & 0xff);
  file += header;
  const std::int64_t data = data_bytes(header);
  for (std::int64_t i = 0; i < data; ++i) {
    file += pattern.empty() ? '\0' : pattern[static_cast<std::size_t>(i) % pattern.size()];
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  out.write(file.data(), static_cast<std::streamsize>(file.size()));
  require(out.good());
}

void require_finite(const View& matrix) {
  require(matrix.rank == 2);
  for (std::int64_t r = 0; r < matrix.dim(0); ++r) {
    for (std::int64_t c = 0; c < matrix.dim(1); ++c) {
      require(std::isfinite(element(matrix.data, matrix.dtype, r * matrix.stride[0] + c * matrix.stride[1])));
    }
  }
}

void require_message(const Status& status) { require(!status.message().empty()); }

void try_weights(const MoeLayer& layer) {
  for (int e = 0; e < layer.spec.experts; ++e) {
    const auto gate = layer.weights->gate(e), up = layer.weights->up(e), down = layer.weights->down(e);
    for (const auto* matrix : {&gate, &up, &down}) {
      if (!matrix->ok()) {
        require_message(matrix->status());
      } else if ((*matrix)->data != nullptr) {
        require_finite(**matrix);
      }
    }
    if (up.ok()) require(up->dim(0) == layer.spec.intermediate && up->dim(1) == layer.spec.expert_width());
    if (down.ok()) require(down->dim(0) == layer.spec.expert_width() && down->dim(1) == layer.spec.intermediate);
  }
  layer.weights->drop_pages();
}

void try_family(const Family& family, const ModelConfig& config, const std::shared_ptr<Checkpoint>& checkpoint) {
  static const std::shared_ptr<Device> device = make_cpu_device();
  for (const Ranks& ranks : {Ranks{}, Ranks{.rank = 1, .size = 2}}) {
    WeightLoader loader(checkpoint, device, true, config.quantisation);
    Builder builder(config, loader, ranks);
    Network network;
    if (const Status status = family.build(builder, network); !status.ok()) {
      require_message(status);
      continue;
    }
    require(!network.blocks.empty());
    for (const MoeLayer& layer : builder.moe_layers) try_weights(layer);
    for (const std::string& name : loader.left_over()) require(checkpoint->find(name) != nullptr);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const Folder folder;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::size_t first = text.find('\n');
  if (first == text.npos) return 0;
  const std::size_t second = std::min(text.find('\n', first + 1), size);
  const auto json = Json::parse(text.substr(0, first), "config.json");
  if (!json.ok()) return 0;
  const auto config = parse_model_config(*json);
  if (!config.ok()) {
    require_message(config.status());
    return 0;
  }
  const fs::path weights = folder.path() / "model.safetensors";
  write_weights(weights, text.substr(first + 1, second - first - 1), text.substr(std::min(second + 1, size)));
  std::vector<std::string> notes;
  const auto checkpoint = open_model_weights(folder.path().string(), *config, &notes);
  if (!checkpoint.ok()) {
    require_message(checkpoint.status());
    return 0;
  }
  // A note says what of a wrapper is left out.
  require(notes.size() == (config->wrapper.empty() ? 0 : 1));
  for (const std::string_view name : (*checkpoint)->names()) require((*checkpoint)->find(name) != nullptr);
  const std::int64_t memory = weight_memory(**checkpoint, config->quantisation);
  require(memory >= 0 && memory <= 4 * kMaxData);
  if (const auto family = find_family(config->model_type); family.ok()) try_family(**family, *config, *checkpoint);
  return 0;
}
