// Products of quantized rows with quantized matrices.
//
// y[r][lane] = bias, then for each group of 32 inputs in order: fma(float(integer dot) × weight scale, activation
// scale, y), and with minima fma(minimum, scaled sum of the activations, y). With a scale for each half of a group, the
// halves' dots times their scales are added first. Each output is one chain, whatever the block it is in.
#include "linear_quantized.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Rows that share one unpacking of the weights: as many as leave most of the second cache to weights, within limits.
// Their accumulators are in the nearest cache: loading and storing one is free beside the products, and rows in a loop
// leave all registers to the unit.
constexpr size_t kMinRows = 8, kMaxRows = 48, kBlockBytes = size_t{128} << 10;
constexpr size_t block_rows(size_t k) {
  const size_t fit = kBlockBytes / k;
  return fit < kMinRows ? kMinRows : fit > kMaxRows ? kMaxRows : fit;
}

// Weights are asked for so many bytes ahead, into the second cache, from so many rows on; with fewer the processor's
// own guesses are better. On Zen 4, 4 and 8 rows of Q4_0 and Q8_0 from memory then run at 90 to 98% of what they do
// from cache.
constexpr size_t kAhead = 7168;
constexpr size_t ahead_from(Format format) { return format == Format::q8_0 ? 4 : 2; }

// One unit times 32 inputs of one row.
template <Format format>
inline f32x16 multiply(const Unit& unit, const int8_t* x, const Group& group, f32x16 acc) {
  constexpr bool offset = !has_minima(format);
  constexpr int num_bits = code_bits(format);
  constexpr int shift = 8 - num_bits;   // of what an offset of 128 takes away, to what this one does
  i32x16 low = offset ? set1_i32(group.offsets[0] >> shift) : zero_i32();
  i32x16 high = offset ? set1_i32(group.offsets[1] >> shift) : zero_i32();
  dot32<num_bits>(low, high, unit.codes, x);
  f32x16 product;
  if constexpr (has_half_scales(format)) product = fma(to_f32(high), unit.scales[1], mul(to_f32(low), unit.scales[0]));
  else product = mul(to_f32(add_i32(low, high)), unit.scales[0]);
  acc = fma(product, set1(group.scale), acc);
  if constexpr (has_minima(format)) acc = fma(unit.minimum, set1(group.scaled_sum), acc);
  return acc;
}

inline f32x16 start_of(const LinearTask& task, size_t tile) {
  return task.bias ? load(task.bias + tile * kLanes) : zero();
}

inline void store_row(const LinearTask& task, size_t row, size_t tile, f32x16 y) {
  store_first(task.y + row * task.y_stride + tile * kLanes, y, task.num_columns - tile * kLanes);
}

template <Format format>
void multiply_row(const LinearTask& task, size_t row, size_t tile) {
  Units<format> units(task.tiles + tile * task.tile_bytes);
  const int8_t* x = task.x.codes + row * task.x.code_stride;
  const Group* groups = task.x.groups + row * task.x.group_stride;
  f32x16 acc = start_of(task, tile);
  for (size_t group = 0; group < task.k / kGroup; ++group) {
    Unit unit;
    units.next(group, unit);
    acc = multiply<format>(unit, x + group * kGroup, groups[group], acc);
  }
  store_row(task, row, tile, acc);
}

// Rows [row, row + rows), at most kMaxRows, times one tile. With ask_for_next, as many rows after them are asked for.
template <Format format, bool ask_for_next>
void multiply_rows(const LinearTask& task, size_t row, size_t rows, size_t tile) {
  Units<format> units(task.tiles + tile * task.tile_bytes);
  const size_t code_stride = task.x.code_stride, group_stride = task.x.group_stride;
  f32x16 acc[kMaxRows];
  for (size_t r = 0; r < rows; ++r) acc[r] = start_of(task, tile);
  for (size_t group = 0; group < task.k / kGroup; ++group) {
    if (rows >= ahead_from(format)) {
      const uint8_t* ahead = units.position() + kAhead;
      for (size_t line = 0; line < Units<format>::kLayout.unit_bytes; line += 64) prefetch_far(ahead + line);
    }
    Unit unit;
    units.next(group, unit);
    const int8_t* x = task.x.codes + row * code_stride + group * kGroup;
    const Group* groups = task.x.groups + row * group_stride + group;
    for (size_t r = 0; r < rows; ++r, x += code_stride, groups += group_stride) {
      if constexpr (ask_for_next) {
        prefetch_far(x + rows * code_stride);
        prefetch_far(groups + rows * group_stride);
      }
      acc[r] = multiply<format>(unit, x, *groups, acc[r]);
    }
  }
  for (size_t r = 0; r < rows; ++r) store_row(task, row + r, tile, acc[r]);
}

// Blocks of rows are as equal as they can be; a block's tiles follow each other, so that its inputs stay near.
template <Format format>
void linear(const LinearTask& task) {
  const size_t most = block_rows(task.k), blocks = (task.num_rows + most - 1) / most;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t row = task.num_rows * block / blocks, rows = task.num_rows * (block + 1) / blocks - row;
    const bool last = row + 2 * rows > task.num_rows;
    for (size_t tile = 0; tile < task.num_tiles; ++tile) {
      if (rows == 1) multiply_row<format>(task, row, tile);
      else if (last || tile + 1 < task.num_tiles) multiply_rows<format, false>(task, row, rows, tile);
      else multiply_rows<format, true>(task, row, rows, tile);
    }
  }
}

template <Format format>
void unpack_row(const uint8_t* tile, size_t lane, size_t k, float scale, float* out) {
  Units<format> units(tile);
  constexpr float offset = has_minima(format) ? 0.0f : static_cast<float>(1 << (code_bits(format) - 1));
  for (size_t group = 0; group < k / kGroup; ++group, out += kGroup) {
    Unit unit;
    units.next(group, unit);
    uint8_t codes[8][64];
    __builtin_memcpy(codes, unit.codes, sizeof(codes));
    float scales[2][kLanes], minima[kLanes] = {};
    store(scales[0], unit.scales[0]);
    store(scales[1], unit.scales[has_half_scales(format) ? 1 : 0]);
    if constexpr (has_minima(format)) store(minima, unit.minimum);
    for (int i = 0; i < 8; ++i) {
      for (int t = 0; t < 4; ++t) {
        const float code = static_cast<float>(codes[i][4 * lane + t]) - offset;
        out[4 * i + t] = (scales[i / 4][lane] * code + minima[lane]) * scale;
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
