// The body of the kernels, included once by each kernels_<isa>.cc inside its own unnamed namespace: nothing here is
// compiled twice under one name. That file defines before:
//   CADRE_ISA      the attribute of every function, e.g. __attribute__((target("avx512f")))
//   kLanes         floats in a vector
//   kAccumulators  vectors of sums that fit into registers beside weights and inputs
//   kIsaRows       rows of the largest tile
//   struct Isa     { static Vec broadcast(float); static Vec fma(const Vec& a, const Vec& b, const Vec& c); }
// No include guard: it is meant to be repeated, in different files.

using Words = std::uint32_t __attribute__((vector_size(kLanes * 4)));
// How far ahead weights are fetched: of 1, 2, 4 and 8 KiB the best from memory with 8 to 12 rows (+40 %).
constexpr std::int64_t kPrefetchBytes = 4096;
#define CADRE_INLINE CADRE_ISA inline __attribute__((always_inline))

// Two k of one vector of columns of a block `Width` columns wide.
template <int Width>
struct PackedBf16 {
  static constexpr std::int64_t kPairBytes = Width * 4;
  Words words;
  CADRE_INLINE void load(const std::byte* pair, int vector) {
    std::memcpy(&words, pair + vector * kLanes * 4, sizeof words);
  }
  CADRE_INLINE Vec even() const { return (Vec)(words << 16); }
  CADRE_INLINE Vec odd() const { return (Vec)(words & 0xffff0000u); }
};

template <int Width>
struct PackedF32 {
  static constexpr std::int64_t kPairBytes = Width * 8;
  const std::byte* at;
  CADRE_INLINE void load(const std::byte* pair, int vector) { at = pair + vector * kLanes * 4; }
  CADRE_INLINE Vec even() const {
    Vec v;
    std::memcpy(&v, at, sizeof v);
    return v;
  }
  CADRE_INLINE Vec odd() const {
    Vec v;
    std::memcpy(&v, at + Width * 4, sizeof v);
    return v;
  }
};

// R rows x V vectors of each of B blocks, from vector v0 of block b0 on: all sums stay in registers.
template <class Packed, int R, int V, int B>
CADRE_INLINE void columns(const Tile& t, int b0, int v0) {
  for (std::int64_t begin = 0; begin < t.k; begin += kChunk) {
    const std::int64_t end = begin + kChunk < t.k ? begin + kChunk : t.k;
    Vec sum[B][R][V];
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) sum[b][r][v] = Vec{};
      }
    }
    const float* x = t.x + begin * t.x_step;
    const std::byte* w[B];
    for (int b = 0; b < B; ++b) w[b] = t.w[b0 + b] + begin / 2 * Packed::kPairBytes;
    for (std::int64_t k = begin; k < end; k += 2) {
      Packed packed[B][V];
#pragma GCC unroll 16
      for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) packed[b][v].load(w[b], v0 + v);
        // The processor's own prefetch stops at each page and is too slow for what 8 to 12 rows consume.
        for (int line = 0; line < Packed::kPairBytes / 64; ++line)
          __builtin_prefetch(w[b] + kPrefetchBytes + 64 * line);
        w[b] += Packed::kPairBytes;
      }
      for (int odd = 0; odd < 2; ++odd) {
        Vec wide[B][V];
#pragma GCC unroll 16
        for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
          for (int v = 0; v < V; ++v) wide[b][v] = odd == 0 ? packed[b][v].even() : packed[b][v].odd();
        }
#pragma GCC unroll 16
        for (int r = 0; r < R; ++r) {
          const Vec one = Isa::broadcast(x[r]);
#pragma GCC unroll 16
          for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
            for (int v = 0; v < V; ++v) sum[b][r][v] = Isa::fma(one, wide[b][v], sum[b][r][v]);
          }
        }
        x += t.x_step;
      }
    }
    const bool keep = t.add || begin > 0;
#pragma GCC unroll 16
    for (int b = 0; b < B; ++b) {
#pragma GCC unroll 16
      for (int r = 0; r < R; ++r) {
#pragma GCC unroll 16
        for (int v = 0; v < V; ++v) {
          float* y = t.y[b0 + b] + r * t.y_step + (v0 + v) * kLanes;
          Vec old{};
          if (keep) {
            std::memcpy(&old, y, sizeof old);
            sum[b][r][v] += old;
          }
          std::memcpy(y, &sum[b][r][v], sizeof old);
        }
      }
    }
  }
}

// The most vectors of one block that R rows leave registers for: a power of two, which divides every block.
template <int Width, int R>
constexpr int vectors() {
  int v = Width / kLanes;
  while (v > 1 && v * R > kAccumulators) v /= 2;
  return v;
}

template <template <int> class Packed, int Width, int R>
CADRE_ISA void tile_rows(const Tile& t) {
  constexpr int kAll = Width / kLanes, kV = vectors<Width, R>();
  if constexpr (kV == kAll && 2 * kAll * R <= kAccumulators) {
    // Few rows: two blocks at once make enough independent chains, and two streams from memory.
    if (t.blocks == 2) return columns<Packed<Width>, R, kAll, 2>(t, 0, 0);
  }
  for (int b = 0; b < t.blocks; ++b) {
    for (int v = 0; v < kAll; v += kV) columns<Packed<Width>, R, kV, 1>(t, b, v);
  }
}

template <template <int> class Packed, int Width, int R = kIsaRows>
CADRE_ISA void tile(const Tile& t) {
  if (t.rows == R) {
    tile_rows<Packed, Width, R>(t);
  } else if constexpr (R > 1) {
    tile<Packed, Width, R - 1>(t);
  }
}

template <template <int> class Packed, int Width>
CADRE_ISA void tile_or_zero(const Tile& t) {
  if (t.k > 0) return tile<Packed, Width>(t);
  for (int b = 0; b < t.blocks && !t.add; ++b) {
    for (int r = 0; r < t.rows; ++r) {
      for (int n = 0; n < Width; ++n) t.y[b][r * t.y_step + n] = 0;
    }
  }
}

// exp(x), x limited to [-87, 88], within 2 units in the last place: 2^n * p(r) with r in [-ln 2 / 2, ln 2 / 2] and the
// Taylor series to r^7 / 7!, whose rest is below 2^-27.
CADRE_INLINE Vec exponential(const Vec& unlimited) {
  Vec x = unlimited < -87.0f ? Vec{} - 87.0f : unlimited;
  x = x > 88.0f ? Vec{} + 88.0f : x;
  const Vec shifted = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the low bits now hold round(x / ln 2)
  const Vec n = shifted - 12582912.0f;
  const Vec r = x - n * 0.693359375f + n * 2.12194440e-4f;  // ln 2 in two parts, the first exact in its product
  Vec p = r * (1.0f / 5040) + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return (Vec)((Words)p + ((Words)shifted << 23));
}

// x / (1 + exp(-s)): silu with s = x; the tanh form of gelu with s = 2 sqrt(2 / pi) (x + 0.044715 x^3), because
// (1 + tanh z) / 2 = 1 / (1 + exp(-2z)).
template <Activation kKind>
CADRE_INLINE Vec act(const Vec& x) {
  if constexpr (kKind == Activation::kRelu2) {
    const Vec positive = x < 0.0f ? Vec{} : x;
    return positive * positive;
  } else if constexpr (kKind == Activation::kGeluTanh) {
    const Vec s = 1.59576912f * (x + 0.044715f * x * x * x);
    return x / (1.0f + exponential(-s));
  } else {
    return x / (1.0f + exponential(-x));
  }
}

template <Activation kKind>
CADRE_ISA void activate_kind(const float* gate, const float* up, float* out, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kLanes) {
    Vec u, g;
    std::memcpy(&u, up + i, sizeof u);
    if (gate != nullptr) {
      std::memcpy(&g, gate + i, sizeof g);
      u *= act<kKind>(g);
    } else {
      u = act<kKind>(u);
    }
    std::memcpy(out + i, &u, sizeof u);
  }
}

CADRE_ISA void activate(Activation kind, const float* gate, const float* up, float* out, std::int64_t n) {
  switch (kind) {
    case Activation::kRelu2:
      return activate_kind<Activation::kRelu2>(gate, up, out, n);
    case Activation::kGeluTanh:
      return activate_kind<Activation::kGeluTanh>(gate, up, out, n);
    default:
      return activate_kind<Activation::kSilu>(gate, up, out, n);
  }
}

#define CADRE_VECTOR_KERNELS(name)                                                             \
  VectorKernels {                                                                              \
    name, kIsaRows, &tile_or_zero<PackedBf16, kBlock>, &tile_or_zero<PackedF32, kBlock>,       \
        &tile_or_zero<PackedBf16, kRankBlock>, &tile_or_zero<PackedF32, kRankBlock>, &activate \
  }
