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
template <class Format>
struct Scratch {
  float* scores;                       // [kMaxRows][kScoreStride]
  typename Format::Operand* weights;   // [kMaxRows][kWeightStride]
  typename Format::Operand* q;         // [kMaxRows][q_stride]
  size_t q_stride;
  uint8_t* group;                      // of values, two
};

constexpr size_t kMaxRows = kRows > kMaxTurns ? kRows : kMaxTurns;
constexpr size_t kScoreBytes = kMaxRows * kScoreStride * 4;
constexpr size_t kWeightBytes = kMaxRows * kWeightStride * 2;

template <class Format>
Scratch<Format> divide(void* memory, size_t head_dim) {
  using Operand = typename Format::Operand;
  uint8_t* const weights = static_cast<uint8_t*>(memory) + kScoreBytes;
  uint8_t* const q = weights + kWeightBytes;
  return {static_cast<float*>(memory), reinterpret_cast<Operand*>(weights), reinterpret_cast<Operand*>(q),
          row_bytes(head_dim * 2) / 2, q + kMaxRows * row_bytes(head_dim * 2)};
}

// Whether a group of bf16 has a value that is infinite or not a number: a weight of 0 does not keep it out.
bool has_no_number(const uint8_t* values, size_t head_dim) {
  const uint16_t* const numbers = reinterpret_cast<const uint16_t*>(values);
  uint16_t most = 0;
  for (size_t i = 0; i < 16 * head_dim; ++i) {
    const uint16_t magnitude = numbers[i] & 0x7FFF;
    most = most > magnitude ? most : magnitude;
  }
  return most >= 0x7F80;
}

// Whether what a row does not see of a group could harm it.
template <class Format>
bool may_harm(const uint8_t* values, size_t head_dim) {
  if constexpr (Format::kScales) return false;   // codes are numbers
  else return has_no_number(values, head_dim);
}

// A group's bf16 values with 0 for the keys outside of the span.
uint8_t* copy_visible(const uint8_t* values, size_t group, Span span, size_t head_dim, uint8_t* to) {
  const uint16_t* const numbers = reinterpret_cast<const uint16_t*>(values);
  uint16_t* const out = reinterpret_cast<uint16_t*>(to);
  for (size_t key = 16 * group; key < 16 * group + 16; ++key) {
    const bool seen = key >= span.begin && key < span.end;
    const size_t at = key % 16 / 2 * 2 * head_dim + key % 2;
    for (size_t d = 0; d < head_dim; ++d) out[at + 2 * d] = seen ? numbers[at + 2 * d] : 0;
  }
  return to;
}

// Rows [first, first + R) of the task; row = token × heads + head.
template <class Format, size_t R>
void attend_rows(const AttentionTask& task, size_t split, const Groups& groups, size_t first, const Partial& out,
                 const Scratch<Format>& scratch) {
  const size_t head_dim = task.head_dim;
  Span spans[R];
  float query_worth[R], weight_worth[R];
  Span any{kSplitKeys, 0}, all{0, kSplitKeys};   // keys that some row sees, and that every row sees
  size_t token = first / task.heads, head = first % task.heads;
  for (size_t r = 0; r < R; ++r) {
    const Span span = spans[r] = visible(task, split, token);
    if (!span.empty()) any = {smaller(any.begin, span.begin), larger(any.end, span.end)};
    all = {larger(all.begin, span.begin), smaller(all.end, span.end)};
    query_worth[r] = Format::narrow(task.q + token * task.q_stride + head * head_dim, head_dim, task.scale * kLog2E,
                                    scratch.q + r * scratch.q_stride);
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
  score_rows<Format, R>(scratch.q, scratch.q_stride, groups, begin, end, head_dim, query_worth, scratch.scores);
  for (size_t r = 0; r < R; ++r)
    weight_worth[r] = softmax<Format>(scratch.scores + r * kScoreStride, spans[r], begin, end, groups.keys, 0, head_dim,
                                      scratch.weights + r * kWeightStride, out.largest + first + r, out.sum + first + r);

  // Where some row does not see a whole group, its values must be numbers; otherwise each row gets a copy of its own.
  bool numbers = true;
  for (size_t g = begin; g < end; ++g)
    if (16 * g < all.begin || 16 * g + 16 > all.end) numbers &= !may_harm<Format>(groups.values[g], head_dim);
  if (numbers)
    return value_rows<Format, R>(scratch.weights, groups, begin, end, head_dim, weight_worth, values);
  for (size_t r = 0; r < R; ++r) {
    if (spans[r].empty()) continue;
    const size_t from = spans[r].first_group(), to = spans[r].end_group();
    Groups own = groups;
    own.values[from] = copy_visible(groups.values[from], from, spans[r], head_dim, scratch.group);
    own.values[to - 1] = copy_visible(groups.values[to - 1], to - 1, spans[r], head_dim, scratch.group + 32 * head_dim);
    value_rows<Format, 1>(scratch.weights + r * kWeightStride, own, from, to, head_dim, weight_worth + r,
                          values + r * head_dim);
  }
}

// The last rows, fewer than kRows.
template <class Format, size_t R>
void attend_rest(const AttentionTask& task, size_t split, const Groups& groups, size_t first, size_t rows,
                 const Partial& out, const Scratch<Format>& scratch) {
  if (rows == R) return attend_rows<Format, R>(task, split, groups, first, out, scratch);
  if constexpr (R > 1) attend_rest<Format, R - 1>(task, split, groups, first, rows, out, scratch);
}

// From the start of the layer's K, or V, to a group.
template <class Format>
size_t key_offset(const AttentionTask& task, size_t position) {
  return static_cast<size_t>(task.block_table[position / task.block_size]) * task.key_block_bytes +
         position % task.block_size / kGroupKeys * key_group_bytes(Format::kFormat, task.head_dim);
}
template <class Format>
size_t value_offset(const AttentionTask& task, size_t position) {
  return static_cast<size_t>(task.block_table[position / task.block_size]) * task.value_block_bytes +
         position % task.block_size / kGroupKeys * value_group_bytes(Format::kFormat, task.head_dim);
}

// From one K/V head to the next in a block.
template <class Format>
size_t key_head_bytes(const AttentionTask& task) {
  return task.block_size / kGroupKeys * key_group_bytes(Format::kFormat, task.head_dim);
}
template <class Format>
size_t value_head_bytes(const AttentionTask& task) {
  return task.block_size / kGroupKeys * value_group_bytes(Format::kFormat, task.head_dim);
}

// The groups that some token sees. Memory is read in the order K, V, and K of the next split or else of the next K/V head.
template <class Format>
Groups find_groups(const AttentionTask& task, size_t split) {
  Groups groups{};
  const size_t base = split * kSplitKeys, stop = task.start + task.num_tokens;
  if (stop <= base) return groups;
  // The first token sees the oldest keys, unless it comes before the split.
  const size_t begin = visible(task, split, 0).first_group(), end = (smaller(stop - base, kSplitKeys) + 15) / 16;
  const uint8_t* order[2 * kGroups + kGroupsAhead];
  const uint8_t** keys = order;
  const uint8_t** values = order + (end - begin);
  const uint8_t** next = values + (end - begin);
  for (size_t g = begin; g < end; ++g) {
    groups.keys[g] = groups.after_keys[g] = *keys++ = task.k + key_offset<Format>(task, base + 16 * g);
    groups.values[g] = groups.after_values[g] = *values++ = task.v + value_offset<Format>(task, base + 16 * g);
  }
  if (task.num_tokens * task.heads > kRows) return groups;
  for (size_t i = 0; i < kGroupsAhead; ++i) {
    const size_t position = base + kSplitKeys + 16 * i, g = smaller(begin + i, end - 1);
    *next++ = position < stop ? task.k + key_offset<Format>(task, position) : groups.keys[g] + key_head_bytes<Format>(task);
  }
  for (size_t g = begin; g < end; ++g) {
    groups.after_keys[g] = order[g - begin + kGroupsAhead];
    groups.after_values[g] = order[g - begin + (end - begin) + kGroupsAhead];
  }
  return groups;
}

// One token with several K/V heads. They take turns with each group of keys, and then of values, so that memory is read
// in the order in which it lies: then the processor itself fetches all of it ahead.
template <class Format>
void attend_in_turns(const AttentionTask& task, size_t split, const Partial& out, const Scratch<Format>& scratch) {
  const size_t heads = task.kv_heads, head_dim = task.head_dim;
  const size_t key_head = key_head_bytes<Format>(task), value_head = value_head_bytes<Format>(task);
  const Span span = visible(task, split, 0);
  for (size_t h = 0; h < heads; ++h) out.largest[h] = -__builtin_inff(), out.sum[h] = 0;
  if (span.empty()) return;
  float query_worth[kMaxTurns], weight_worth[kMaxTurns];
  for (size_t h = 0; h < heads; ++h)
    query_worth[h] = Format::narrow(task.q + h * head_dim, head_dim, task.scale * kLog2E, scratch.q + h * scratch.q_stride);
  for (size_t i = 0; i < heads * head_dim; ++i) out.values[i] = 0;

  const size_t begin = span.first_group(), end = span.end_group(), base = split * kSplitKeys;
  const uint8_t* keys[kGroups];   // of the first head
  for (size_t g = begin; g < end; ++g) {
    keys[g] = task.k + key_offset<Format>(task, base + 16 * g);
    for (size_t h = 0; h < heads; ++h)
      score_group<Format>(scratch.q + h * scratch.q_stride, keys[g] + h * key_head, head_dim, query_worth[h],
                          scratch.scores + h * kScoreStride + 16 * g);
  }
  for (size_t h = 0; h < heads; ++h)
    weight_worth[h] = softmax<Format>(scratch.scores + h * kScoreStride, span, begin, end, keys, h * key_head, head_dim,
                                      scratch.weights + h * kWeightStride, out.largest + h, out.sum + h);
  for (size_t g = begin; g < end; ++g) {
    const uint8_t* values = task.v + value_offset<Format>(task, base + 16 * g);
    const bool whole = span.begin <= 16 * g && 16 * g + 16 <= span.end;
    for (size_t h = 0; h < heads; ++h, values += value_head) {
      const bool harmless = whole || !may_harm<Format>(values, head_dim);
      const uint8_t* const seen = harmless ? values : copy_visible(values, g, span, head_dim, scratch.group);
      add_group<Format>(scratch.weights + h * kWeightStride + 16 * g, seen, head_dim, out.values + h * head_dim);
    }
  }
  for (size_t h = 0; h < heads; ++h) finish_sums<Format>(out.values + h * head_dim, head_dim, weight_worth[h]);
}

template <class Format>
void attend_split(const AttentionTask& task, size_t split, const Partial& out, void* memory) {
  const Scratch<Format> scratch = divide<Format>(memory, task.head_dim);
  if (task.kv_heads > 1) return attend_in_turns<Format>(task, split, out, scratch);
  const Groups groups = find_groups<Format>(task, split);
  const size_t rows = task.num_tokens * task.heads;
  size_t row = 0;
  for (; row + kRows <= rows; row += kRows) attend_rows<Format, kRows>(task, split, groups, row, out, scratch);
  if (row < rows) attend_rest<Format, kRows - 1>(task, split, groups, row, rows - row, out, scratch);
}

}  // namespace

size_t attention_scratch(size_t head_dim) {
  return kScoreBytes + kWeightBytes + kMaxRows * row_bytes(head_dim * 2) + align64(head_dim * 64);
}

AttendKernel attend(KVFormat format) { return format == KVFormat::int8 ? attend_split<Int8> : attend_split<Bf16>; }

}  // namespace pagoda::PAGODA_ISA
