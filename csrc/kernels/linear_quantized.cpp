// Products of quantized rows with quantized matrices.
//
// y[r][lane] = bias, then for each group of 32 inputs in order: fma(float(integer dot) × weight scale, activation scale, y),
// and with minima fma(minimum, scaled sum of the activations, y). Each output is one chain, whatever the block it is in.
#include "linear_quantized.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Rows that share one unpacking of the weights: as many as leave registers for the unit's 8 vectors.
#if defined(PAGODA_AVX512)
constexpr size_t kMaxRows = 8;
#else
constexpr size_t kMaxRows = 4;
#endif
// One unit times 32 inputs of one row.
template <Format format>
inline f32x16 multiply(const u8x64 (&codes)[8], const f32x16 (&scales)[2], f32x16 minimum, const int8_t* x, const Group& group,
                       f32x16 acc) {
  constexpr bool offset = !has_minima(format);
  constexpr int shift = 8 - code_bits(format);   // of what an offset of 128 takes away, to what this one does
  i32x16 low = offset ? set1_i32(group.offsets[0] >> shift) : zero_i32();
  i32x16 high = offset ? set1_i32(group.offsets[1] >> shift) : zero_i32();
  low = dot16<code_bits(format)>(low, codes, x);
  high = dot16<code_bits(format)>(high, codes + 4, x + 16);
  f32x16 product;
  if constexpr (has_half_scales(format)) product = fma(to_f32(high), scales[1], mul(to_f32(low), scales[0]));
  else product = mul(to_f32(add_i32(low, high)), scales[0]);
  acc = fma(product, set1(group.scale), acc);
  if constexpr (has_minima(format)) acc = fma(minimum, set1(group.scaled_sum), acc);
  return acc;
}

// R rows from `row` on, times one tile.
template <Format format, int R>
void multiply_rows(const LinearTask& task, size_t row, size_t tile) {
  const uint8_t* weights = task.tiles + tile * task.tile_bytes;
  const int8_t* x = task.x.codes + row * task.x.code_stride;
  const Group* groups = task.x.groups + row * task.x.group_stride;
  f32x16 acc[R];
  for (int r = 0; r < R; ++r) acc[r] = task.bias ? load(task.bias + tile * kLanes) : zero();
  for (size_t group = 0; group < task.k / kGroup; ++group) {
    const Unit<format> unit(weights, group);
    u8x64 codes[8];
    unpack_codes<format>(unit, codes);
    f32x16 scales[2], minimum = zero();
    load_scales<format>(unit, scales);
    if constexpr (has_minima(format)) minimum = load_minimum<format>(unit);
    for (int r = 0; r < R; ++r) {
      acc[r] = multiply<format>(codes, scales, minimum, x + r * task.x.code_stride + group * kGroup,
                                groups[r * task.x.group_stride + group], acc[r]);
    }
  }
  const size_t columns = task.num_columns - tile * kLanes;
  for (int r = 0; r < R; ++r) store_first(task.y + (row + r) * task.y_stride + tile * kLanes, acc[r], columns);
}

// Blocks of rows are as equal as they can be; a block's tiles follow each other, so that its inputs stay near.
template <Format format, int R>
void multiply_block(const LinearTask& task, size_t row, size_t rows) {
  if constexpr (R > 1) {
    if (rows < R) return multiply_block<format, R - 1>(task, row, rows);
  }
  for (size_t tile = 0; tile < task.num_tiles; ++tile) multiply_rows<format, R>(task, row, tile);
}

template <Format format>
void linear(const LinearTask& task) {
  const size_t blocks = (task.num_rows + kMaxRows - 1) / kMaxRows;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t row = task.num_rows * block / blocks, end = task.num_rows * (block + 1) / blocks;
    multiply_block<format, kMaxRows>(task, row, end - row);
  }
}

template <Format format>
void unpack_row(const uint8_t* tile, size_t lane, size_t k, float scale, float* out) {
  constexpr float offset = has_minima(format) ? 0.0f : static_cast<float>(1 << (code_bits(format) - 1));
  for (size_t group = 0; group < k / kGroup; ++group, out += kGroup) {
    const Unit<format> unit(tile, group);
    u8x64 codes[8];
    unpack_codes<format>(unit, codes);
    uint8_t bytes[8][64];
    __builtin_memcpy(bytes, codes, sizeof(bytes));
    f32x16 scales[2];
    load_scales<format>(unit, scales);
    float steps[2][kLanes], minima[kLanes] = {};
    store(steps[0], scales[0]);
    store(steps[1], scales[has_half_scales(format) ? 1 : 0]);
    if constexpr (has_minima(format)) store(minima, load_minimum<format>(unit));
    for (int i = 0; i < 8; ++i) {
      for (int t = 0; t < 4; ++t) {
        const float code = static_cast<float>(bytes[i][4 * lane + t]) - offset;
        out[4 * i + t] = (steps[i / 4][lane] * code + minima[lane]) * scale;
      }
    }
  }
}

}  // namespace

LinearKernel linear_quantized(Format format) {
  switch (format) {
    case Format::q4_0: return linear<Format::q4_0>;
    case Format::q4_1: return linear<Format::q4_1>;
    case Format::q5_0: return linear<Format::q5_0>;
    case Format::q5_1: return linear<Format::q5_1>;
    case Format::q8_0: return linear<Format::q8_0>;
    case Format::q4_k: return linear<Format::q4_k>;
    case Format::q5_k: return linear<Format::q5_k>;
    case Format::q6_k: return linear<Format::q6_k>;
    default: return nullptr;
  }
}

UnpackKernel unpack_quantized(Format format) {
  switch (format) {
    case Format::q4_0: return unpack_row<Format::q4_0>;
    case Format::q4_1: return unpack_row<Format::q4_1>;
    case Format::q5_0: return unpack_row<Format::q5_0>;
    case Format::q5_1: return unpack_row<Format::q5_1>;
    case Format::q8_0: return unpack_row<Format::q8_0>;
    case Format::q4_k: return unpack_row<Format::q4_k>;
    case Format::q5_k: return unpack_row<Format::q5_k>;
    case Format::q6_k: return unpack_row<Format::q6_k>;
    default: return nullptr;
  }
}

}  // namespace pagoda::PAGODA_ISA
