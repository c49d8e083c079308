#include "kv_cache.h"

#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "tensor.h"

namespace pagoda {

KVCache::KVCache(const std::vector<std::pair<size_t, size_t>>& layers, size_t num_blocks, size_t block_size)
    : num_blocks_(num_blocks), block_size_(block_size) {
  if (block_size == 0 || block_size % 16 != 0)
    throw std::invalid_argument("block_size is " + std::to_string(block_size) + ", must be a multiple of 16");
  size_t bytes = 0;
  for (const auto& [kv_heads, head_dim] : layers) {
    if (kv_heads == 0) throw std::invalid_argument("kv_heads is 0, must be at least 1");
    if (head_dim == 0 || head_dim % 2 != 0)
      throw std::invalid_argument("head_dim is " + std::to_string(head_dim) + ", must be even");
    const size_t head = size_product({block_size, head_dim}), block = size_product({kv_heads, head});
    layers_.push_back({kv_heads, head_dim, nullptr, nullptr, head, block});
    if (__builtin_add_overflow(bytes, size_product({2, sizeof(uint16_t), num_blocks, block}), &bytes)) throw std::bad_alloc();
  }
  memory_ = Memory(bytes);
  uint16_t* next = reinterpret_cast<uint16_t*>(memory_.data());
  for (Layer& layer : layers_) {
    layer.k = next;
    layer.v = next + num_blocks * layer.block_elements;
    next = layer.v + num_blocks * layer.block_elements;
  }
}

void KVCache::zero(size_t layer, size_t block) {
  const Layer& l = layers_[layer];
  std::memset(l.k + block * l.block_elements, 0, l.block_elements * sizeof(uint16_t));
  std::memset(l.v + block * l.block_elements, 0, l.block_elements * sizeof(uint16_t));
}

// place(t, d): where in a head number d of token t is.
template <class Place>
void KVCache::read(const Layer& l, const uint16_t* block, float* out, Place place) const {
  for (size_t t = 0; t < block_size_; ++t)
    for (size_t h = 0; h < l.kv_heads; ++h)
      for (size_t d = 0; d < l.head_dim; ++d) *out++ = float_from_bf16(block[h * l.head_elements + place(t, d)]);
}

void KVCache::read_keys(size_t layer, size_t block, float* out) const {
  const Layer& l = layers_[layer];
  read(l, l.k + block * l.block_elements, out, [half = l.head_dim / 2](size_t t, size_t d) {
    return (t / 16 * half + d / 2) * 32 + t % 16 * 2 + d % 2;
  });
}

void KVCache::read_values(size_t layer, size_t block, float* out) const {
  const Layer& l = layers_[layer];
  read(l, l.v + block * l.block_elements, out, [head_dim = l.head_dim](size_t t, size_t d) {
    return (t / 2 * head_dim + d) * 2 + t % 2;
  });
}

}  // namespace pagoda
