// The paged K and V of every layer, bf16. Layout: kernels/kernels.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "memory.h"

namespace pagoda {

class KVCache {
 public:
  struct Layer {
    size_t kv_heads;
    size_t head_dim;
    uint16_t* k;   // of block 0
    uint16_t* v;
    size_t head_elements;    // of one block and K/V head, in each of K and V
    size_t block_elements;   // of one block
  };

  // layers: (kv_heads, head_dim). Pages are not touched before they are written. Throws std::bad_alloc, also for a size
  // that no number holds, and std::invalid_argument for no heads, an odd head_dim or a block_size that is no multiple of 16.
  KVCache(const std::vector<std::pair<size_t, size_t>>& layers, size_t num_blocks, size_t block_size);

  size_t num_blocks() const { return num_blocks_; }
  size_t block_size() const { return block_size_; }
  size_t num_bytes() const { return memory_.bytes(); }
  const std::vector<Layer>& layers() const { return layers_; }

  void zero(size_t layer, size_t block);

  // One block as float32, [block_size, kv_heads, head_dim].
  void read_keys(size_t layer, size_t block, float* out) const;
  void read_values(size_t layer, size_t block, float* out) const;

 private:
  template <class Place>
  void read(const Layer& layer, const uint16_t* block, float* out, Place place) const;

  size_t num_blocks_;
  size_t block_size_;
  Memory memory_;
  std::vector<Layer> layers_;
};

}  // namespace pagoda
