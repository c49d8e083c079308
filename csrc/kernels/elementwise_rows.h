// Writing a row, 32 numbers at a time, in every form that its readers want.
#pragma once

#include "quantize.h"

namespace pagoda::PAGODA_ISA {

// The last numbers of a row, fewer than 32. Such a row has no codes; one zero pads an odd width in bf16.
inline void write_last(f32x16 a, f32x16 b, size_t i, size_t count, const RowOut& out) {
  const size_t second = count > 16 ? count - 16 : 0;
  if (out.f32) {
    store_first(out.f32 + i, a, count);
    store_first(out.f32 + i + 16, b, second);
  }
  if (out.bf16) {
    store_bf16_first(out.bf16 + i, keep_first(a, count, zero()), count > 16 ? 16 : (count + 1) / 2 * 2);
    store_bf16_first(out.bf16 + i + 16, keep_first(b, second, zero()), (second + 1) / 2 * 2);
  }
}

// 16 × kVectors numbers from i on, in those forms that have no groups.
template <size_t kVectors>
inline void write_floats(const f32x16 (&x)[kVectors], size_t i, const RowOut& out) {
  if (out.f32) for (size_t j = 0; j < kVectors; ++j) store(out.f32 + i + 16 * j, x[j]);
  if (out.bf16) for (size_t j = 0; j < kVectors; ++j) store_bf16_first(out.bf16 + i + 16 * j, x[j], 16);
}

// Writes what at(i, valid) returns for the 16 numbers from i on, of which only the first `valid` are needed.
template <class At>
inline void write_each(size_t n, const RowOut& out, At at) {
  size_t i = 0;
  for (; i + 128 <= n; i += 128) {
    f32x16 x[8];
    for (size_t j = 0; j < 8; ++j) x[j] = at(i + 16 * j, 16);
    if (out.codes) quantize_four(x, out.codes + i, out.groups + i / 32);
    write_floats(x, i, out);
  }
  for (; i + 32 <= n; i += 32) {
    const f32x16 x[2] = {at(i, 16), at(i + 16, 16)};
    if (out.codes) quantize(x[0], x[1], out.codes + i, out.groups + i / 32);
    write_floats(x, i, out);
  }
  if (i == n) return;
  const size_t rest = n - i;
  write_last(at(i, rest < 16 ? rest : 16), rest > 16 ? at(i + 16, rest - 16) : zero(), i, rest, out);
}

// A sum over the row: at(i, valid, part) adds the first `valid` of the 16 numbers from i on to `part`, lane by lane.
// Number i is always added to lane i % 16 of accumulator i / 16 % 4, in the order of i.
template <class At>
inline float sum_each(size_t n, At at) {
  f32x16 parts[4] = {zero(), zero(), zero(), zero()};
  size_t i = 0;
  for (; i + 64 <= n; i += 64)
    for (size_t part = 0; part < 4; ++part) parts[part] = at(i + part * 16, 16, parts[part]);
  for (size_t part = 0; i < n; i += 16, ++part) parts[part] = at(i, n - i < 16 ? n - i : 16, parts[part]);
  return sum(add(add(parts[0], parts[1]), add(parts[2], parts[3])));
}

inline f32x16 load_valid(const float* p, size_t valid) { return valid == 16 ? load(p) : load_first(p, valid); }

}  // namespace pagoda::PAGODA_ISA
