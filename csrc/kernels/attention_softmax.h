// The softmax of one row over one split, in powers of two: scores come multiplied by log2 e.
#pragma once

#include "exp.h"

namespace pagoda::PAGODA_ISA {
namespace {

// The keys [begin, end) that a token sees, counted from the start of the split; {0, 0}: none.
struct Span {
  size_t begin;
  size_t end;
  bool empty() const { return begin >= end; }
  size_t first_group() const { return begin / 16; }
  size_t end_group() const { return (end + 15) / 16; }
};

// The 16 scores of a group with −infinity where the token does not see the key.
inline f32x16 keep_visible(f32x16 scores, size_t group, Span span) {
  const f32x16 unseen = set1(-__builtin_inff());
  const size_t first = 16 * group;
  if (span.end < first + 16) scores = keep_first(scores, span.end - first, unseen);
  if (span.begin > first) scores = keep_first(unseen, span.begin - first, scores);
  return scores;
}

// 2^(score − largest) of the groups [begin, end) as bf16, exactly 0 for keys that the row does not see; its largest
// score, and the sum before rounding: of each lane in the order of groups, then of the lanes.
inline void softmax(float* scores, Span span, size_t begin, size_t end, uint16_t* weights, float* largest_out,
                    float* sum_out) {
  const size_t from = span.empty() ? end : span.first_group(), to = span.empty() ? end : span.end_group();
  for (size_t g = begin; g < from; ++g) store_bf16_first(weights + 16 * g, zero(), 16);
  for (size_t g = to; g < end; ++g) store_bf16_first(weights + 16 * g, zero(), 16);
  if (span.empty()) return;
  store(scores + 16 * from, keep_visible(load(scores + 16 * from), from, span));
  store(scores + 16 * (to - 1), keep_visible(load(scores + 16 * (to - 1)), to - 1, span));
  f32x16 most = load(scores + 16 * from);
  for (size_t g = from + 1; g < to; ++g) most = max(most, load(scores + 16 * g));
  const float top = largest(most);
  f32x16 total = zero();
  for (size_t g = from; g < to; ++g) {
    const f32x16 p = exp2_to_one(sub(load(scores + 16 * g), set1(top)));
    total = add(total, p);
    store_bf16_first(weights + 16 * g, p, 16);
  }
  *largest_out = top;
  *sum_out = sum(total);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
