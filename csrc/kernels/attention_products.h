// The two products of attention, rows × keys and rows × values, for a few rows at once.
//
// A row is one query head of one token. Everything here is one chain of additions per number, in the order of head_dim
// and of keys, so how many rows and vectors go together changes the speed only.
#pragma once

#include "table.h"
#include "simd.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Rows that share one pass, and vectors of 16 keys or 16 numbers of head_dim beside each other: as many sums as registers
// hold.
#if defined(PAGODA_AVX512)
constexpr size_t kRows = 8;
constexpr size_t kVectors = 2;
#else
constexpr size_t kRows = 4;
constexpr size_t kVectors = 1;
#endif

constexpr size_t kLaneKeys = 16;
constexpr size_t kGroups = kSplitKeys / kLaneKeys;   // of 16 keys
constexpr size_t kScoreStride = kSplitKeys + 16;     // not a power of two
constexpr size_t kWeightStride = kSplitKeys + 32;

// Where the 16 keys of each group of a split lie: elements from the start of the layer's K, and of its V.
struct Groups {
  size_t at[kGroups];
};

// out[r][16 g + lane] = scale × q[r] · key, for `C` groups from g on.
template <size_t R, size_t C>
void score_tile(const uint16_t* q, size_t q_stride, const uint16_t* k, const size_t* at, size_t pairs, float scale,
                float* out) {
  f32x16 acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) acc[r][c] = zero();
  const uint16_t* keys[C];
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) keys[c] = k + at[c];
  for (size_t i = 0; i < pairs; ++i) {
    bf16x32 key[C];
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) key[c] = load_pairs(keys[c] + 32 * i);
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) {
      const bf16x32 x = spread2(q + r * q_stride + 2 * i);
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) acc[r][c] = dot2(acc[r][c], key[c], x);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) store(out + r * kScoreStride + 16 * c, mul(acc[r][c], set1(scale)));
}

// Scores of R rows with the groups [begin, end) of a split.
template <size_t R>
void score_rows(const uint16_t* q, size_t q_stride, const uint16_t* k, const Groups& groups, size_t begin, size_t end,
                size_t head_dim, float scale, float* scores) {
  size_t g = begin;
  for (; g + kVectors <= end; g += kVectors)
    score_tile<R, kVectors>(q, q_stride, k, groups.at + g, head_dim / 2, scale, scores + 16 * g);
  for (; g < end; ++g) score_tile<R, 1>(q, q_stride, k, groups.at + g, head_dim / 2, scale, scores + 16 * g);
}

// The first n of 16 lanes of pairs, without reading what follows them.
inline bf16x32 load_first_pairs(const uint16_t* p, size_t n) {
  uint16_t lanes[32] = {};
  __builtin_memcpy(lanes, p, n * 4);
  return load_pairs(lanes);
}

// values[r][16 c + lane] += weights of the key pairs [begin, end) times V; `lanes` counts those of the last vector.
template <size_t R, size_t C, bool kWhole>
void value_tile(const uint16_t* weights, const uint16_t* v, const Groups& groups, size_t begin, size_t end,
                size_t head_dim, size_t lanes, float* values) {
  f32x16 acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) {
      const float* at = values + r * head_dim + 16 * c;
      acc[r][c] = kWhole ? load(at) : load_first(at, lanes);
    }
  for (size_t pair = begin; pair < end; ++pair) {
    const uint16_t* from = v + groups.at[pair / 8] + pair % 8 * 2 * head_dim;
    bf16x32 value[C];
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c)
      value[c] = kWhole ? load_pairs(from + 32 * c) : load_first_pairs(from + 32 * c, lanes);
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) {
      const bf16x32 x = spread2(weights + r * kWeightStride + 2 * pair);
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) acc[r][c] = dot2(acc[r][c], value[c], x);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) {
      float* at = values + r * head_dim + 16 * c;
      if (kWhole) store(at, acc[r][c]);
      else store_first(at, acc[r][c], lanes);
    }
}

// values += weights × V for R rows over the key pairs [begin, end) of a split.
template <size_t R>
void add_values(const uint16_t* weights, const uint16_t* v, const Groups& groups, size_t begin, size_t end,
                size_t head_dim, float* values) {
  size_t d = 0;
  for (; d + 16 * kVectors <= head_dim; d += 16 * kVectors)
    value_tile<R, kVectors, true>(weights, v + 2 * d, groups, begin, end, head_dim, 16, values + d);
  for (; d + 16 <= head_dim; d += 16)
    value_tile<R, 1, true>(weights, v + 2 * d, groups, begin, end, head_dim, 16, values + d);
  if (d < head_dim) value_tile<R, 1, false>(weights, v + 2 * d, groups, begin, end, head_dim, head_dim - d, values + d);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
