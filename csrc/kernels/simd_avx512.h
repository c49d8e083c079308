// Sixteen lanes on AVX-512 (F, BW, VL, DQ) with VNNI and BF16.
#pragma once

// GCC 12 takes its own intrinsics' placeholders for uninitialised values (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif

#include <cstddef>
#include <cstdint>

#define PAGODA_ISA avx512

namespace pagoda::avx512 {

using f32x16 = __m512;
using i32x16 = __m512i;
using u8x64 = __m512i;     // 16 lanes of 4 unsigned bytes
using bf16x32 = __m512i;   // 16 lanes of 2 bf16
using i16x32 = __m512i;    // 16 lanes of 2 integers

inline __mmask16 first(size_t n) { return static_cast<__mmask16>(n >= 16 ? 0xFFFF : (1u << n) - 1); }

// float32
inline f32x16 zero() { return _mm512_setzero_ps(); }
inline f32x16 set1(float x) { return _mm512_set1_ps(x); }
inline f32x16 load(const float* p) { return _mm512_loadu_ps(p); }
inline f32x16 load_first(const float* p, size_t n) { return _mm512_maskz_loadu_ps(first(n), p); }
inline void store(float* p, f32x16 x) { _mm512_storeu_ps(p, x); }
inline void store_first(float* p, f32x16 x, size_t n) { _mm512_mask_storeu_ps(p, first(n), x); }
inline f32x16 add(f32x16 a, f32x16 b) { return _mm512_add_ps(a, b); }
inline f32x16 sub(f32x16 a, f32x16 b) { return _mm512_sub_ps(a, b); }
inline f32x16 mul(f32x16 a, f32x16 b) { return _mm512_mul_ps(a, b); }
inline f32x16 div(f32x16 a, f32x16 b) { return _mm512_div_ps(a, b); }
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return _mm512_fmadd_ps(a, b, c); }  // a b + c
inline f32x16 max(f32x16 a, f32x16 b) { return _mm512_max_ps(a, b); }                 // b where either is NaN
inline f32x16 min(f32x16 a, f32x16 b) { return _mm512_min_ps(a, b); }
inline f32x16 abs(f32x16 a) { return _mm512_abs_ps(a); }
inline float sum(f32x16 a) { return _mm512_reduce_add_ps(a); }      // one fixed tree
inline float largest(f32x16 a) { return _mm512_reduce_max_ps(a); }
// x with the lanes from n on replaced by `rest`.
inline f32x16 keep_first(f32x16 x, size_t n, f32x16 rest) { return _mm512_mask_blend_ps(first(n), rest, x); }
inline f32x16 round_to_integer(f32x16 a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
// a × 2^n for integral n within −252 … 254, with gradual underflow; NaN where a is.
inline f32x16 scale_by_power(f32x16 a, f32x16 n) { return _mm512_scalef_ps(a, n); }

// narrower floats
inline f32x16 load_half(const void* p) { return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p))); }
// The bits of a half, to nearest even.
inline uint16_t to_half(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
}
inline f32x16 load_bf16(const uint16_t* p) {
  const __m256i narrow = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(narrow), 16));
}
// To nearest even; denormals become zero, as they do in the products.
inline void store_bf16_first(uint16_t* p, f32x16 x, size_t n) {
  _mm256_mask_storeu_epi16(p, first(n), (__m256i)_mm512_cvtneps_pbh(x));
}

// integers
inline i32x16 zero_i32() { return _mm512_setzero_si512(); }
inline i32x16 set1_i32(int32_t x) { return _mm512_set1_epi32(x); }
inline i32x16 add_i32(i32x16 a, i32x16 b) { return _mm512_add_epi32(a, b); }
inline i32x16 to_i32(f32x16 a) { return _mm512_cvtps_epi32(a); }    // to nearest even
inline f32x16 to_f32(i32x16 a) { return _mm512_cvtepi32_ps(a); }
inline int32_t sum_i32(i32x16 a) { return _mm512_reduce_add_epi32(a); }
// Lanes within −128 … 127 as bytes.
inline void store_i8(int8_t* p, i32x16 x) { _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(x)); }
// Lanes within −32768 … 32767.
inline void store_i16(int16_t* p, i32x16 x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(x));
}
inline f32x16 load_u8(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}
inline f32x16 load_i8(const int8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
}

// packed codes
inline u8x64 load_codes(const uint8_t* p) { return _mm512_loadu_si512(p); }
// Each byte shifted to the left by `shift`, or to the right where that is negative; masks must drop what came from a
// neighbouring byte.
template <int shift>
inline u8x64 shifted(u8x64 x) {
  if constexpr (shift > 0) return _mm512_slli_epi16(x, shift);
  if constexpr (shift < 0) return _mm512_srli_epi16(x, -shift);
  return x;
}
template <int shift>
inline u8x64 bits(u8x64 x, uint8_t mask) {
  return _mm512_and_si512(shifted<shift>(x), _mm512_set1_epi8(static_cast<char>(mask)));
}
// a with those bits of x.
template <int shift>
inline u8x64 with_bits(u8x64 a, u8x64 x, uint8_t mask) {
  const __m512i kept = _mm512_set1_epi8(static_cast<char>(mask));
  return _mm512_ternarylogic_epi64(a, shifted<shift>(x), kept, 0xF8);   // a | (x & kept)
}

// Four bytes of activations, in every lane.
inline i32x16 spread4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return _mm512_set1_epi32(four);
}
// acc + the four products of each lane: unsigned weights (at most 255) times signed activations. No saturation.
inline i32x16 dot4(i32x16 acc, u8x64 weights, i32x16 x) { return _mm512_dpbusd_epi32(acc, weights, x); }
// Whether a product with codes of 8 bits costs what one with fewer does.
inline constexpr bool kWideCodesAreFree = true;

// Two bf16 of activations, in every lane.
inline bf16x32 spread2(const uint16_t* p) {
  int32_t two;
  __builtin_memcpy(&two, p, 4);
  return _mm512_set1_epi32(two);
}
inline bf16x32 load_pairs(const uint16_t* p) { return _mm512_loadu_si512(p); }
// acc + the two products of each lane.
inline f32x16 dot2(f32x16 acc, bf16x32 weights, bf16x32 x) {
  return _mm512_dpbf16_ps(acc, (__m512bh)weights, (__m512bh)x);
}

// Two integers of 16 bits, in every lane; and pairs of codes of 8.
inline i16x32 spread2(const int16_t* p) {
  int32_t two;
  __builtin_memcpy(&two, p, 4);
  return _mm512_set1_epi32(two);
}
inline i16x32 load_pairs(const int8_t* p) {
  return _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}
// acc + the two products of each lane.
inline i32x16 dot2(i32x16 acc, i16x32 codes, i16x32 x) { return _mm512_dpwssd_epi32(acc, codes, x); }

// Of dense products: rows and tiles whose sums stay in registers together, beside the weights.
inline constexpr int kDenseRows = 8, kDenseTiles = 3;

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
// Into the second cache.
inline void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace pagoda::avx512
