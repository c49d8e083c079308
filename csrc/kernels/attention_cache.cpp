// What happens to a token's heads before attention: rotation, and the way into the paged cache.
#include "table.h"
#include "simd.h"

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

void store_kv(const float* key, const float* value, size_t head_dim, size_t offset, uint16_t* k, uint16_t* v) {
  uint16_t* keys = k + offset / 16 * 16 * head_dim + offset % 16 * 2;
  uint16_t* values = v + offset / 2 * 2 * head_dim + offset % 2;
  for (size_t d = 0; d < head_dim; d += 16) {
    const size_t n = head_dim - d < 16 ? head_dim - d : 16;
    uint16_t narrow[16];
    store_bf16_first(narrow, load_first(key + d, n), n);
    for (size_t i = 0; i < n; i += 2) __builtin_memcpy(keys + (d + i) * 16, narrow + i, 4);
    store_bf16_first(narrow, load_first(value + d, n), n);
    for (size_t i = 0; i < n; ++i) values[(d + i) * 2] = narrow[i];
  }
}

}  // namespace pagoda::PAGODA_ISA
