// Products with weights that are numbers of their own. The sums of a block of rows times a few tiles stay in registers
// over all of k; each output is one chain of additions in the order of its inputs (bf16: pairs), whatever the block.
#include "table.h"

namespace pagoda::PAGODA_ISA {
namespace {

struct F32 {
  using Number = float;
  using Weights = f32x16;
  static constexpr size_t kInputs = 1, kBytes = 64;  // of a step: inputs, bytes of a tile
  static const float* row(const Rows& x, size_t r) { return x.f32 + r * x.f32_stride; }
  static Weights weights(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
  static f32x16 spread(const float* x) { return set1(*x); }
  static f32x16 step(f32x16 sum, Weights w, f32x16 x) { return fma(w, x, sum); }
};

struct F16 : F32 {
  static constexpr size_t kBytes = 32;
  static Weights weights(const uint8_t* p) { return load_half(p); }
};

struct BF16 {
  using Number = uint16_t;
  using Weights = bf16x32;
  static constexpr size_t kInputs = 2, kBytes = 64;
  static const uint16_t* row(const Rows& x, size_t r) { return x.bf16 + r * x.bf16_stride; }
  static Weights weights(const uint8_t* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
  static bf16x32 spread(const uint16_t* x) { return spread2(x); }
  static f32x16 step(f32x16 sum, Weights w, bf16x32 x) { return dot2(sum, w, x); }
};

// Rows [row, row + NumRows) times tiles [tile, tile + NumTiles).
template <class Type, int NumRows, int NumTiles>
void block(const LinearTask& task, size_t row, size_t tile) {
  const uint8_t* weights = task.tiles + tile * task.tile_bytes;
  const typename Type::Number* x[NumRows];
  f32x16 sums[NumRows][NumTiles];
  for (int r = 0; r < NumRows; ++r) {
    x[r] = Type::row(task.x, row + r);
    for (int t = 0; t < NumTiles; ++t) sums[r][t] = zero();
  }
  for (size_t i = 0; i < task.k; i += Type::kInputs, weights += Type::kBytes) {
    typename Type::Weights w[NumTiles];
    for (int t = 0; t < NumTiles; ++t) w[t] = Type::weights(weights + t * task.tile_bytes);
    for (int r = 0; r < NumRows; ++r) {
      const auto input = Type::spread(x[r] + i);
      for (int t = 0; t < NumTiles; ++t) sums[r][t] = Type::step(sums[r][t], w[t], input);
    }
  }
  for (int t = 0; t < NumTiles; ++t) {
    const size_t column = (tile + t) * kLanes;
    const f32x16 bias = task.bias ? load(task.bias + column) : zero();
    for (int r = 0; r < NumRows; ++r) {
      const f32x16 y = task.bias ? add(sums[r][t], bias) : sums[r][t];
      store_first(task.y + (row + r) * task.y_stride + column, y, task.num_columns - column);
    }
  }
}

// The block of `rows` rows, which is at most NumRows.
template <class Type, int NumRows, int NumTiles>
void block_of(const LinearTask& task, size_t row, size_t rows, size_t tile) {
  if (rows == NumRows) return block<Type, NumRows, NumTiles>(task, row, tile);
  if constexpr (NumRows > 1) block_of<Type, NumRows - 1, NumTiles>(task, row, rows, tile);
}

// Rows in blocks of nearly the same size; tiles in the outer loop, so that they stay in the second-level cache.
template <class Type>
void linear(const LinearTask& task) {
  const size_t blocks = (task.num_rows + kDenseRows - 1) / kDenseRows;
  for (size_t tile = 0; tile < task.num_tiles;) {
    const bool several = task.num_tiles - tile >= kDenseTiles;
    for (size_t b = 0; b < blocks; ++b) {
      const size_t row = task.num_rows * b / blocks, rows = task.num_rows * (b + 1) / blocks - row;
      if (several) block_of<Type, kDenseRows, kDenseTiles>(task, row, rows, tile);
      else block_of<Type, kDenseRows, 1>(task, row, rows, tile);
    }
    tile += several ? kDenseTiles : 1;
  }
}

// Sixteen of a lane's numbers are gathered at a time; they lie 16 × kStride apart.
template <class Number, size_t kPair, f32x16 (*widen)(const Number*)>
void unpack(const uint8_t* tile, size_t lane, size_t k, float scale, float* out) {
  for (size_t i = 0; i < k; i += 16) {
    const size_t n = k - i < 16 ? k - i : 16;
    Number numbers[16] = {};
    for (size_t j = 0; j < n; ++j) {
      const size_t at = ((i + j) / kPair * kLanes + lane) * kPair + (i + j) % kPair;
      __builtin_memcpy(numbers + j, tile + at * sizeof(Number), sizeof(Number));
    }
    store_first(out + i, mul(widen(numbers), set1(scale)), n);
  }
}

f32x16 widen_half(const uint16_t* p) { return load_half(p); }

}  // namespace

LinearKernel linear_dense(Format format) {
  switch (format) {
    case Format::f32: return linear<F32>;
    case Format::f16: return linear<F16>;
    case Format::bf16: return linear<BF16>;
    default: return nullptr;
  }
}

UnpackKernel unpack_dense(Format format) {
  switch (format) {
    case Format::f32: return unpack<float, 1, load>;
    case Format::f16: return unpack<uint16_t, 1, widen_half>;
    case Format::bf16: return unpack<uint16_t, 2, load_bf16>;
    default: return nullptr;
  }
}

}  // namespace pagoda::PAGODA_ISA
