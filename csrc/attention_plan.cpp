#include "attention_plan.h"

#include <algorithm>

namespace pagoda {
namespace {

constexpr size_t kRowsPerUnit = 128;               // (token, head) rows of one K/V head
constexpr size_t kItemsPerWorker = 4;              // fewer, and splits become items
constexpr size_t kMaxPartialBytes = size_t{16} << 20;

}  // namespace

AttentionPlan::AttentionPlan(const AttentionShape& shape, size_t workers, size_t max_context)
    : shape_(shape), workers_(workers), unit_tokens_(std::max<size_t>(8, kRowsPerUnit / shape.group)) {
  // Splits are items only while there are few units, so this much is enough for single tokens.
  const size_t units = (kItemsPerWorker * workers + shape.kv_heads - 1) / shape.kv_heads;
  const size_t splits = (max_context + kSplitKeys - 1) / kSplitKeys + 1;
  const size_t row_bytes = (shape.head_dim + 2) * sizeof(float);
  max_partials_ = std::min(units * splits * shape.kv_heads * shape.group, kMaxPartialBytes / row_bytes);
  memory_ = Memory(align64(max_partials_ * row_bytes));
}

void AttentionPlan::prepare(const Step& step) {
  units_.clear();
  size_t num_split_items = 0, num_partials = 0, most_splits = 0;
  for (size_t s = 0; s < step.num_seqs; ++s) {
    const size_t begin = static_cast<size_t>(step.query_start_loc[s]), end = static_cast<size_t>(step.query_start_loc[s + 1]);
    const size_t before = static_cast<size_t>(step.seq_lens[s]) - (end - begin);
    for (size_t row = begin; row < end; row += unit_tokens_) {
      const size_t num_tokens = std::min(unit_tokens_, end - row), start = before + (row - begin);
      const size_t first_key = shape_.window && start + 1 > shape_.window ? start + 1 - shape_.window : 0;
      const size_t first_split = first_key / kSplitKeys, end_split = (start + num_tokens - 1) / kSplitKeys + 1;
      units_.push_back({s, row, num_tokens, start, first_split, end_split, num_partials, 1, num_split_items});
      const size_t splits = end_split - first_split;
      num_split_items += splits * shape_.kv_heads;
      num_partials += splits * shape_.kv_heads * num_tokens * shape_.group;
      most_splits = std::max(most_splits, splits);
    }
  }
  const size_t whole_items = units_.size() * shape_.kv_heads;   // with one K/V head each
  splits_are_items_ = most_splits > 1 && whole_items < kItemsPerWorker * workers_ && num_partials <= max_partials_;
  num_items_ = num_split_items;
  if (splits_are_items_) return;
  const bool in_turn = units_.size() >= kItemsPerWorker * workers_;
  num_items_ = 0;
  for (Unit& unit : units_) {
    unit.kv_heads = in_turn && unit.num_tokens == 1 ? kv_heads_in_turn() : 1;
    unit.first_item = num_items_;
    num_items_ += (shape_.kv_heads + unit.kv_heads - 1) / unit.kv_heads;
  }
}

// As few parts of the K/V heads as may be, of nearly the same size. With query heads that share a K/V head its keys are
// long enough at work for memory to keep up, and turns gain nothing.
size_t AttentionPlan::kv_heads_in_turn() const {
  if (shape_.group > 1) return 1;
  const size_t parts = (shape_.kv_heads + kMaxTurns - 1) / kMaxTurns;
  return (shape_.kv_heads + parts - 1) / parts;
}

size_t AttentionPlan::max_item_rows() const { return std::max(unit_tokens_ * shape_.group, kv_heads_in_turn()); }

const AttentionPlan::Unit& AttentionPlan::unit_of_item(size_t item) const {
  const auto after = std::upper_bound(units_.begin(), units_.end(), item,
                                      [](size_t i, const Unit& unit) { return i < unit.first_item; });
  return *(after - 1);
}

Partial AttentionPlan::partial(const Unit& unit, size_t kv_head, size_t split) const {
  const size_t splits = unit.end_split - unit.first_split, rows = unit.num_tokens * shape_.group;
  const size_t row = unit.first_partial + (kv_head * splits + split - unit.first_split) * rows;
  float* const values = reinterpret_cast<float*>(memory_.data());
  float* const largest = values + max_partials_ * shape_.head_dim;
  return {largest + row, largest + max_partials_ + row, values + row * shape_.head_dim};
}

}  // namespace pagoda
