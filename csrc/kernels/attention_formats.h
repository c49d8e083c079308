// The formats of the paged cache as attention wants them: how pairs are read and multiplied, what q and weights become for
// that, and what a sum of products stands for. kv_format.h says how a group of 16 keys lies.
#pragma once

#include "attention_softmax.h"
#include "quantize.h"
#include "table.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Products of bf16, added up as float32.
struct Bf16 {
  using Operand = uint16_t;
  using Pairs = bf16x32;
  using Sum = f32x16;
  static constexpr KVFormat kFormat = KVFormat::bf16;
  static constexpr bool kScales = false;
  static constexpr size_t kPairsOfLine = 1;   // of 16 lanes, in a cache line

  static Pairs load(const uint8_t* p) { return load_pairs(reinterpret_cast<const uint16_t*>(p)); }
  static Sum none() { return zero(); }
  static Sum load_sum(const float* p) { return pagoda::PAGODA_ISA::load(p); }
  static void store_sum(float* p, Sum sum) { store(p, sum); }

  // A query's numbers as operands. Returns what the sum of their products with a key is worth.
  static float narrow(const float* q, size_t n, float scale, Operand* out) {
    size_t i = 0;
    for (; i + 16 <= n; i += 16) store_bf16_first(out + i, pagoda::PAGODA_ISA::load(q + i), 16);
    if (i < n) store_bf16_first(out + i, load_first(q + i, n - i), n - i);
    return scale;
  }
  static f32x16 scores(Sum sum, float worth, const uint8_t* /*keys*/, size_t /*head_dim*/) { return mul(sum, set1(worth)); }

  // Takes a row's weights group by group.
  struct Weights {
    Operand* out;

    Weights(float* /*scores*/, Operand* weights, Span, size_t /*head_dim*/) : out(weights) {}
    void put(size_t group, f32x16 p, const uint8_t* /*keys*/) { store_bf16_first(out + 16 * group, p, 16); }
    float finish(size_t /*from*/, size_t /*to*/) { return 1.0f; }
  };
  // Tiny sums are flushed to a 0 of either sign where there is an instruction for the product. The 0 makes it positive, so
  // a weight of 0 changes nothing at all.
  static f32x16 values(Sum sum, float /*worth*/) { return add(sum, zero()); }
};

// Codes of 8 bits times numbers of 16, added up as int32, which is exact: kMaxInt8HeadDim codes, or kSplitKeys of them, of
// 127 at most times 32767 are below 2^31. Codes are always numbers; where K, V or a query is none, its scale is NaN.
struct Int8 {
  using Operand = int16_t;
  using Pairs = i16x32;
  using Sum = i32x16;
  static constexpr KVFormat kFormat = KVFormat::int8;
  static constexpr bool kScales = true;
  static constexpr size_t kPairsOfLine = 2;

  static Pairs load(const uint8_t* p) { return load_pairs(reinterpret_cast<const int8_t*>(p)); }
  static Sum none() { return zero_i32(); }
  static Sum load_sum(const float* p) {
    Sum sum;
    __builtin_memcpy(&sum, p, sizeof(sum));
    return sum;
  }
  static void store_sum(float* p, Sum sum) { __builtin_memcpy(p, &sum, sizeof(sum)); }

  static float narrow(const float* q, size_t n, float scale, Operand* out) {
    return scale * to_codes(q, n, magnitude(q, n), out);
  }
  static f32x16 scores(Sum sum, float worth, const uint8_t* keys, size_t head_dim) {
    return mul(to_f32(sum), mul(load_half(keys + kGroupKeys * head_dim), set1(worth)));
  }

  // A weight is multiplied by its value's scale, and those of a row in one split become codes together.
  struct Weights {
    float* scaled;     // in the place of the scores
    Operand* out;
    Span span;
    size_t head_dim;
    f32x16 most = zero(), total = zero();

    Weights(float* scores, Operand* weights, Span seen, size_t width)
        : scaled(scores), out(weights), span(seen), head_dim(width) {}
    void put(size_t group, f32x16 p, const uint8_t* keys) {
      const f32x16 scales = load_half(keys + kGroupKeys * head_dim + kGroupScaleBytes);
      const f32x16 x = keep_visible(mul(p, scales), group, span, zero());   // a scale that is not seen may be NaN
      most = max(most, x);
      total = add(total, x);
      store(scaled + 16 * group, x);
    }
    float finish(size_t from, size_t to) {
      // The largest of NaN and others could be any of them; their sum is NaN.
      const float all = sum(total), top = all < kInfinity ? largest(most) : all;
      return to_codes(scaled + 16 * from, 16 * (to - from), top, out + 16 * from);
    }
  };
  static f32x16 values(Sum sum, float worth) { return mul(to_f32(sum), set1(worth)); }

 private:
  static float magnitude(const float* x, size_t n) {
    f32x16 most = zero();
    for (size_t i = 0; i < n; i += 16) most = max(most, min(abs(load_first(x + i, n - i)), set1(kInfinity)));
    return largest(most);
  }

  // Codes up to ±32767, to nearest even, of numbers within ±top. Returns what one step is worth: NaN where top is no number.
  static float to_codes(const float* x, size_t n, float top, Operand* out) {
    const bool usual = top >= kSmallestGroup && top < kInfinity;
    const f32x16 inverse = set1(usual ? 32767.0f / top : 0.0f);
    for (size_t i = 0; i < n; i += 16) {
      const i32x16 codes = usual ? to_i32(mul(load_first(x + i, n - i), inverse)) : zero_i32();
      if (n - i >= 16) {
        store_i16(out + i, codes);
      } else {
        Operand last[16];
        store_i16(last, codes);
        __builtin_memcpy(out + i, last, (n - i) * sizeof(Operand));
      }
    }
    if (usual) return top / 32767.0f;
    return top < kInfinity ? 0.0f : __builtin_nanf("");
  }
};

template <class Format>
constexpr size_t kElementBytes = kv_element_bytes(Format::kFormat);
// 16 lanes of pairs.
template <class Format>
constexpr size_t kPairBytes = 32 * kElementBytes<Format>;

}  // namespace
}  // namespace pagoda::PAGODA_ISA
