// Writing a row, 32 numbers at a time, in every form that its readers want.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {

inline constexpr float kInfinity = __builtin_inff();
// A group whose numbers are all below is taken as zeros: the inverse of its scale would be beyond float32.
inline constexpr float kSmallestGroup = 0x1p-100f;

// 32 numbers as codes. An infinity or NaN among them makes the scale NaN, so that no product with them looks like a number.
inline void quantize(f32x16 a, f32x16 b, int8_t* codes, Group* group) {
  // The smaller of NaN and infinity is infinity here; the largest of a NaN and others could be any of them.
  const f32x16 limit = set1(kInfinity);
  const float magnitude = largest(max(min(abs(a), limit), min(abs(b), limit)));
  if (!(magnitude >= kSmallestGroup && magnitude < kInfinity)) {
    const float scale = magnitude < kInfinity ? 0.0f : __builtin_nanf("");
    store_i8(codes, zero_i32());
    store_i8(codes + 16, zero_i32());
    *group = {scale, scale, {0, 0}};
    return;
  }
  const f32x16 inverse = set1(127.0f / magnitude);
  const f32x16 low = round_to_integer(mul(a, inverse)), high = round_to_integer(mul(b, inverse));
  store_i8(codes, to_i32(low));
  store_i8(codes + 16, to_i32(high));
  // Both halves' sums in one: each is within ±16 × 127, less than half of 4096, and floats are exact up to 2^24.
  const int32_t both = static_cast<int32_t>(sum(fma(high, set1(4096.0f), low)));
  const int32_t second = (both + 2048) >> 12, first = both - second * 4096;
  const float scale = magnitude / 127.0f;
  *group = {scale, scale * static_cast<float>(first + second), {static_cast<int16_t>(first), static_cast<int16_t>(second)}};
}

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

// Calls at(i, valid) for the 16 numbers from i on, of which only the first `valid` are needed, and writes what it returns.
template <class At>
inline void write_each(size_t n, const RowOut& out, At at) {
  size_t i = 0;
  for (; i + 32 <= n; i += 32) {
    const f32x16 a = at(i, 16), b = at(i + 16, 16);
    if (out.codes) quantize(a, b, out.codes + i, out.groups + i / 32);
    if (out.f32) {
      store(out.f32 + i, a);
      store(out.f32 + i + 16, b);
    }
    if (out.bf16) {
      store_bf16_first(out.bf16 + i, a, 16);
      store_bf16_first(out.bf16 + i + 16, b, 16);
    }
  }
  if (i == n) return;
  const size_t rest = n - i;
  write_last(at(i, rest < 16 ? rest : 16), rest > 16 ? at(i + 16, rest - 16) : zero(), i, rest, out);
}

// The sum of at(i, valid) over the row, whose lanes from `valid` on are zeros. Number i is always added to lane i % 16 of
// accumulator i / 16 % 4, in the order of i.
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
