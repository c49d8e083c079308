// How one step's attention is cut into items. Layers of the same shape and window share a plan.
//
// A unit is some consecutive tokens of a request. Usually one item does a unit and K/V head from the first split of the keys
// to the last; of a unit of one token, where there are enough of them, several K/V heads, which lie beside each other in
// memory. Where that gives too few items, each split is an item that leaves its partial in memory, and a second command
// joins them. Both join partials in the order of the splits, so that the numbers are the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "commands.h"
#include "memory.h"

namespace pagoda {

struct AttentionShape {
  size_t kv_heads;
  size_t group;   // query heads that share a K/V head
  size_t head_dim;
  size_t window;  // 0: none

  bool operator==(const AttentionShape& o) const {
    return kv_heads == o.kv_heads && group == o.group && head_dim == o.head_dim && window == o.window;
  }
};

class AttentionPlan {
 public:
  struct Unit {
    size_t seq;
    size_t first_row;     // of its tokens in the step
    size_t num_tokens;
    size_t start;         // position of the first of them
    size_t first_split;
    size_t end_split;
    size_t first_partial; // (token, head) rows in memory, where splits are items
    size_t kv_heads;      // of an item
    size_t first_item;
  };

  // max_context: tokens that the cache can hold.
  AttentionPlan(const AttentionShape& shape, size_t workers, size_t max_context);

  const AttentionShape& shape() const { return shape_; }
  size_t max_unit_tokens() const { return unit_tokens_; }
  size_t max_item_rows() const;   // (token, head) rows
  void prepare(const Step& step);

  bool splits_are_items() const { return splits_are_items_; }
  const std::vector<Unit>& units() const { return units_; }
  size_t num_items() const { return num_items_; }
  const Unit& unit_of_item(size_t item) const;

  // The partial of one split of a unit and K/V head, in memory.
  Partial partial(const Unit& unit, size_t kv_head, size_t split) const;

 private:
  size_t kv_heads_in_turn() const;

  AttentionShape shape_;
  size_t workers_;
  size_t unit_tokens_;
  size_t max_partials_;   // (token, head) rows
  Memory memory_;
  std::vector<Unit> units_;
  bool splits_are_items_ = false;
  size_t num_items_ = 0;
};

}  // namespace pagoda
