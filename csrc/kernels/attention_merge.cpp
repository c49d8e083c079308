// Joining what attention found in several splits (arXiv:2205.14135, section 3.1), and the end of it.
#include "exp.h"
#include "table.h"

namespace pagoda::PAGODA_ISA {

void merge(const Partial& running, const Partial& next, size_t rows, size_t head_dim) {
  for (size_t r = 0; r < rows; ++r) {
    if (next.sum[r] == 0) continue;   // an empty split changes no bit
    float* const values = running.values + r * head_dim;
    const float* const more = next.values + r * head_dim;
    if (running.sum[r] == 0) {
      running.largest[r] = next.largest[r];
      running.sum[r] = next.sum[r];
      __builtin_memcpy(values, more, head_dim * sizeof(float));
      continue;
    }
    const float old = running.largest[r], fresh = next.largest[r], top = old > fresh ? old : fresh;
    const f32x16 kept = exp2_to_one(set1(old - top)), added = exp2_to_one(set1(fresh - top));
    running.largest[r] = top;
    store_first(running.sum + r, fma(set1(next.sum[r]), added, mul(set1(running.sum[r]), kept)), 1);
    for (size_t d = 0; d < head_dim; d += 16) {
      const size_t n = head_dim - d;
      store_first(values + d, fma(load_first(more + d, n), added, mul(load_first(values + d, n), kept)), n);
    }
  }
}

void finish(const float* values, float sum, size_t head_dim, float* out) {
  const f32x16 share = div(set1(1.0f), set1(sum));
  for (size_t d = 0; d < head_dim; d += 16)
    store_first(out + d, mul(load_first(values + d, head_dim - d), share), head_dim - d);
}

}  // namespace pagoda::PAGODA_ISA
