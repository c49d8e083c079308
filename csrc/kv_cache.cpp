#include "kv_cache.h"

#include <cmath>
#include <cstring>
#include <new>
#include <stdexcept>
#include <string>

#include "tensor.h"

namespace pagoda {
namespace {

uint16_t sixteen_bits(const uint8_t* p) {
  uint16_t bits;
  std::memcpy(&bits, p, sizeof(bits));
  return bits;
}

float float_from_half(uint16_t half) {
  const int exponent = half >> 10 & 31, mantissa = half & 1023;
  float magnitude = std::ldexp(static_cast<float>(exponent ? mantissa + 1024 : mantissa), (exponent ? exponent : 1) - 25);
  if (exponent == 31) magnitude = mantissa ? std::nanf("") : INFINITY;
  return half & 0x8000 ? -magnitude : magnitude;
}

}  // namespace

KVCache::KVCache(const std::vector<std::pair<size_t, size_t>>& layers, size_t num_blocks, size_t block_size,
                 KVFormat format)
    : format_(format), num_blocks_(num_blocks), block_size_(block_size) {
  if (block_size == 0 || block_size % kGroupKeys != 0)
    throw std::invalid_argument("block_size is " + std::to_string(block_size) + ", must be a multiple of 16");
  size_t bytes = 0;
  for (const auto& [kv_heads, head_dim] : layers) {
    if (kv_heads == 0) throw std::invalid_argument("kv_heads is 0, must be at least 1");
    if (!has_kv_format(format, head_dim))
      throw std::invalid_argument("head_dim is " + std::to_string(head_dim) + ", must be " +
                                  (format == KVFormat::int8 ? "a multiple of 4, up to 512, in int8" : "even"));
    const size_t groups = block_size / kGroupKeys;
    size_product({4, block_size, head_dim});   // more than both of the following
    const Layer layer{kv_heads, head_dim, format, groups * key_group_bytes(format, head_dim),
                      groups * value_group_bytes(format, head_dim), nullptr, nullptr};
    layers_.push_back(layer);
    const size_t block = size_product({kv_heads, layer.key_head_bytes + layer.value_head_bytes});
    if (__builtin_add_overflow(bytes, size_product({num_blocks, block}), &bytes)) throw std::bad_alloc();
  }
  memory_ = Memory(bytes);
  uint8_t* next = memory_.data();
  for (Layer& layer : layers_) {
    layer.k = next;
    layer.v = next + num_blocks * layer.key_block_bytes();
    next = layer.v + num_blocks * layer.value_block_bytes();
  }
}

void KVCache::zero(size_t layer, size_t block) {
  const Layer& l = layers_[layer];
  std::memset(l.keys(block, 0), 0, l.key_block_bytes());
  std::memset(l.values(block, 0), 0, l.value_block_bytes());
}

// number(h, t, d): number d of token t with K/V head h.
template <class Number>
void KVCache::read(const Layer& l, float* out, Number number) const {
  for (size_t t = 0; t < block_size_; ++t)
    for (size_t h = 0; h < l.kv_heads; ++h)
      for (size_t d = 0; d < l.head_dim; ++d) *out++ = number(h, t, d);
}

void KVCache::read_keys(size_t layer, size_t block, float* out) const {
  const Layer& l = layers_[layer];
  read(l, out, [&](size_t h, size_t t, size_t d) {
    const uint8_t* const group = l.keys(block, h) + t / 16 * key_group_bytes(format_, l.head_dim);
    const size_t place = d / 2 * 32 + t % 16 * 2 + d % 2;
    if (format_ == KVFormat::bf16) return float_from_bf16(sixteen_bits(group + 2 * place));
    const uint8_t* const scales = group + kGroupKeys * l.head_dim;
    return float_from_half(sixteen_bits(scales + 2 * (t % 16))) * static_cast<float>(static_cast<int8_t>(group[place]));
  });
}

void KVCache::read_values(size_t layer, size_t block, float* out) const {
  const Layer& l = layers_[layer];
  read(l, out, [&](size_t h, size_t t, size_t d) {
    const uint8_t* const codes = l.values(block, h);
    const size_t place = (t / 2 * l.head_dim + d) * 2 + t % 2;
    if (format_ == KVFormat::bf16) return float_from_bf16(sixteen_bits(codes + 2 * place));
    const uint8_t* const keys = l.keys(block, h) + t / 16 * key_group_bytes(format_, l.head_dim);
    const uint8_t* const scales = keys + kGroupKeys * l.head_dim + kGroupScaleBytes;
    return float_from_half(sixteen_bits(scales + 2 * (t % 16))) * static_cast<float>(static_cast<int8_t>(codes[place]));
  });
}

}  // namespace pagoda
