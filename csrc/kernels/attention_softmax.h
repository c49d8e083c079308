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

// 16 numbers of a group's keys, with `unseen` where the token does not see the key.
inline f32x16 keep_visible(f32x16 x, size_t group, Span span, f32x16 unseen) {
  const size_t first = 16 * group;
  if (span.end < first + 16) x = keep_first(x, span.end > first ? span.end - first : 0, unseen);
  if (span.begin > first) x = keep_first(unseen, span.begin - first, x);
  return x;
}

// 2^(score − largest) of the groups [begin, end) as the format's operands, exactly 0 for keys that the row does not see;
// its largest score, and the sum before rounding: of each lane in the order of groups, then of the lanes. Returns what the
// sum of the operands' products with values is worth.
//
// keys[g] + head: group g's K. scores: overwritten.
template <class Format>
float softmax(float* scores, Span span, size_t begin, size_t end, const uint8_t* const* keys, size_t head, size_t head_dim,
              typename Format::Operand* weights, float* largest_out, float* sum_out) {
  const size_t from = span.empty() ? end : span.first_group(), to = span.empty() ? end : span.end_group();
  for (size_t i = 16 * begin; i < 16 * from; ++i) weights[i] = 0;
  for (size_t i = 16 * to; i < 16 * end; ++i) weights[i] = 0;
  if (span.empty()) return 0.0f;
  const f32x16 unseen = set1(-__builtin_inff());
  store(scores + 16 * from, keep_visible(load(scores + 16 * from), from, span, unseen));
  store(scores + 16 * (to - 1), keep_visible(load(scores + 16 * (to - 1)), to - 1, span, unseen));
  f32x16 most = load(scores + 16 * from);
  for (size_t g = from + 1; g < to; ++g) most = max(most, load(scores + 16 * g));
  const float top = largest(most);
  f32x16 total = zero();
  typename Format::Weights out(scores, weights, span, head_dim);
  for (size_t g = from; g < to; ++g) {
    const f32x16 p = exp2_to_one(sub(load(scores + 16 * g), set1(top)));
    total = add(total, p);
    out.put(g, p, keys[g] + head);
  }
  *largest_out = top;
  *sum_out = sum(total);
  return out.finish(from, to);
}

}  // namespace
}  // namespace pagoda::PAGODA_ISA
