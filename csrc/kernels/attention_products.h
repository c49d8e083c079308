// The two products of attention, rows × keys and weights × values, for a few rows at once.
//
// A row is one query head of one token. Each number is one chain of additions, in the order of head_dim or of keys, so
// how many rows and vectors go together changes the speed only. `Format`: of the cache, see attention_formats.h.
#pragma once

#include "attention_formats.h"

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
  const uint8_t* keys[kGroups];
  const uint8_t* values[kGroups];
  const uint8_t* after_keys[kGroups];
  const uint8_t* after_values[kGroups];
};

// Into the second-level cache: the first has too few places for what is on its way from memory.
inline void fetch(const uint8_t* p) { __builtin_prefetch(p, 0, 2); }

// scores[r][16 g + lane] = q[r] · key × what that is worth, for C groups from g on.
template <class Format, size_t R, size_t C>
void score_tile(const typename Format::Operand* q, size_t q_stride, const Groups& groups, size_t g, size_t head_dim,
                const float* worth, float* scores) {
  typename Format::Sum acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) acc[r][c] = Format::none();
  const uint8_t* keys[C];
  const uint8_t* after[C];
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) keys[c] = groups.keys[g + c], after[c] = groups.after_keys[g + c];
  if constexpr (Format::kScales)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) prefetch(keys[c] + kGroupKeys * head_dim);
  for (size_t pair = 0; pair < head_dim / 2; pair += Format::kPairsOfLine) {
#pragma GCC unroll 2
    for (size_t p = pair; p < pair + Format::kPairsOfLine; ++p) {
      typename Format::Pairs key[C];
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) key[c] = Format::load(keys[c] + kPairBytes<Format> * p);
      if (p == pair)
#pragma GCC unroll 8
        for (size_t c = 0; c < C; ++c) fetch(after[c] + kPairBytes<Format> * p);
#pragma GCC unroll 8
      for (size_t r = 0; r < R; ++r) {
        const typename Format::Pairs x = spread2(q + r * q_stride + 2 * p);
#pragma GCC unroll 8
        for (size_t c = 0; c < C; ++c) acc[r][c] = dot2(acc[r][c], key[c], x);
      }
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c)
      store(scores + r * kScoreStride + 16 * (g + c), Format::scores(acc[r][c], worth[r], keys[c], head_dim));
}

// Scores of R rows with the groups [begin, end).
template <class Format, size_t R, size_t C = vectors(R)>
void score_rows(const typename Format::Operand* q, size_t q_stride, const Groups& groups, size_t begin, size_t end,
                size_t head_dim, const float* worth, float* scores) {
  for (; begin + C <= end; begin += C)
    score_tile<Format, R, C>(q, q_stride, groups, begin, head_dim, worth, scores);
  if constexpr (C > 1) score_rows<Format, R, C / 2>(q, q_stride, groups, begin, end, head_dim, worth, scores);
}

// 16 lanes of pairs, or the first `lanes` of them without reading what follows.
template <class Format, bool kWhole>
typename Format::Pairs load_lanes(const uint8_t* p, size_t lanes) {
  if (kWhole) return Format::load(p);
  uint8_t bytes[kPairBytes<Format>] = {};
  __builtin_memcpy(bytes, p, lanes * 2 * kElementBytes<Format>);
  return Format::load(bytes);
}

// values[r][d + 16 c + lane] = weights × V over the groups [begin, end), for C vectors; the last one may not be whole.
template <class Format, size_t R, size_t C, bool kWhole>
void value_tile(const typename Format::Operand* weights, const Groups& groups, size_t begin, size_t end, size_t head_dim,
                size_t d, const float* worth, float* values) {
  const size_t lanes = head_dim - d, row = 2 * head_dim * kElementBytes<Format>;
  typename Format::Sum acc[R][C];
#pragma GCC unroll 8
  for (size_t r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) acc[r][c] = Format::none();
  for (size_t g = begin; g < end; ++g) {
    const uint8_t* from = groups.values[g] + 2 * d * kElementBytes<Format>;
    const uint8_t* after = groups.after_values[g] + 2 * d * kElementBytes<Format>;
    for (size_t pair = 8 * g; pair < 8 * g + 8; ++pair, from += row, after += row) {
      typename Format::Pairs value[C];
#pragma GCC unroll 8
      for (size_t c = 0; c < C; ++c) value[c] = load_lanes<Format, kWhole>(from + kPairBytes<Format> * c, lanes);
#pragma GCC unroll 8
      for (size_t c = 0; c < C; c += Format::kPairsOfLine) fetch(after + kPairBytes<Format> * c);
#pragma GCC unroll 8
      for (size_t r = 0; r < R; ++r) {
        const typename Format::Pairs x = spread2(weights + r * kWeightStride + 2 * pair);
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
      const f32x16 sum = Format::values(acc[r][c], worth[r]);
      if (kWhole) store(to, sum);
      else store_first(to, sum, lanes);
    }
}

// values = weights × V for R rows over the groups [begin, end), from the number d of head_dim on.
template <class Format, size_t R, size_t C = vectors(R)>
void value_rows(const typename Format::Operand* weights, const Groups& groups, size_t begin, size_t end, size_t head_dim,
                const float* worth, float* values, size_t d = 0) {
  for (; d + 16 * C <= head_dim; d += 16 * C)
    value_tile<Format, R, C, true>(weights, groups, begin, end, head_dim, d, worth, values);
  if constexpr (C > 1) value_rows<Format, R, C / 2>(weights, groups, begin, end, head_dim, worth, values, d);
  else if (d < head_dim) value_tile<Format, R, 1, false>(weights, groups, begin, end, head_dim, d, worth, values);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
