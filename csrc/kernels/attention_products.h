// The two products of attention, rows × keys and weights × values, for a few rows at once.
//
// A row is one query head of one token. Each number is one chain of additions, in the order of head_dim or of keys, so
// how many rows and vectors go together changes the speed only.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Rows that share one pass, and how many sums of 16 lanes the registers hold beside what they are made of.
#if defined(PAGODA_AVX512)
constexpr size_t kRows = 8;
constexpr size_t kSums = 16;
#else
constexpr size_t kRows = 4;
constexpr size_t kSums = 4;
#endif

// Vectors of 16 keys, or of 16 numbers of head_dim, that R rows take beside each other.
constexpr size_t vectors(size_t rows) {
  size_t n = 8;
  while (n > 1 && n * rows > kSums) n /= 2;
  return n;
}

constexpr size_t kGroups = kSplitKeys / 16;        // of 16 keys
constexpr size_t kScoreStride = kSplitKeys + 16;   // not a power of two
constexpr size_t kWeightStride = kSplitKeys + 32;

// The 16 keys of each group of a split, and what is to be fetched from memory while they are worked on: as much as they
// take, some groups further on; or themselves, where there are many rows, for which memory is fast enough.
struct Groups {
  const uint16_t* keys[kGroups];
  const uint16_t* values[kGroups];
  const uint16_t* after_keys[kGroups];
  const uint16_t* after_values[kGroups];
};

// Into the second-level cache: the first has too few places for what is on its way from memory.
inline void fetch(const uint16_t* p) { __builtin_prefetch(p, 0, 2); }

// scores[r][16 g + lane] = scale × q[r] · key for C groups from g on.
template <size_t R, size_t C>
void score_tile(const uint16_t* q, size_t q_stride, const Groups& groups, size_t g, size_t head_dim, float scale,
                float* scores) {
  f32x16 acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) acc[r][c] = zero();
  const uint16_t* keys[C];
  const uint16_t* after[C];
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) keys[c] = groups.keys[g + c], after[c] = groups.after_keys[g + c];
  for (size_t pair = 0; pair < head_dim / 2; ++pair) {
    bf16x32 key[C];
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) key[c] = load_pairs(keys[c] + 32 * pair);
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) fetch(after[c] + 32 * pair);
#pragma GCC unroll 8
    for (size_t r = 0; r < R; ++r) {
      const bf16x32 x = spread2(q + r * q_stride + 2 * pair);
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) acc[r][c] = dot2(acc[r][c], key[c], x);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) store(scores + r * kScoreStride + 16 * (g + c), mul(acc[r][c], set1(scale)));
}

// Scores of R rows with the groups [begin, end).
template <size_t R, size_t C = vectors(R)>
void score_rows(const uint16_t* q, size_t q_stride, const Groups& groups, size_t begin, size_t end, size_t head_dim,
                float scale, float* scores) {
  for (; begin + C <= end; begin += C) score_tile<R, C>(q, q_stride, groups, begin, head_dim, scale, scores);
  if constexpr (C > 1) score_rows<R, C / 2>(q, q_stride, groups, begin, end, head_dim, scale, scores);
}

// The first n of 16 lanes of pairs, without reading what follows them.
inline bf16x32 load_first_pairs(const uint16_t* p, size_t n) {
  uint16_t lanes[32] = {};
  __builtin_memcpy(lanes, p, n * 4);
  return load_pairs(lanes);
}

// values[r][d + 16 c + lane] = weights × V over the groups [begin, end), for C vectors; the last one may not be whole.
//
// Tiny sums are flushed to a 0 of either sign where there is an instruction for the product. The 0 added last makes it
// positive, so a weight of 0 changes nothing at all.
template <size_t R, size_t C, bool kWhole>
void value_tile(const uint16_t* weights, const Groups& groups, size_t begin, size_t end, size_t head_dim, size_t d,
                float* values) {
  const size_t lanes = head_dim - d;
  f32x16 acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) acc[r][c] = zero();
  for (size_t g = begin; g < end; ++g) {
    const uint16_t* from = groups.values[g] + 2 * d;
    const uint16_t* after = groups.after_values[g] + 2 * d;
    for (size_t pair = 8 * g; pair < 8 * g + 8; ++pair, from += 2 * head_dim, after += 2 * head_dim) {
      bf16x32 value[C];
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c)
        value[c] = kWhole ? load_pairs(from + 32 * c) : load_first_pairs(from + 32 * c, lanes);
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) fetch(after + 32 * c);
#pragma GCC unroll 8
      for (size_t r = 0; r < R; ++r) {
        const bf16x32 x = spread2(weights + r * kWeightStride + 2 * pair);
#pragma GCC unroll 8
        for (size_t c = 0; c < C; ++c) acc[r][c] = dot2(acc[r][c], value[c], x);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) {
      float* to = values + r * head_dim + d + 16 * c;
      const f32x16 sum = add(acc[r][c], zero());
      if (kWhole) store(to, sum);
      else store_first(to, sum, lanes);
    }
}

// values = weights × V for R rows over the groups [begin, end), from the number d of head_dim on.
template <size_t R, size_t C = vectors(R)>
void value_rows(const uint16_t* weights, const Groups& groups, size_t begin, size_t end, size_t head_dim, float* values,
                size_t d = 0) {
  for (; d + 16 * C <= head_dim; d += 16 * C) value_tile<R, C, true>(weights, groups, begin, end, head_dim, d, values);
  if constexpr (C > 1) value_rows<R, C / 2>(weights, groups, begin, end, head_dim, values, d);
  else if (d < head_dim) value_tile<R, 1, false>(weights, groups, begin, end, head_dim, d, values);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
