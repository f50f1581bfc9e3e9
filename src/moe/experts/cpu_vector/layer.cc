#include "moe/experts/cpu_vector/layer.h"

#include <algorithm>

#include "base/dot.h"

namespace cadre::cpu_vector {
namespace {

// Up to max_rows rows of one expert, adjacent in the plan.
struct TileRows {
  std::int32_t place, rows, expert;
};
// Adjacent tiles of one expert that pass over a block of weights while it is in the second-level cache.
struct Group {
  std::int32_t first, last;
};
// Rows of one group. 96 rows of 2,688 float32 inputs and two blocks of weights fill 1.4 MB, and weights that come from
// memory once for 96 rows cost less than a tenth of the arithmetic.
constexpr std::int32_t kGroupRows = 96;
// Multiply-adds that are worth handing to another thread.
constexpr std::int64_t kGrainWork = 1 << 16;

class Run {
 public:
  Run(const Layer& layer, const ExpertArgs& args, const MoePlan& plan, const Scratch& scratch, ThreadPool& threads)
      : layer_(layer),
        args_(args),
        scratch_(scratch),
        threads_(threads),
        k_(args.ids.dim(1)),
        pair_(ptr<std::int32_t>(plan.pair)),
        offset_(ptr<std::int32_t>(plan.offset)),
        place_(ptr<std::int32_t>(plan.place)),
        tiles_(ptr<TileRows>(scratch.tiles)),
        groups_(ptr<Group>(scratch.groups)) {}

  void run() {
    cut();
    const bool adapt = layer_.terms != nullptr && args_.any_adapter;
    gather();
    if (adapt) {
      for_tiles(2 * layer_.max_rank * layer_.width, [&](const TileRows& t) { shrink_gate_up(t); });
    }
    for_blocks(layer_.gated() ? layer_.padded : layer_.padded / 2, layer_.width,
               [&](const TileRows& t, std::int64_t block) { gate_up(t, block, adapt); });
    if (adapt) {
      for_tiles(layer_.max_rank * layer_.padded, [&](const TileRows& t) { shrink_down(t); });
    }
    for_blocks(layer_.width / 2, layer_.padded, [&](const TileRows& t, std::int64_t block) { down(t, block, adapt); });
    sum();
  }

 private:
  // ---- the cut into tiles: a pure function of the number of rows of each expert

  void cut() {
    for (std::int32_t e = 0; e < layer_.local; ++e) {
      const std::int32_t rows = offset_[e + 1] - offset_[e];
      if (rows == 0) continue;
      const std::int32_t tiles = (rows + layer_.kernels->max_rows - 1) / layer_.kernels->max_rows;
      const std::int32_t in_group = std::max(1, kGroupRows / layer_.kernels->max_rows);
      for (std::int32_t i = 0; i < tiles; ++i) {
        if (i % in_group == 0) groups_[group_count_++] = {tile_count_, tile_count_ + std::min(in_group, tiles - i)};
        const std::int32_t begin = static_cast<std::int32_t>(std::int64_t{rows} * i / tiles);
        const std::int32_t end = static_cast<std::int32_t>(std::int64_t{rows} * (i + 1) / tiles);
        tiles_[tile_count_++] = {offset_[e] + begin, end - begin, e};
      }
    }
  }

  std::int32_t slot(std::int64_t place) const { return ptr<std::int32_t>(args_.slots)[pair_[place] / k_]; }
  float* panel(const View& v, const TileRows& t) const { return ptr<float>(v) + t.place * v.step(0); }

  template <class F>
  void for_tiles(std::int64_t work, F&& body) {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrainWork / std::max<std::int64_t>(work, 1));
    threads_.parallel_for(tile_count_, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) body(tiles_[i]);
    });
  }

  // body(tile, first column) for each group and each two blocks of columns (one of gate and one of up where gated),
  // the tiles of a group in the inner loop.
  template <class F>
  void for_blocks(std::int64_t half_columns, std::int64_t k, F&& body) {
    const std::int64_t items = (half_columns + kBlock - 1) / kBlock;
    const std::int64_t grain = std::max<std::int64_t>(1, kGrainWork / std::max<std::int64_t>(k * 2 * kBlock, 1));
    threads_.parallel_for(group_count_ * items, grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t item = begin; item < end; ++item) {
        const Group& group = groups_[item / items];
        for (std::int32_t i = group.first; i < group.last; ++i) body(tiles_[i], item % items);
      }
    });
  }

  // body(first row, rows, slot) for each run of rows of a tile with one adapter.
  template <class F>
  void for_adapters(const TileRows& t, F&& body) {
    for (std::int32_t begin = 0; begin < t.rows;) {
      const std::int32_t s = slot(t.place + begin);
      std::int32_t end = begin + 1;
      while (end < t.rows && slot(t.place + end) == s) ++end;
      if (s >= 0) body(begin, end - begin, s);
      begin = end;
    }
  }

  // ---- the steps

  void gather() {
    for_tiles(kMaxRows * layer_.width / 4, [&](const TileRows& t) {
      const float* rows[kMaxRows];
      for (std::int32_t r = 0; r < t.rows; ++r) {
        rows[r] = ptr<float>(args_.x) + pair_[t.place + r] / k_ * args_.x.step(0);
      }
      float* to = panel(scratch_.x, t);
      for (std::int64_t k = 0; k < layer_.width; ++k) {
        for (std::int32_t r = 0; r < t.rows; ++r) *to++ = rows[r][k];
      }
    });
  }

  // shrunk[rank, rows] = scale * (A x) for the rows [begin, begin + rows) of a tile; zero up to the rank's block.
  void shrink(const PackedTerm& term, const TileRows& t, std::int32_t begin, std::int32_t rows, const float* x,
              std::int64_t in, float* shrunk) {
    float y[2][kMaxRows * kRankBlock];
    const std::int64_t block_bytes = in * kRankBlock * element_bytes(term.a_type);
    const std::int64_t blocks = round_up(term.rank, kRankBlock) / kRankBlock;
    for (std::int64_t b = 0; b < blocks; b += 2) {
      Tile tile{.x = x + begin, .x_step = t.rows, .rows = rows, .k = in, .y = {y[0], y[1]}, .y_step = kRankBlock};
      tile.blocks = static_cast<int>(std::min<std::int64_t>(2, blocks - b));
      for (int i = 0; i < tile.blocks; ++i) tile.w[i] = term.a + (b + i) * block_bytes;
      layer_.kernels->multiply_rank(term.a_type, tile);
      for (int n = 0; n < tile.blocks * kRankBlock; ++n) {
        float* to = shrunk + (b * kRankBlock + n) * t.rows + begin;
        for (std::int32_t r = 0; r < rows; ++r) to[r] = term.scale * y[n / kRankBlock][r * kRankBlock + n % kRankBlock];
      }
    }
  }

  void shrink_gate_up(const TileRows& t) {
    for_adapters(t, [&](std::int32_t begin, std::int32_t rows, std::int32_t s) {
      const PackedTerm* gate = layer_.gated() ? layer_.term(s, t.expert, kGatePart) : nullptr;
      const PackedTerm* up = layer_.term(s, t.expert, kUpPart);
      const float* x = panel(scratch_.x, t);
      if (gate != nullptr) shrink(*gate, t, begin, rows, x, layer_.width, panel(scratch_.shrunk[0], t));
      if (up != nullptr && (gate == nullptr || !gate->same_shrink(*up))) {
        shrink(*up, t, begin, rows, x, layer_.width, panel(scratch_.shrunk[1], t));
      }
    });
  }

  void shrink_down(const TileRows& t) {
    for_adapters(t, [&](std::int32_t begin, std::int32_t rows, std::int32_t s) {
      const PackedTerm* term = layer_.term(s, t.expert, kDownPart);
      if (term == nullptr) return;
      shrink(*term, t, begin, rows, panel(scratch_.activated, t), layer_.padded, panel(scratch_.shrunk[0], t));
    });
  }

  // y += B shrunk, for one block of columns.
  void expand(const PackedTerm& term, const TileRows& t, std::int32_t begin, std::int32_t rows, const float* shrunk,
              std::int64_t block, float* y, std::int64_t y_step) {
    const std::int64_t rank = round_up(term.rank, 2);
    Tile tile{.x = shrunk + begin, .x_step = t.rows, .rows = rows, .k = rank};
    tile.w[0] = term.b + block * rank * kBlock * element_bytes(term.b_type);
    tile.y[0] = y + begin * y_step;
    tile.y_step = y_step;
    tile.add = true;
    layer_.kernels->multiply(term.b_type, tile);
  }

  // Gate and up of one block of columns, or up of two blocks, through the activation.
  void gate_up(const TileRows& t, std::int64_t item, bool adapt) {
    const std::int64_t block_bytes = layer_.width * kBlock * 2, all = layer_.padded / kBlock;
    float y[2][kMaxRows * kBlock];
    Tile tile{.x = panel(scratch_.x, t), .x_step = t.rows, .rows = t.rows, .k = layer_.width};
    tile.y[0] = y[0];
    tile.y[1] = y[1];
    tile.y_step = kBlock;
    const Part part[2] = {layer_.gated() ? kGatePart : kUpPart, kUpPart};
    const std::int64_t block[2] = {layer_.gated() ? item : 2 * item, layer_.gated() ? item : 2 * item + 1};
    tile.blocks = block[1] < all ? 2 : 1;
    for (int i = 0; i < tile.blocks; ++i) tile.w[i] = layer_.matrix(t.expert, part[i]) + block[i] * block_bytes;
    layer_.kernels->multiply(PackedType::kBF16, tile);
    if (adapt) {
      for_adapters(t, [&](std::int32_t begin, std::int32_t rows, std::int32_t s) {
        const PackedTerm* gate = layer_.gated() ? layer_.term(s, t.expert, kGatePart) : nullptr;
        for (int i = 0; i < tile.blocks; ++i) {
          const PackedTerm* term = layer_.term(s, t.expert, part[i]);
          if (term == nullptr) continue;
          const bool first = part[i] == kGatePart || (gate != nullptr && gate->same_shrink(*term));
          expand(*term, t, begin, rows, panel(scratch_.shrunk[first ? 0 : 1], t), block[i], y[i], kBlock);
        }
      });
    }
    const Activation kind = layer_.spec.activation.kind;
    if (layer_.gated()) {
      layer_.kernels->activate(kind, y[0], y[1], y[0], t.rows * kBlock);
      store(t, y[0], block[0]);
    } else {
      for (int i = 0; i < tile.blocks; ++i) {
        layer_.kernels->activate(kind, nullptr, y[i], y[i], t.rows * kBlock);
        store(t, y[i], block[i]);
      }
    }
  }

  // Into the panel that GEMM2 reads. Columns of the padding are zero whatever came out of them.
  void store(const TileRows& t, const float* y, std::int64_t block) {
    const std::int64_t real = std::clamp<std::int64_t>(layer_.intermediate - block * kBlock, 0, kBlock);
    float* to = panel(scratch_.activated, t) + block * kBlock * t.rows;
    for (std::int64_t n = 0; n < real; ++n) {
      for (std::int32_t r = 0; r < t.rows; ++r) *to++ = y[r * kBlock + n];
    }
    std::fill_n(to, (kBlock - real) * t.rows, 0.0f);
  }

  void down(const TileRows& t, std::int64_t item, bool adapt) {
    const std::int64_t block_bytes = layer_.padded * kBlock * 2, step = scratch_.down.step(0);
    float* y = panel(scratch_.down, t) + 2 * item * kBlock;
    Tile tile{.x = panel(scratch_.activated, t), .x_step = t.rows, .rows = t.rows, .k = layer_.padded};
    tile.blocks = (2 * item + 1) * kBlock < layer_.width ? 2 : 1;
    tile.y_step = step;
    for (int i = 0; i < tile.blocks; ++i) {
      tile.w[i] = layer_.matrix(t.expert, kDownPart) + (2 * item + i) * block_bytes;
      tile.y[i] = y + i * kBlock;
    }
    layer_.kernels->multiply(PackedType::kBF16, tile);
    if (!adapt) return;
    for_adapters(t, [&](std::int32_t begin, std::int32_t rows, std::int32_t s) {
      const PackedTerm* term = layer_.term(s, t.expert, kDownPart);
      for (int i = 0; term != nullptr && i < tile.blocks; ++i) {
        expand(*term, t, begin, rows, panel(scratch_.shrunk[0], t), 2 * item + i, y + i * kBlock, step);
      }
    });
  }

  // out[t] = sum over k, in order, of weight * down.
  void sum() {
    const std::int64_t grain = std::max<std::int64_t>(1, kGrainWork / (k_ * layer_.width + 1));
    threads_.parallel_for(args_.out.dim(0), grain, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t t = begin; t < end; ++t) {
        float* out = ptr<float>(args_.out) + t * args_.out.step(0);
        std::fill_n(out, layer_.width, 0.0f);
        for (std::int64_t p = t * k_; p < (t + 1) * k_; ++p) {
          if (place_[p] < 0) continue;
          const float* y = ptr<float>(scratch_.down) + place_[p] * scratch_.down.step(0);
          axpy(ptr<float>(args_.weights)[p], y, DType::kF32, out, layer_.width);
        }
      }
    });
  }

  const Layer& layer_;
  const ExpertArgs& args_;
  const Scratch& scratch_;
  ThreadPool& threads_;
  const std::int64_t k_;
  const std::int32_t* pair_;
  const std::int32_t* offset_;
  const std::int32_t* place_;
  TileRows* tiles_;
  Group* groups_;
  std::int32_t tile_count_ = 0, group_count_ = 0;
};

}  // namespace

Scratch make_scratch(Arena& arena, const Layer& layer, std::int64_t pairs) {
  pairs = std::max<std::int64_t>(pairs, 1);
  Scratch s;
  s.x = arena.alloc(DType::kF32, {pairs, layer.width});
  s.activated = arena.alloc(DType::kF32, {pairs, layer.padded});
  s.down = arena.alloc(DType::kF32, {pairs, layer.width});
  if (layer.max_rank > 0) {
    for (View& shrunk : s.shrunk) shrunk = arena.alloc(DType::kF32, {pairs, layer.max_rank});
  }
  s.tiles = arena.alloc(DType::kI32, {pairs, 3});
  s.groups = arena.alloc(DType::kI32, {pairs, 2});
  return s;
}

void run_layer(const Layer& layer, const ExpertArgs& args, const MoePlan& plan, const Scratch& scratch,
               ThreadPool& threads) {
  Run(layer, args, plan, scratch, threads).run();
}

}  // namespace cadre::cpu_vector
