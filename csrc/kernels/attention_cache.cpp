// What happens to a token's heads before attention: rotation, and the way into the paged cache.
#include "quantize.h"
#include "table.h"

namespace pagoda::PAGODA_ISA {

void rotate(float* head, const float* cosine, const float* sine, size_t half) {
  for (size_t i = 0; i < half; i += 16) {
    const size_t n = half - i;
    const f32x16 x = load_first(head + i, n), y = load_first(head + half + i, n);
    const f32x16 c = load_first(cosine + i, n), s = load_first(sine + i, n);
    store_first(head + i, sub(mul(x, c), mul(y, s)), n);
    store_first(head + half + i, add(mul(y, c), mul(x, s)), n);
  }
}

namespace {

void store_bf16(const float* key, const float* value, size_t head_dim, size_t offset, uint8_t* k, uint8_t* v) {
  uint8_t* const keys = k + offset / 16 * key_group_bytes(KVFormat::bf16, head_dim) + offset % 16 * 4;
  uint16_t* const values = reinterpret_cast<uint16_t*>(v) + offset / 2 * 2 * head_dim + offset % 2;
  for (size_t d = 0; d < head_dim; d += 16) {
    const size_t n = head_dim - d < 16 ? head_dim - d : 16;
    uint16_t narrow[16];
    store_bf16_first(narrow, load_first(key + d, n), n);
    for (size_t i = 0; i < n; i += 2) __builtin_memcpy(keys + (d + i) * 32, narrow + i, 4);
    store_bf16_first(narrow, load_first(value + d, n), n);
    for (size_t i = 0; i < n; ++i) values[(d + i) * 2] = narrow[i];
  }
}

// A head as codes within ±127, to nearest even, and the bits of a scale: largest magnitude / 127, as fp16 to nearest even,
// before the codes are worked out. Where a number is infinite or none, or the scale too large for fp16, it is NaN, so that
// nothing made of it looks like a number.
uint16_t to_codes(const float* x, size_t head_dim, int8_t* codes) {
  f32x16 most = zero();
  for (size_t d = 0; d < head_dim; d += 16) {
    most = max(most, min(abs(load_first(x + d, head_dim - d)), set1(kInfinity)));   // of NaN: infinity
  }
  const uint16_t bits = to_half(largest(most) / 127.0f);
  const bool number = bits < 0x7C00;
  float scales[16];
  uint16_t halves[16] = {bits};
  store(scales, load_half(halves));
  const f32x16 inverse = set1(number && bits ? 1.0f / scales[0] : 0.0f);
  for (size_t d = 0; d < head_dim; d += 16) {
    const f32x16 code = mul(load_first(x + d, head_dim - d), inverse);
    // Near the smallest scales rounding may put a code beyond the limit; what is no number comes to zero with the rest.
    store_i8(codes + d, number ? to_i32(min(set1(127.0f), max(set1(-127.0f), code))) : zero_i32());
  }
  return number ? bits : 0x7E00;
}

void store_int8(const float* key, const float* value, size_t head_dim, size_t offset, uint8_t* k, uint8_t* v) {
  int8_t codes[kMaxInt8HeadDim + 16];
  uint8_t* const keys = k + offset / 16 * key_group_bytes(KVFormat::int8, head_dim);
  uint8_t* const scales = keys + kGroupKeys * head_dim + offset % 16 * 2;
  uint16_t scale = to_codes(key, head_dim, codes);
  for (size_t d = 0; d < head_dim; d += 2) __builtin_memcpy(keys + offset % 16 * 2 + d * 16, codes + d, 2);
  __builtin_memcpy(scales, &scale, 2);
  scale = to_codes(value, head_dim, codes);
  int8_t* const values = reinterpret_cast<int8_t*>(v) + offset / 2 * 2 * head_dim + offset % 2;
  for (size_t d = 0; d < head_dim; ++d) values[d * 2] = codes[d];
  __builtin_memcpy(scales + kGroupScaleBytes, &scale, 2);
}

}  // namespace

StoreKernel store_kv(KVFormat format) { return format == KVFormat::int8 ? store_int8 : store_bf16; }

}  // namespace pagoda::PAGODA_ISA
