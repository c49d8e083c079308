// The paged K and V of every layer. Layout of a block: kv_format.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kv_format.h"
#include "memory.h"

namespace pagoda {

class KVCache {
 public:
  struct Layer {
    size_t kv_heads;
    size_t head_dim;
    KVFormat format;
    size_t key_head_bytes;   // of one block and K/V head
    size_t value_head_bytes;
    uint8_t* k;              // of block 0
    uint8_t* v;

    size_t key_block_bytes() const { return kv_heads * key_head_bytes; }
    size_t value_block_bytes() const { return kv_heads * value_head_bytes; }
    uint8_t* keys(size_t block, size_t kv_head) const { return k + block * key_block_bytes() + kv_head * key_head_bytes; }
    uint8_t* values(size_t block, size_t kv_head) const {
      return v + block * value_block_bytes() + kv_head * value_head_bytes;
    }
  };

  // layers: (kv_heads, head_dim). Pages are not touched before they are written. Throws std::bad_alloc, also for a size
  // that no number holds, and std::invalid_argument for no heads, a head_dim that the format does not have or a block_size
  // that is no multiple of 16.
  KVCache(const std::vector<std::pair<size_t, size_t>>& layers, size_t num_blocks, size_t block_size, KVFormat format);

  KVFormat format() const { return format_; }
  size_t num_blocks() const { return num_blocks_; }
  size_t block_size() const { return block_size_; }
  size_t num_bytes() const { return memory_.bytes(); }
  const std::vector<Layer>& layers() const { return layers_; }

  void zero(size_t layer, size_t block);

  // One block as float32, [block_size, kv_heads, head_dim].
  void read_keys(size_t layer, size_t block, float* out) const;
  void read_values(size_t layer, size_t block, float* out) const;

 private:
  template <class Number>
  void read(const Layer& layer, float* out, Number number) const;

  KVFormat format_;
  size_t num_blocks_;
  size_t block_size_;
  Memory memory_;
  std::vector<Layer> layers_;
};

}  // namespace pagoda
