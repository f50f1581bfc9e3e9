// The one form that every adapter file is read into, and what a model offers an adapter to bind to.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tensor/view.h"

namespace cadre {

// One low-rank term: y += scale * B (A x). A is [rank, in], B is [out, rank]; both are host views, strided where the
// file packs them together, in the file's dtype. Undefined views: no adapter here, rank 0.
struct LowRank {
  View a, b;
  float scale = 0;  // alpha/r or alpha/sqrt(r), from the file's numbers

  int rank() const { return a.defined() ? static_cast<int>(a.dim(0)) : 0; }
};

// For one Linear or embedding (in = vocabulary, out = hidden, for an embedding).
struct DenseLora {
  LowRank delta;
  // Takes the place of the base weight, in its shape: [out, in] of a Linear, [vocabulary, hidden] of an embedding.
  View replacement;
};

// For the routed experts of one layer: a vector is empty (projection untouched) or holds one entry for each expert of
// the whole layer. Gate and up of one expert share an A where their `a.data` is the same, and experts share an A or a B
// where theirs is. Rows of gate and up are in canonical order, never interleaved.
struct LayerLora {
  std::vector<LowRank> gate, up, down;
  int max_rank() const;
  // Whether an A or a B serves several experts.
  bool shared_outer() const;
  bool empty() const { return gate.empty() && up.empty() && down.empty(); }
};

// What a model offers. `module` is the module's path in the checkpoint's own naming, e.g.
// "model.layers.0.self_attn.q_proj" or "backbone.layers.1.mixer.experts".
struct DenseTarget {
  std::string module;
  std::int64_t in = 0, out = 0;
  bool embedding = false;
  bool tied = false;  // shares its base weight with another module (lm_head with tied embeddings)
};

struct ExpertsTarget {
  std::string module;  // "...mlp.experts"
  int layer = 0;       // index of the model layer
  int experts = 0;
  std::int64_t width = 0;  // in of gate/up and out of down: hidden, or the latent size
  std::int64_t intermediate = 0;
  bool gated = true;
  bool interleaved = false;  // gate and up alternate along the rows of the stacked parameter
  bool transposed = false;   // the stacked parameters are [E, in, out] (is_transposed: never swapped)
  // Names in per-expert files: {gate, up, down}, e.g. {"gate_proj", "up_proj", "down_proj"} or {"w1", "w3", "w2"};
  // gate is empty for non-gated experts.
  std::string gate_name, up_name, down_name;
  // Names of the stacked parameters: "gate_up_proj" (or "up_proj" where not gated) and "down_proj".
  std::string stacked_up_name, stacked_down_name;
};

struct AdapterTargets {
  std::vector<DenseTarget> dense;
  std::vector<ExpertsTarget> experts;
  // Module path prefixes that files use for the same thing, e.g. {"model.", "backbone."}: the first is what a file may
  // say, the second what `module` above says.
  std::vector<std::pair<std::string, std::string>> prefix_aliases;
  // The same for whole parts of a path, between its dots: {"mlp", "block_sparse_moe"}, {"embed_tokens", "embeddings"}.
  std::vector<std::pair<std::string, std::string>> part_aliases;
  int layers = 0;
  std::string model_type;
};

enum class Orientation : std::uint8_t { kAuto, kPeft, kSwapped };
enum class BOrder : std::uint8_t { kPeft, kExpertMajor };

// How a stacked file is to be read where its shapes do not decide it.
struct AdapterOptions {
  Orientation orientation = Orientation::kAuto;
  BOrder b_order = BOrder::kPeft;
  bool check_weights = true;  // refuse NaN and infinities, naming the tensor
};

// What was bound, one line for a module or for a projection of the experts.
struct AdapterBinding {
  std::string module;      // as the model names it
  std::string projection;  // "gate", "up", "down"; empty for a dense module
  std::string kind;        // "linear", "embedding", "experts", "replacement"
  int experts = 0;         // experts with a rank above 0
  int min_rank = 0, max_rank = 0;
  float min_scale = 0, max_scale = 0;
  std::string dtype;
  std::int64_t packed_bytes = 0;  // of dense copies in the file's dtype; what terms share counts once
};

struct AdapterReport {
  // "peft linear", "peft stacked (peft orientation)", "peft stacked (swapped orientation)", "per expert", "packed
  // experts", "tinker experts (shared outer)", ..., joined by " + "
  std::string format;
  std::vector<AdapterBinding> bindings;
  std::vector<std::string> notes;  // e.g. target_modules that match nothing, all-zero B, scale 0
  std::int64_t bytes = 0;          // of A, B and replacements, as stored
  int max_rank = 0;
};

// A read adapter. Immutable, shared; its views stay valid as long as it lives.
struct Adapter {
  std::string name;
  std::string digest;                // of the content of both files, hexadecimal
  std::map<int, DenseLora> dense;    // by index into AdapterTargets::dense
  std::map<int, LayerLora> experts;  // by index into AdapterTargets::experts
  AdapterReport report;
  std::shared_ptr<const void> files;  // keeps the file's copy in memory
};

}  // namespace cadre
