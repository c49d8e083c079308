// Numbers as codes of eight bits with a scale for each group of 32.
//
// An infinity or NaN in a group makes its scale NaN, so that no product with it looks like a number; its codes are
// zeros.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {

inline constexpr float kInfinity = __builtin_inff();
// A group whose numbers are all below is taken as zeros: the inverse of its scale would be beyond float32.
inline constexpr float kSmallestGroup = 0x1p-100f;
// The sum of a group's second half, times this, is added to that of the first: each is within ±16 × 127, less than half
// of it, and the whole below 2^24, up to which floats are exact.
inline constexpr int kSecondHalf = 4096;

inline void quantize(f32x16 a, f32x16 b, int8_t* codes, Group* group) {
  // The smaller of NaN and infinity is infinity here; the largest of a NaN and others could be any of them.
  const f32x16 limit = set1(kInfinity);
  const float magnitude = largest(max(min(abs(a), limit), min(abs(b), limit)));
  if (!(magnitude >= kSmallestGroup && magnitude < kInfinity)) {
    const float scale = magnitude < kInfinity ? 0.0f : __builtin_nanf("");
    store_i8(codes, zero_i32());
    store_i8(codes + 16, zero_i32());
    *group = {{0, 0}, scale, scale};
    return;
  }
  const f32x16 inverse = set1(127.0f / magnitude);
  const f32x16 low = round_to_integer(mul(a, inverse)), high = round_to_integer(mul(b, inverse));
  store_i8(codes, to_i32(low));
  store_i8(codes + 16, to_i32(high));
  const int32_t both = static_cast<int32_t>(sum(fma(high, set1(kSecondHalf), low)));
  const int32_t second = (both + kSecondHalf / 2) >> 12, first_half = both - second * kSecondHalf;
  const float scale = magnitude / 127.0f;
  *group = {{-128 * first_half, -128 * second}, scale, scale * static_cast<float>(first_half + second)};
}

#if defined(PAGODA_AVX512)

namespace detail {

// Reduces four vectors at once: element j of the result is that of x[j].
template <class Pair>
inline __m128i reduce_four(const __m512i x[4], Pair pair) {
  const __m512i p = pair(_mm512_unpacklo_epi32(x[0], x[1]), _mm512_unpackhi_epi32(x[0], x[1]));
  const __m512i q = pair(_mm512_unpacklo_epi32(x[2], x[3]), _mm512_unpackhi_epi32(x[2], x[3]));
  __m512i r = pair(_mm512_unpacklo_epi64(p, q), _mm512_unpackhi_epi64(p, q));   // in each quarter: 0 … 3
  r = pair(r, _mm512_shuffle_i64x2(r, r, 0x4E));
  r = pair(r, _mm512_shuffle_i64x2(r, r, 0xB1));
  return _mm512_castsi512_si128(r);
}

}  // namespace detail

// Four groups, as `quantize` has them. x: 128 numbers.
inline void quantize_four(const f32x16 x[8], int8_t* codes, Group* groups) {
  __m512i found[4];
  // As integers, magnitudes order like the floats that they are, and a NaN above infinity.
  for (int i = 0; i < 4; ++i) {
    found[i] = _mm512_max_epu32(_mm512_castps_si512(abs(x[2 * i])), _mm512_castps_si512(abs(x[2 * i + 1])));
  }
  const __m128 magnitude =
      _mm_castsi128_ps(detail::reduce_four(found, [](__m512i a, __m512i b) { return _mm512_max_epu32(a, b); }));
  const __mmask8 beyond = _mm_cmp_ps_mask(magnitude, _mm_set1_ps(kInfinity), _CMP_NLT_UQ);
  const __mmask8 usual = _mm_cmp_ps_mask(magnitude, _mm_set1_ps(kSmallestGroup), _CMP_GE_OQ) & ~beyond;
  const __m512 inverses = _mm512_broadcast_f32x4(_mm_maskz_div_ps(usual, _mm_set1_ps(127.0f), magnitude));
  const __m512 inverse[4] = {_mm512_permute_ps(inverses, 0x00), _mm512_permute_ps(inverses, 0x55),
                             _mm512_permute_ps(inverses, 0xAA), _mm512_permute_ps(inverses, 0xFF)};
  for (int i = 0; i < 4; ++i) {
    // Zero times what is no number is none, whose integer has zeros in its lowest byte.
    const __m512i low = to_i32(mul(x[2 * i], inverse[i])), high = to_i32(mul(x[2 * i + 1], inverse[i]));
    store_i8(codes + 32 * i, low);
    store_i8(codes + 32 * i + 16, high);
    found[i] = _mm512_add_epi32(low, _mm512_slli_epi32(high, 12));
  }
  const __m128i both = _mm_maskz_mov_epi32(
      usual, detail::reduce_four(found, [](__m512i a, __m512i b) { return _mm512_add_epi32(a, b); }));
  const __m128i second = _mm_srai_epi32(_mm_add_epi32(both, _mm_set1_epi32(kSecondHalf / 2)), 12);
  const __m128i first_half = _mm_sub_epi32(both, _mm_slli_epi32(second, 12));
  __m128 scale = _mm_maskz_div_ps(usual, magnitude, _mm_set1_ps(127.0f));
  scale = _mm_mask_mov_ps(scale, beyond, _mm_set1_ps(__builtin_nanf("")));
  __m128 columns[4] = {
      _mm_castsi128_ps(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(first_half, 7))),
      _mm_castsi128_ps(_mm_sub_epi32(_mm_setzero_si128(), _mm_slli_epi32(second, 7))), scale,
      _mm_mul_ps(scale, _mm_cvtepi32_ps(_mm_add_epi32(first_half, second)))};
  _MM_TRANSPOSE4_PS(columns[0], columns[1], columns[2], columns[3]);
  for (int i = 0; i < 4; ++i) _mm_storeu_ps(reinterpret_cast<float*>(groups + i), columns[i]);
}

#else

inline void quantize_four(const f32x16 x[8], int8_t* codes, Group* groups) {
  for (int i = 0; i < 4; ++i) quantize(x[2 * i], x[2 * i + 1], codes + 32 * i, groups + i);
}

#endif

}  // namespace pagoda::PAGODA_ISA
