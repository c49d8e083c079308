// How K and V of 16 tokens, a group, with one K/V head lie in the cache. Blocks are whole groups, one after the other.
//
//   bf16  K [head_dim / 2][16 keys][2], V [8 pairs of keys][head_dim][2].
//   int8  The same with codes, value = scale × code; behind the codes of K the group's scales as fp16, those of K [16] and
//         then those of V [16]: so that reading goes upwards, and a weight knows what its value is worth before that is read.
//
// 16 keys are 16 lanes, and pairs of keys are pairs of inputs. New blocks are zeros, which in int8 is the scale 0 as well.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagoda {

enum class KVFormat : uint8_t { bf16, int8 };
inline constexpr int kNumKVFormats = 2;
inline constexpr const char* kKVFormatNames[kNumKVFormats] = {"bf16", "int8"};

inline constexpr size_t kGroupKeys = 16;
inline constexpr size_t kGroupScaleBytes = 2 * kGroupKeys;   // of K; and as many of V

static inline constexpr size_t kv_element_bytes(KVFormat format) { return format == KVFormat::int8 ? 1 : 2; }
static inline constexpr size_t key_group_bytes(KVFormat format, size_t head_dim) {
  return kGroupKeys * head_dim * kv_element_bytes(format) + (format == KVFormat::int8 ? 2 * kGroupScaleBytes : 0);
}
static inline constexpr size_t value_group_bytes(KVFormat format, size_t head_dim) {
  return kGroupKeys * head_dim * kv_element_bytes(format);
}

// In int8, groups are whole cache lines, and the sum of products of a head with 16-bit inputs fits 32 bits.
inline constexpr size_t kMaxInt8HeadDim = 512;
static inline constexpr bool has_kv_format(KVFormat format, size_t head_dim) {
  if (format == KVFormat::int8) return head_dim > 0 && head_dim % 4 == 0 && head_dim <= kMaxInt8HeadDim;
  return head_dim > 0 && head_dim % 2 == 0;
}

}  // namespace pagoda
