// Published weights that are stored in fewer bits, and how they become BF16 again.
//
//   FP8     name F8_E4M3 [out, in] (or a stack of them) and name_scale_inv [ceil(out / 128), ceil(in / 128)], a factor
//           for each block (DeepSeek-V3, Kimi-K2, MiniMax-M2): value = code * factor in float32, rounded to BF16
//   MXFP4   name_blocks U8 [experts, out, in / 32, 16], two codes in a byte, the low half first, and name_scales U8
//           [experts, out, in / 32], powers of two (gpt-oss): exact in BF16
//
// The numbers are those of transformers' dequantisation.
#pragma once

#include <memory>
#include <span>
#include <string>

#include "io/checkpoint.h"
#include "io/json.h"

namespace cadre {

struct Quantisation {
  enum class Method : std::uint8_t { kNone, kFp8, kMxfp4 };
  Method method = Method::kNone;
  std::int64_t block_rows = 128, block_columns = 128;  // of FP8

  const char* name() const { return method == Method::kFp8 ? "FP8" : method == Method::kMxfp4 ? "MXFP4" : "BF16"; }
};

// A config's quantization_config, where it has one. Other methods are refused by their name.
Result<Quantisation> read_quantisation(const Json& json);

// A matrix [rows, columns], or a stack of them, stored quantised.
class QuantisedTensor {
 public:
  // Whether the checkpoint holds `name` in the quantised form.
  static bool is_there(const Checkpoint& checkpoint, const Quantisation& quantisation, const std::string& name);
  // `shape`: of the tensor that the model wants, two or three dimensions. Checks types and shapes, reads no element.
  static Result<QuantisedTensor> open(std::shared_ptr<const Checkpoint> checkpoint, const Quantisation& quantisation,
                                      const std::string& name, std::span<const std::int64_t> shape);

  std::int64_t matrices() const { return matrices_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  // Names of the file.
  const std::string& codes_name() const { return codes_->name; }
  // As the checkpoint finds them.
  const std::string& codes_key() const { return codes_key_; }
  const std::string& scales_key() const { return scales_key_; }

  // Writes matrix `index` as BF16, row after row. Refuses a code, a factor or a result that is not finite.
  Status read(std::int64_t index, std::uint16_t* to) const;
  // The file's pages are not needed for now.
  void drop_pages() const;

 private:
  Status read_fp8(std::int64_t index, std::uint16_t* to) const;
  Status read_mxfp4(std::int64_t index, std::uint16_t* to) const;
  Status not_finite(std::int64_t element) const;

  std::shared_ptr<const Checkpoint> checkpoint_;
  Quantisation quantisation_;
  std::string codes_key_, scales_key_;
  const TensorInfo* codes_ = nullptr;
  const TensorInfo* scales_ = nullptr;
  std::int64_t matrices_ = 1, rows_ = 0, columns_ = 0;
};

// Zeroed host memory for so many BF16 values, which takes room only once it is written.
Result<std::shared_ptr<std::uint16_t>> quantised_memory(std::int64_t elements);

// Bytes that the weights take once they are in memory, where quantised ones are BF16.
std::int64_t weight_memory(const Checkpoint& checkpoint, const Quantisation& quantisation);

}  // namespace cadre
