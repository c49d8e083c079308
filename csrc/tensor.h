// Rows of activations, in the forms that products want.
// Functions here are static: these headers are compiled for several instruction sets, and a shared copy could be any of theirs.
#pragma once

#include "format.h"

namespace pagoda {

// What goes with 32 quantized inputs of a row: value = scale × code.
struct Group {
  int32_t offsets[2];   // −128 × sum of the codes 0 … 15, and of 16 … 31: what an offset of 128 in weights' codes takes away
  float scale;          // largest magnitude / 127; 0 where all are 0
  float scaled_sum;     // scale × sum of the 32 codes
};
static_assert(sizeof(Group) == 16);

static inline float float_from_bf16(uint16_t x) {
  const uint32_t bits = static_cast<uint32_t>(x) << 16;
  float value;
  __builtin_memcpy(&value, &bits, sizeof(value));
  return value;
}

// One row to be written; a null pointer: that form is not wanted.
struct RowOut {
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;    // an odd width is padded with one zero
  int8_t* codes = nullptr;     // −127 … 127
  Group* groups = nullptr;
};

// Rows to be read. Strides in elements, never a power of two of bytes apart.
struct Rows {
  const float* f32 = nullptr;
  const uint16_t* bf16 = nullptr;
  const int8_t* codes = nullptr;
  const Group* groups = nullptr;
  size_t f32_stride = 0, bf16_stride = 0, code_stride = 0, group_stride = 0;
};

// Bytes from one row to the next: whole cache lines, an odd number of them, so that rows do not meet in one cache set.
static inline constexpr size_t row_bytes(size_t bytes) {
  const size_t lines = (bytes + 63) / 64;
  return (lines | 1) * 64;
}

// A tensor of up to `max_rows` rows in the arena. Each form that exists is a plane of its own.
struct Tensor {
  size_t width = 0;
  float* f32 = nullptr;
  uint16_t* bf16 = nullptr;
  int8_t* codes = nullptr;
  Group* groups = nullptr;

  size_t f32_stride() const { return row_bytes(width * 4) / 4; }
  size_t bf16_stride() const { return row_bytes((width + 1) / 2 * 4) / 2; }
  size_t code_stride() const { return row_bytes(width); }
  size_t group_stride() const { return row_bytes(width / kGroup * sizeof(Group)) / sizeof(Group); }

  RowOut row(size_t r) const {
    return {f32 ? f32 + r * f32_stride() : nullptr, bf16 ? bf16 + r * bf16_stride() : nullptr,
            codes ? codes + r * code_stride() : nullptr, groups ? groups + r * group_stride() : nullptr};
  }
  Rows rows() const { return {f32, bf16, codes, groups, f32_stride(), bf16_stride(), code_stride(), group_stride()}; }
};

// Bytes of so many rows of a tensor in one form, whole cache lines. The codes come first, the groups after them.
static inline constexpr size_t form_bytes(Form form, size_t width, size_t rows) {
  switch (form) {
    case Form::f32: return rows * row_bytes(width * 4);
    case Form::bf16: return rows * row_bytes((width + 1) / 2 * 4);
    case Form::q8: return rows * (row_bytes(width) + row_bytes(width / kGroup * sizeof(Group)));
  }
  return 0;
}

}  // namespace pagoda
