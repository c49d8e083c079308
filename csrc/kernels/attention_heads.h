// The two products of attention for one row, a K/V head's part of 16 keys at a time: the same chains of additions as in
// attention_products.h, for heads that take turns.
#pragma once

#include "attention_products.h"

namespace pagoda::PAGODA_ISA {
namespace {

// scores[lane] = q · key × what that is worth, for one group.
template <class Format>
void score_group(const typename Format::Operand* q, const uint8_t* keys, size_t head_dim, float worth, float* scores) {
  typename Format::Sum acc = Format::none();
#pragma GCC unroll 4
  for (size_t pair = 0; pair < head_dim / 2; ++pair) {
    acc = dot2(acc, Format::load(keys + kPairBytes<Format> * pair), spread2(q + 2 * pair));
    keep_order();
  }
  store(scores, Format::scores(acc, worth, keys, head_dim));
}

// 16 sums, or the first `lanes` of them without touching what follows.
template <class Format, bool kWhole>
typename Format::Sum load_sums(const float* p, size_t lanes) {
  if (kWhole) return Format::load_sum(p);
  float first[16] = {};
  __builtin_memcpy(first, p, lanes * sizeof(float));
  return Format::load_sum(first);
}
template <class Format, bool kWhole>
void store_sums(float* p, typename Format::Sum sum, size_t lanes) {
  if (kWhole) return Format::store_sum(p, sum);
  float all[16];
  Format::store_sum(all, sum);
  __builtin_memcpy(p, all, lanes * sizeof(float));
}

// sums[16 c + lane] += weights × V over one group, for C vectors; the last one may not be whole.
template <class Format, size_t C, bool kWhole>
void add_vectors(const typename Format::Operand* weights, const uint8_t* from, size_t head_dim, size_t lanes, float* sums) {
  typename Format::Sum acc[C];
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) acc[c] = load_sums<Format, kWhole>(sums + 16 * c, lanes);
#pragma GCC unroll 8
  for (size_t pair = 0; pair < 8; ++pair, from += 2 * head_dim * kElementBytes<Format>) {
    const typename Format::Pairs x = spread2(weights + 2 * pair);
#pragma GCC unroll 8
    for (size_t c = 0; c < C; ++c) {
      acc[c] = dot2(acc[c], load_lanes<Format, kWhole>(from + kPairBytes<Format> * c, lanes), x);
      keep_order();
    }
  }
#pragma GCC unroll 8
  for (size_t c = 0; c < C; ++c) store_sums<Format, kWhole>(sums + 16 * c, acc[c], lanes);
}

// sums += weights × V over one group, from the number d of head_dim on.
template <class Format, size_t C = 4>
void add_group(const typename Format::Operand* weights, const uint8_t* from, size_t head_dim, float* sums, size_t d = 0) {
  for (; d + 16 * C <= head_dim; d += 16 * C)
    add_vectors<Format, C, true>(weights, from + 2 * d * kElementBytes<Format>, head_dim, 16 * C, sums + d);
  if constexpr (C > 1) add_group<Format, C / 2>(weights, from, head_dim, sums, d);
  else if (d < head_dim)
    add_vectors<Format, 1, false>(weights, from + 2 * d * kElementBytes<Format>, head_dim, head_dim - d, sums + d);
}

// The sums of a head become values.
template <class Format>
void finish_sums(float* sums, size_t head_dim, float worth) {
  size_t d = 0;
  for (; d + 16 <= head_dim; d += 16) store(sums + d, Format::values(Format::load_sum(sums + d), worth));
  if (d == head_dim) return;
  const size_t lanes = head_dim - d;
  store_first(sums + d, Format::values(load_sums<Format, false>(sums + d, lanes), worth), lanes);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
