// Attention over one split of the paged K/V cache, in two passes per block of rows: scores and softmax, then values.
//
// Splits are cut at absolute positions and joined as flash attention does (arXiv:2205.14135). Every number of a (token,
// head) is worked out in an order that key positions alone decide, so it is the same in a chunk of any size. Keys that
// one row of a block sees and another does not have the weight 0 in the latter.
#include "attention_heads.h"
#include "attention_products.h"
#include "attention_softmax.h"

namespace pagoda::PAGODA_ISA {
namespace {

constexpr size_t kGroupsAhead = 8;   // how far memory is fetched before it is needed
constexpr float kLog2E = 0x1.715476p+0f;

size_t smaller(size_t a, size_t b) { return a < b ? a : b; }
size_t larger(size_t a, size_t b) { return a > b ? a : b; }

Span visible(const AttentionTask& task, size_t split, size_t token) {
  const size_t base = split * kSplitKeys, stop = task.start + token + 1;
  const size_t oldest = task.window && stop > task.window ? stop - task.window : 0;
  const size_t begin = larger(oldest, base), end = smaller(stop, base + kSplitKeys);
  return begin < end ? Span{begin - base, end - base} : Span{0, 0};
}

// What a block of rows works with; all of it in the caller's scratch.
struct Scratch {
  float* scores;       // [kMaxRows][kScoreStride]
  uint16_t* weights;   // [kMaxRows][kWeightStride]
  uint16_t* q;         // [kMaxRows][q_stride]
  size_t q_stride;
  uint16_t* group;     // [2 groups][8 pairs of keys][head_dim][2]
};

constexpr size_t kMaxRows = kRows > kMaxTurns ? kRows : kMaxTurns;
constexpr size_t kScoreBytes = kMaxRows * kScoreStride * 4;
constexpr size_t kWeightBytes = kMaxRows * kWeightStride * 2;

Scratch divide(void* memory, size_t head_dim) {
  uint8_t* const weights = static_cast<uint8_t*>(memory) + kScoreBytes;
  uint8_t* const q = weights + kWeightBytes;
  uint8_t* const group = q + kMaxRows * row_bytes(head_dim * 2);
  return {static_cast<float*>(memory), reinterpret_cast<uint16_t*>(weights), reinterpret_cast<uint16_t*>(q),
          row_bytes(head_dim * 2) / 2, reinterpret_cast<uint16_t*>(group)};
}

void to_bf16(const float* x, size_t n, uint16_t* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store_bf16_first(out + i, load(x + i), 16);
  if (i < n) store_bf16_first(out + i, load_first(x + i, n - i), n - i);
}

// Whether a group has a value that is infinite or not a number: a weight of 0 does not keep it out.
bool has_no_number(const uint16_t* values, size_t head_dim) {
  uint16_t most = 0;
  for (size_t i = 0; i < 16 * head_dim; ++i) {
    const uint16_t magnitude = values[i] & 0x7FFF;
    most = most > magnitude ? most : magnitude;
  }
  return most >= 0x7F80;
}

// A group's values with 0 for the keys outside of the span.
uint16_t* copy_visible(const uint16_t* values, size_t group, Span span, size_t head_dim, uint16_t* out) {
  for (size_t key = 16 * group; key < 16 * group + 16; ++key) {
    const bool seen = key >= span.begin && key < span.end;
    const size_t at = key % 16 / 2 * 2 * head_dim + key % 2;
    for (size_t d = 0; d < head_dim; ++d) out[at + 2 * d] = seen ? values[at + 2 * d] : 0;
  }
  return out;
}

// Rows [first, first + R) of the task; row = token × heads + head.
template <size_t R>
void attend_rows(const AttentionTask& task, size_t split, const Groups& groups, size_t first, const Partial& out,
                 const Scratch& scratch) {
  const size_t head_dim = task.head_dim;
  Span spans[R];
  Span any{kSplitKeys, 0}, all{0, kSplitKeys};   // keys that some row sees, and that every row sees
  size_t token = first / task.heads, head = first % task.heads;
  for (size_t r = 0; r < R; ++r) {
    const Span span = spans[r] = visible(task, split, token);
    if (!span.empty()) any = {smaller(any.begin, span.begin), larger(any.end, span.end)};
    all = {larger(all.begin, span.begin), smaller(all.end, span.end)};
    to_bf16(task.q + token * task.q_stride + head * head_dim, head_dim, scratch.q + r * scratch.q_stride);
    if (++head == task.heads) head = 0, ++token;
  }
  for (size_t r = 0; r < R && token < task.num_tokens; ++r) {   // the next block's, meanwhile
    const float* const next = task.q + token * task.q_stride + head * head_dim;
    for (size_t d = 0; d < head_dim; d += 16) prefetch(next + d);
    if (++head == task.heads) head = 0, ++token;
  }
  float* const values = out.values + first * head_dim;
  for (size_t r = 0; r < R; ++r) out.largest[first + r] = -__builtin_inff(), out.sum[first + r] = 0;
  if (any.empty()) return;

  const size_t begin = any.first_group(), end = any.end_group();
  score_rows<R>(scratch.q, scratch.q_stride, groups, begin, end, head_dim, task.scale * kLog2E, scratch.scores);
  for (size_t r = 0; r < R; ++r)
    softmax(scratch.scores + r * kScoreStride, spans[r], begin, end, scratch.weights + r * kWeightStride,
            out.largest + first + r, out.sum + first + r);

  // Where some row does not see a whole group, its values must be numbers; otherwise each row gets a copy of its own.
  bool numbers = true;
  for (size_t g = begin; g < end; ++g)
    if (16 * g < all.begin || 16 * g + 16 > all.end) numbers &= !has_no_number(groups.values[g], head_dim);
  if (numbers) return value_rows<R>(scratch.weights, groups, begin, end, head_dim, values);
  for (size_t r = 0; r < R; ++r) {
    if (spans[r].empty()) continue;
    const size_t from = spans[r].first_group(), to = spans[r].end_group();
    Groups own = groups;
    own.values[from] = copy_visible(groups.values[from], from, spans[r], head_dim, scratch.group);
    own.values[to - 1] = copy_visible(groups.values[to - 1], to - 1, spans[r], head_dim, scratch.group + 16 * head_dim);
    value_rows<1>(scratch.weights + r * kWeightStride, own, from, to, head_dim, values + r * head_dim);
  }
}

// The last rows, fewer than kRows.
template <size_t R>
void attend_rest(const AttentionTask& task, size_t split, const Groups& groups, size_t first, size_t rows,
                 const Partial& out, const Scratch& scratch) {
  if (rows == R) return attend_rows<R>(task, split, groups, first, out, scratch);
  if constexpr (R > 1) attend_rest<R - 1>(task, split, groups, first, rows, out, scratch);
}

// Elements from the start of the layer's K to a group of keys; from that of V to its values as well.
size_t offset(const AttentionTask& task, size_t position) {
  return static_cast<size_t>(task.block_table[position / task.block_size]) * task.block_stride +
         position % task.block_size * task.head_dim;
}

// The groups that some token sees. Memory is read in the order K, V, and K of the next split or else of the next K/V head.
Groups find_groups(const AttentionTask& task, size_t split) {
  Groups groups{};
  const size_t base = split * kSplitKeys, stop = task.start + task.num_tokens;
  if (stop <= base) return groups;
  // The first token sees the oldest keys, unless it comes before the split.
  const size_t begin = visible(task, split, 0).first_group(), end = (smaller(stop - base, kSplitKeys) + 15) / 16;
  const uint16_t* order[2 * kGroups + kGroupsAhead];
  const uint16_t** keys = order;
  const uint16_t** values = order + (end - begin);
  const uint16_t** next = values + (end - begin);
  for (size_t g = begin; g < end; ++g) {
    const size_t at = offset(task, base + 16 * g);
    groups.keys[g] = groups.after_keys[g] = *keys++ = task.k + at;
    groups.values[g] = groups.after_values[g] = *values++ = task.v + at;
  }
  if (task.num_tokens * task.heads > kRows) return groups;
  for (size_t i = 0; i < kGroupsAhead; ++i) {
    const size_t position = base + kSplitKeys + 16 * i, g = smaller(begin + i, end - 1);
    *next++ = position < stop ? task.k + offset(task, position) : groups.keys[g] + task.block_size * task.head_dim;
  }
  for (size_t g = begin; g < end; ++g) {
    groups.after_keys[g] = order[g - begin + kGroupsAhead];
    groups.after_values[g] = order[g - begin + (end - begin) + kGroupsAhead];
  }
  return groups;
}

// One token with several K/V heads. They take turns with each group of keys, and then of values, so that memory is read
// in the order in which it lies: then the processor itself fetches all of it ahead.
void attend_in_turns(const AttentionTask& task, size_t split, const Partial& out, const Scratch& scratch) {
  const size_t heads = task.kv_heads, head_dim = task.head_dim, head_elements = task.block_size * head_dim;
  const Span span = visible(task, split, 0);
  for (size_t h = 0; h < heads; ++h) out.largest[h] = -__builtin_inff(), out.sum[h] = 0;
  if (span.empty()) return;
  for (size_t h = 0; h < heads; ++h) to_bf16(task.q + h * head_dim, head_dim, scratch.q + h * scratch.q_stride);
  for (size_t i = 0; i < heads * head_dim; ++i) out.values[i] = 0;

  const size_t begin = span.first_group(), end = span.end_group(), base = split * kSplitKeys;
  for (size_t g = begin; g < end; ++g) {
    const uint16_t* keys = task.k + offset(task, base + 16 * g);
    for (size_t h = 0; h < heads; ++h, keys += head_elements)
      score_group(scratch.q + h * scratch.q_stride, keys, head_dim, task.scale * kLog2E,
                  scratch.scores + h * kScoreStride + 16 * g);
  }
  for (size_t h = 0; h < heads; ++h)
    softmax(scratch.scores + h * kScoreStride, span, begin, end, scratch.weights + h * kWeightStride, out.largest + h,
            out.sum + h);
  for (size_t g = begin; g < end; ++g) {
    const uint16_t* values = task.v + offset(task, base + 16 * g);
    const bool whole = span.begin <= 16 * g && 16 * g + 16 <= span.end;
    for (size_t h = 0; h < heads; ++h, values += head_elements) {
      const bool numbers = whole || !has_no_number(values, head_dim);
      const uint16_t* const seen = numbers ? values : copy_visible(values, g, span, head_dim, scratch.group);
      add_group(scratch.weights + h * kWeightStride + 16 * g, seen, head_dim, out.values + h * head_dim);
    }
  }
}

}  // namespace

size_t attention_scratch(size_t head_dim) {
  return kScoreBytes + kWeightBytes + kMaxRows * row_bytes(head_dim * 2) + align64(head_dim * 64);
}

void attend(const AttentionTask& task, size_t split, const Partial& out, void* memory) {
  const Scratch scratch = divide(memory, task.head_dim);
  if (task.kv_heads > 1) return attend_in_turns(task, split, out, scratch);
  const Groups groups = find_groups(task, split);
  const size_t rows = task.num_tokens * task.heads;
  size_t row = 0;
  for (; row + kRows <= rows; row += kRows) attend_rows<kRows>(task, split, groups, row, out, scratch);
  if (row < rows) attend_rest<kRows - 1>(task, split, groups, row, rows - row, out, scratch);
}

}  // namespace pagoda::PAGODA_ISA
