// Attention over one split of the paged K/V cache, in two passes per block of rows: scores and softmax, then values.
//
// Splits are cut at absolute positions and joined as flash attention does (arXiv:2205.14135). Every number of a (token,
// head) is worked out in an order that key positions alone decide, so it is the same in a chunk of any size.
#include "attention_products.h"
#include "exp.h"

namespace pagoda::PAGODA_ISA {
namespace {

constexpr float kNegativeInfinity = -__builtin_inff();

size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
size_t larger(size_t a, size_t b) { return a > b ? a : b; }

// The keys [begin, end) that a token sees, counted from the start of the split; none where begin ≥ end.
struct Span {
  size_t begin;
  size_t end;
  bool empty() const { return begin >= end; }
};

Span visible(const AttentionTask& task, size_t split, size_t token) {
  const size_t base = split * kSplitKeys, stop = task.start + token + 1;
  const size_t oldest = task.window && stop > task.window ? stop - task.window : 0;
  const size_t begin = larger(oldest, base), end = smaller(stop, base + kSplitKeys);
  return begin < end ? Span{begin - base, end - base} : Span{0, 0};
}

// What a block of rows works with; all of it in the caller's scratch.
struct Scratch {
  uint16_t* q;         // [kRows][q_stride]
  float* scores;       // [kRows][kScoreStride]
  uint16_t* weights;   // [kRows][kWeightStride]
  uint16_t* edge;      // [head_dim][2]
  size_t q_stride;
};

constexpr size_t kScoreBytes = kRows * kScoreStride * 4;
constexpr size_t kWeightBytes = kRows * kWeightStride * 2;

Scratch divide(void* memory, size_t head_dim) {
  uint8_t* at = static_cast<uint8_t*>(memory);
  Scratch scratch;
  scratch.scores = reinterpret_cast<float*>(at);
  scratch.weights = reinterpret_cast<uint16_t*>(at += kScoreBytes);
  scratch.q = reinterpret_cast<uint16_t*>(at += kWeightBytes);
  scratch.q_stride = row_bytes(head_dim * 2) / 2;
  scratch.edge = reinterpret_cast<uint16_t*>(at + kRows * row_bytes(head_dim * 2));
  return scratch;
}

void to_bf16(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store_bf16_first(out + i, load(x + i), 16);
  if (i < n) store_bf16_first(out + i, load_first(x + i, n - i), n - i);
}

// The 16 scores of a group with −infinity where the token does not see the key.
f32x16 load_visible(const float* scores, size_t group, Span span) {
  f32x16 x = load(scores + 16 * group);
  const size_t first = 16 * group;
  if (span.end < first + 16) x = keep_first(x, span.end - first, set1(kNegativeInfinity));
  if (span.begin > first) x = keep_first(set1(kNegativeInfinity), span.begin - first, x);
  return x;
}

// exp(score − largest) of one row as bf16, its largest score, and the sum before rounding.
void softmax(const float* scores, Span span, uint16_t* weights, float* largest_out, float* sum_out) {
  const size_t begin = span.begin / 16, end = (span.end + 15) / 16;
  f32x16 most = set1(kNegativeInfinity);
  for (size_t g = begin; g < end; ++g) most = max(most, load_visible(scores, g, span));
  const float top = largest(most);
  f32x16 total = zero();
  for (size_t g = begin; g < end; ++g) {
    const f32x16 p = exp(sub(load_visible(scores, g, span), set1(top)));
    total = add(total, p);
    store_bf16_first(weights + 16 * g, p, 16);
  }
  *largest_out = top;
  *sum_out = sum(total);
}

// One row's values over a span. A pair of keys of which it sees one is copied without the other: a weight of 0 would not
// keep out what is not a number.
void add_row_values(const AttentionTask& task, const Groups& groups, const uint16_t* weights, Span span, uint16_t* edge,
                    float* values) {
  size_t key = span.begin;
  while (key < span.end) {
    if (key % 2 == 0 && key + 1 < span.end) {
      const size_t stop = span.end / 2;
      add_values<1>(weights, task.v, groups, key / 2, stop, task.head_dim, values);
      key = 2 * stop;
      continue;
    }
    const uint16_t* pair = task.v + groups.at[key / 16] + key % 16 / 2 * 2 * task.head_dim;
    for (size_t d = 0; d < task.head_dim; ++d) {
      edge[2 * d] = key % 2 ? 0 : pair[2 * d];
      edge[2 * d + 1] = key % 2 ? pair[2 * d + 1] : 0;
    }
    const Groups alone{};
    add_values<1>(weights + key / 2 * 2, edge, alone, 0, 1, task.head_dim, values);
    ++key;
  }
}

// Rows [first, first + R) of the task; row = token × heads + head.
template <size_t R>
void attend_rows(const AttentionTask& task, size_t split, const Groups& groups, size_t first, const Partial& out,
                 const Scratch& scratch) {
  Span spans[R];
  size_t begin = kSplitKeys, end = 0, common_begin = 0, common_end = kSplitKeys;
  for (size_t r = 0; r < R; ++r) {
    const size_t token = (first + r) / task.heads, head = (first + r) % task.heads;
    spans[r] = visible(task, split, token);
    if (!spans[r].empty()) begin = smaller(begin, spans[r].begin), end = larger(end, spans[r].end);
    common_begin = larger(common_begin, spans[r].begin), common_end = smaller(common_end, spans[r].end);
    to_bf16(task.q + token * task.q_stride + head * task.head_dim, task.head_dim, scratch.q + r * scratch.q_stride);
  }
  float* values = out.values + first * task.head_dim;
  __builtin_memset(values, 0, R * task.head_dim * sizeof(float));
  if (begin < end)
    score_rows<R>(scratch.q, scratch.q_stride, task.k, groups, begin / 16, (end + 15) / 16, task.head_dim, task.scale,
                  scratch.scores);
  for (size_t r = 0; r < R; ++r) {
    float* largest = out.largest + first + r;
    float* sum = out.sum + first + r;
    if (spans[r].empty()) *largest = kNegativeInfinity, *sum = 0;
    else softmax(scratch.scores + r * kScoreStride, spans[r], scratch.weights + r * kWeightStride, largest, sum);
  }
  // Whole pairs that all rows see go together; what only some see comes before and after, row by row.
  const size_t pair_begin = (common_begin + 1) / 2, pair_end = common_end / 2;
  const bool together = pair_begin < pair_end;
  for (size_t r = 0; r < R; ++r) {
    const Span before{spans[r].begin, together ? 2 * pair_begin : spans[r].end};
    add_row_values(task, groups, scratch.weights + r * kWeightStride, before, scratch.edge, values + r * task.head_dim);
  }
  if (!together) return;
  add_values<R>(scratch.weights, task.v, groups, pair_begin, pair_end, task.head_dim, values);
  for (size_t r = 0; r < R; ++r) {
    const Span after{2 * pair_end, spans[r].end};
    add_row_values(task, groups, scratch.weights + r * kWeightStride, after, scratch.edge, values + r * task.head_dim);
  }
}

template <size_t R>
void attend_rest(const AttentionTask& task, size_t split, const Groups& groups, size_t first, size_t rows,
                 const Partial& out, const Scratch& scratch) {
  if (rows == R) return attend_rows<R>(task, split, groups, first, out, scratch);
  if constexpr (R > 1) attend_rest<R - 1>(task, split, groups, first, rows, out, scratch);
}

}  // namespace

size_t attention_scratch(const AttentionTask& task) {
  return kScoreBytes + kWeightBytes + kRows * row_bytes(task.head_dim * 2) + align64(task.head_dim * 4);
}

void attend(const AttentionTask& task, size_t split, const Partial& out, void* memory) {
  const Scratch scratch = divide(memory, task.head_dim);
  // The first token sees the oldest keys, unless it comes before the split.
  const size_t base = split * kSplitKeys, stop = task.start + task.num_tokens;
  const size_t begin = visible(task, split, 0).begin, end = stop > base ? smaller(stop - base, kSplitKeys) : 0;
  Groups groups{};
  for (size_t g = begin / 16; g < (end + 15) / 16; ++g) {
    const size_t key = base + 16 * g;
    groups.at[g] = static_cast<size_t>(task.block_table[key / task.block_size]) * task.block_stride +
                   key % task.block_size * task.head_dim;
  }
  const size_t rows = task.num_tokens * task.heads;
  size_t row = 0;
  for (; row + kRows <= rows; row += kRows) attend_rows<kRows>(task, split, groups, row, out, scratch);
  if (row < rows) attend_rest<kRows - 1>(task, split, groups, row, rows - row, out, scratch);
}

void merge(const Partial& running, const Partial& next, size_t rows, size_t head_dim) {
  for (size_t r = 0; r < rows; ++r) {
    if (next.sum[r] == 0) continue;
    float* values = running.values + r * head_dim;
    const float* more = next.values + r * head_dim;
    if (running.sum[r] == 0) {
      running.largest[r] = next.largest[r], running.sum[r] = next.sum[r];
      __builtin_memcpy(values, more, head_dim * sizeof(float));
      continue;
    }
    const float old = running.largest[r], fresh = next.largest[r], top = old > fresh ? old : fresh;
    const f32x16 kept = exp(set1(old - top)), added = exp(set1(fresh - top));
    running.largest[r] = top;
    store_first(running.sum + r, fma(set1(next.sum[r]), added, mul(set1(running.sum[r]), kept)), 1);
    for (size_t d = 0; d < head_dim; d += 16) {
      const size_t n = head_dim - d;
      store_first(values + d, fma(load_first(more + d, n), added, mul(load_first(values + d, n), kept)), n);
    }
  }
}

void finish(const float* values, float sum, size_t head_dim, float* out) {
  for (size_t d = 0; d < head_dim; d += 16)
    store_first(out + d, div(load_first(values + d, head_dim - d), set1(sum)), head_dim - d);
}

}  // namespace pagoda::PAGODA_ISA
