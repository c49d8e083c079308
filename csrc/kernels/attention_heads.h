// The two products of attention for one row, a K/V head's part of 16 keys at a time: the same chains of additions as in
// attention_products.h, for heads that take turns.
#pragma once

#include "attention_products.h"

namespace pagoda::PAGODA_ISA {
namespace {

// scores[lane] = scale × q · key for one group.
inline void score_group(const uint16_t* q, const uint16_t* keys, size_t head_dim, float scale, float* scores) {
  f32x16 acc = zero();
#pragma GCC unroll 4
  for (size_t pair = 0; pair < head_dim / 2; ++pair) {
    acc = dot2(acc, load_pairs(keys + 32 * pair), spread2(q + 2 * pair));
    keep_order();
  }
  store(scores, mul(acc, set1(scale)));
}

// values[16 c + lane] += weights × V over one group, for C vectors; the last one may not be whole. The 0 makes each 0
// positive, as in value_tile.
template <size_t C, bool kWhole>
void add_vectors(const uint16_t* weights, const uint16_t* from, size_t head_dim, size_t lanes, float* values) {
  f32x16 acc[C];
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) acc[c] = kWhole ? load(values + 16 * c) : load_first(values + 16 * c, lanes);
#pragma GCC unroll 8
  for (size_t pair = 0; pair < 8; ++pair, from += 2 * head_dim) {
    const bf16x32 x = spread2(weights + 2 * pair);
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) {
      acc[c] = dot2(acc[c], kWhole ? load_pairs(from + 32 * c) : load_first_pairs(from + 32 * c, lanes), x);
      keep_order();
    }
  }
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) {
    const f32x16 sum = add(acc[c], zero());
    if (kWhole) store(values + 16 * c, sum);
    else store_first(values + 16 * c, sum, lanes);
  }
}

// values += weights × V over one group, from the number d of head_dim on.
template <size_t C = 4>
void add_group(const uint16_t* weights, const uint16_t* from, size_t head_dim, float* values, size_t d = 0) {
  for (; d + 16 * C <= head_dim; d += 16 * C) add_vectors<C, true>(weights, from + 2 * d, head_dim, 16 * C, values + d);
  if constexpr (C > 1) add_group<C / 2>(weights, from, head_dim, values, d);
  else if (d < head_dim) add_vectors<1, false>(weights, from + 2 * d, head_dim, head_dim - d, values + d);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
