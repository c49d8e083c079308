// What choosing a token needs of a whole row of logits.
#include "table.h"

namespace pagoda::PAGODA_ISA {

namespace {

bool has_nan(const float* x, size_t n) {
  int found = 0;
  for (size_t i = 0; i < n; ++i) found |= x[i] != x[i];
  return found;
}

double from_bits(uint64_t bits) {
  double x;
  __builtin_memcpy(&x, &bits, 8);
  return x;
}

uint64_t to_bits(double x) {
  uint64_t bits;
  __builtin_memcpy(&bits, &x, 8);
  return bits;
}

// floor(2^40 × e^x) for x ≤ 0. Within 1 ulp before the floor. Only additions, multiplications and shifts, each rounded
// by itself, so that every machine and every width of vectors gives the same; comparisons are of integers, as compilers
// make no vectors of loops with those of floats.
//
// x = n ln 2 + r with |r| ≤ ln 2 / 2, and e^r by its Taylor series up to r^13, whose rest is below 5e-18.
int64_t weight(double x) {
  // At −28 it is 0.76: less is 0 anyway. The bits of what is not positive grow with the magnitude.
  const uint64_t bits = to_bits(x), limit = to_bits(-28.0);
  const double kept = from_bits(bits < limit ? bits : limit);
  // Added to 1.5 × 2^52, a number is rounded to an integer, which then is in the lowest bits.
  const double shifted = kept * 0x1.71547652b82fep+0 + 0x1.8p52;
  const double n = shifted - 0x1.8p52;
  const double r = (kept - n * 0x1.62e42fefa0000p-1) - n * 0x1.cf79abc9e3b3ap-40;   // n × the upper part is exact
  double p = 1.0 / 6227020800.0;
  p = p * r + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  const double e = 1.0 + (r + r * r * p);
  const double exact = from_bits(to_bits(e) + (to_bits(shifted) << 52) + (uint64_t{40} << 52));
  const double rounded = exact + 0x1p52;
  const bool upwards = to_bits(rounded - 0x1p52) > to_bits(exact);
  return static_cast<int64_t>(to_bits(rounded) - to_bits(0x1p52)) - upwards;
}

}  // namespace

void chunk_maxima(const float* x, size_t n, float* maxima) {
  const f32x16 lowest = set1(-__builtin_inff());
  f32x16 products = zero();   // with 0: NaN once a number is NaN or infinite
  size_t chunk = 0;
  for (; (chunk + 1) * kChunk <= n; ++chunk) {
    const float* p = x + chunk * kChunk;
    f32x16 best[4] = {lowest, lowest, lowest, lowest};
    for (size_t i = 0; i < kChunk; i += 64) {
      for (size_t j = 0; j < 4; ++j) {
        const f32x16 each = load(p + i + 16 * j);
        best[j] = max(each, best[j]);
        products = fma(each, zero(), products);
      }
    }
    maxima[chunk] = largest(max(max(best[0], best[1]), max(best[2], best[3])));
  }
  if (chunk * kChunk < n) {
    f32x16 best = lowest;
    for (size_t i = chunk * kChunk; i < n; i += 16) {
      const size_t valid = n - i < 16 ? n - i : 16;
      const f32x16 each = load_first(x + i, valid);
      best = max(keep_first(each, valid, lowest), best);
      products = fma(each, zero(), products);
    }
    maxima[chunk] = largest(best);
  }
  if (sum(products) == 0.0f) return;
  for (size_t i = 0, c = 0; i < n; i += kChunk, ++c) {
    if (has_nan(x + i, n - i < kChunk ? n - i : kChunk)) maxima[c] = __builtin_nanf("");
  }
}

size_t collect(const float* x, size_t n, float least, int32_t* places) {
  size_t count = 0;
#if defined(PAGODA_AVX512)
  const __m512 bound = set1(least);
  __m512i place = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (size_t i = 0; i < n; i += 16) {
    const __mmask16 found = _mm512_mask_cmp_ps_mask(first(n - i), load_first(x + i, n - i), bound, _CMP_GE_OQ);
    _mm512_storeu_si512(places + count, _mm512_maskz_compress_epi32(found, place));
    count += static_cast<size_t>(__builtin_popcount(found));
    place = _mm512_add_epi32(place, _mm512_set1_epi32(16));
  }
#else
  for (size_t i = 0; i < n; ++i) {
    places[count] = static_cast<int32_t>(i);
    count += x[i] >= least;
  }
#endif
  return count;
}

int64_t weigh(const float* x, size_t n, double largest, double temperature, int64_t least, int64_t* weights) {
  int64_t total = 0;
  for (size_t i = 0; i < n; i += kChunk) {
    const size_t count = n - i < kChunk ? n - i : kChunk;
    int64_t own[kChunk];
    int64_t* const each = weights ? weights + i : own;
    // A loop for each of the two, so that compilers make vectors of them.
    for (size_t j = 0; j < count; ++j) each[j] = weight((static_cast<double>(x[i + j]) - largest) / temperature);
    for (size_t j = 0; j < count; ++j) total += each[j] >= least ? each[j] : 0;
  }
  return total;
}

}  // namespace pagoda::PAGODA_ISA
