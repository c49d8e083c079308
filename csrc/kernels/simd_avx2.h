// Sixteen lanes on AVX2 with FMA and F16C: lanes 0 … 7 and 8 … 15.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

#define PAGODA_ISA avx2

namespace pagoda::avx2 {

struct f32x16 { __m256 a, b; };
struct i32x16 { __m256i a, b; };
struct u8x64 { __m256i a, b; };      // 16 lanes of 4 unsigned bytes
struct bf16x32 { __m256i a, b; };    // 16 lanes of 2 bf16
struct i16x32 { __m256i a, b; };     // 16 lanes of 2 integers

namespace detail {
// All bits of the first n lanes.
inline i32x16 first(size_t n) {
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i limit = _mm256_set1_epi32(n < 16 ? static_cast<int>(n) : 16);
  return {_mm256_cmpgt_epi32(limit, lanes), _mm256_cmpgt_epi32(limit, _mm256_add_epi32(lanes, _mm256_set1_epi32(8)))};
}
inline __m256i load256(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }
inline __m128i load128(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
inline __m128i load64(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }
// 2^n for integral n within −126 … 127.
inline __m256 power(__m256i n) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n, _mm256_set1_epi32(127)), 23));
}
inline __m256 scale_by_power(__m256 x, __m256 n) {
  const __m256i whole = _mm256_cvtps_epi32(n), half = _mm256_srai_epi32(whole, 1);
  return _mm256_mul_ps(_mm256_mul_ps(x, power(half)), power(_mm256_sub_epi32(whole, half)));
}
inline __m256 widen(__m128i bf16) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bf16), 16)); }
// Eight bf16 in the lower halves of lanes.
inline __m256i narrow(__m256 x) {
  const __m256i word = _mm256_castps_si256(x), magnitude = _mm256_and_si256(word, _mm256_set1_epi32(0x7FFFFFFF));
  const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(word, 16), _mm256_set1_epi32(1));
  const __m256i even = _mm256_add_epi32(_mm256_add_epi32(word, _mm256_set1_epi32(0x7FFF)), odd);
  const __m256i quiet_nan = _mm256_or_si256(word, _mm256_set1_epi32(0x00400000));
  const __m256i sign = _mm256_andnot_si256(_mm256_set1_epi32(0x7FFFFFFF), word);
  const __m256i is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7F800000));
  const __m256i is_denormal = _mm256_cmpgt_epi32(_mm256_set1_epi32(0x00800000), magnitude);
  return _mm256_srli_epi32(_mm256_blendv_epi8(_mm256_blendv_epi8(even, quiet_nan, is_nan), sign, is_denormal), 16);
}
// The sum of each four products times a factor, where no sum of two products is beyond int16.
inline __m256i times(__m256i weights, __m256i x, int16_t factor) {
  return _mm256_madd_epi16(_mm256_maddubs_epi16(weights, x), _mm256_set1_epi16(factor));
}
// Bit 7 of the weights is multiplied on its own: with it the sum of two products would not fit int16.
inline __m256i dot4(__m256i acc, __m256i weights, __m256i x) {
  const __m256i low = _mm256_and_si256(weights, _mm256_set1_epi8(127));
  const __m256i top = _mm256_and_si256(_mm256_srli_epi16(weights, 7), _mm256_set1_epi8(1));
  return _mm256_add_epi32(_mm256_add_epi32(acc, times(low, x, 1)), times(top, x, 128));
}
// Sums of two products are int16. Sums of more are so too where codes are narrow: with x within ±127, eight products of
// codes up to 31, or four of codes up to 63. Codes of 8 bits are two of 4.
template <int num_bits>
inline __m256i dot16(__m256i acc, const __m256i* codes, const int8_t* x) {
  const __m256i one = _mm256_set1_epi16(1), low_bits = _mm256_set1_epi8(15);
  __m256i low[4], high[4];
  for (int i = 0; i < 4; ++i) {
    int32_t four;
    __builtin_memcpy(&four, x + 4 * i, 4);
    const __m256i input = _mm256_set1_epi32(four);
    if constexpr (num_bits <= 6) {
      low[i] = _mm256_maddubs_epi16(codes[i], input);
    } else {
      low[i] = _mm256_maddubs_epi16(_mm256_and_si256(codes[i], low_bits), input);
      high[i] = _mm256_maddubs_epi16(_mm256_and_si256(_mm256_srli_epi16(codes[i], 4), low_bits), input);
    }
  }
  const __m256i first = _mm256_add_epi16(low[0], low[1]), second = _mm256_add_epi16(low[2], low[3]);
  if constexpr (num_bits == 6) {
    return _mm256_add_epi32(_mm256_add_epi32(acc, _mm256_madd_epi16(first, one)), _mm256_madd_epi16(second, one));
  }
  acc = _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_add_epi16(first, second), one));
  if constexpr (num_bits == 8) {
    const __m256i sums = _mm256_add_epi16(_mm256_add_epi16(high[0], high[1]), _mm256_add_epi16(high[2], high[3]));
    acc = _mm256_add_epi32(acc, _mm256_madd_epi16(sums, _mm256_set1_epi16(16)));
  }
  return acc;
}
// A bf16 number is the upper half of a float32.
inline __m256 lower_bf16(__m256i pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
inline __m256 upper_bf16(__m256i pairs) {
  return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xFFFF0000u))));
}
inline __m256 dot2(__m256 acc, __m256i weights, __m256i x) {
  acc = _mm256_fmadd_ps(lower_bf16(weights), lower_bf16(x), acc);
  return _mm256_fmadd_ps(upper_bf16(weights), upper_bf16(x), acc);
}
}  // namespace detail

inline f32x16 zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
inline f32x16 set1(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
inline f32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline f32x16 load_first(const float* p, size_t n) {
  const i32x16 mask = detail::first(n);
  return {_mm256_maskload_ps(p, mask.a), _mm256_maskload_ps(p + 8, mask.b)};
}
inline void store(float* p, f32x16 x) { _mm256_storeu_ps(p, x.a), _mm256_storeu_ps(p + 8, x.b); }
inline void store_first(float* p, f32x16 x, size_t n) {
  const i32x16 mask = detail::first(n);
  _mm256_maskstore_ps(p, mask.a, x.a), _mm256_maskstore_ps(p + 8, mask.b, x.b);
}
inline f32x16 add(f32x16 x, f32x16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline f32x16 sub(f32x16 x, f32x16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline f32x16 mul(f32x16 x, f32x16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline f32x16 div(f32x16 x, f32x16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline f32x16 fma(f32x16 x, f32x16 y, f32x16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline f32x16 max(f32x16 x, f32x16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline f32x16 min(f32x16 x, f32x16 y) { return {_mm256_min_ps(x.a, y.a), _mm256_min_ps(x.b, y.b)}; }
inline f32x16 abs(f32x16 x) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, x.a), _mm256_andnot_ps(sign, x.b)};
}
inline float sum(f32x16 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest(f32x16 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline f32x16 keep_first(f32x16 x, size_t n, f32x16 rest) {
  const i32x16 mask = detail::first(n);
  return {_mm256_blendv_ps(rest.a, x.a, _mm256_castsi256_ps(mask.a)),
          _mm256_blendv_ps(rest.b, x.b, _mm256_castsi256_ps(mask.b))};
}
inline f32x16 round_to_integer(f32x16 x) {
  constexpr int kMode = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kMode), _mm256_round_ps(x.b, kMode)};
}
inline f32x16 scale_by_power(f32x16 x, f32x16 n) {
  return {detail::scale_by_power(x.a, n.a), detail::scale_by_power(x.b, n.b)};
}

inline f32x16 load_half(const void* p) {
  const uint8_t* bytes = static_cast<const uint8_t*>(p);
  return {_mm256_cvtph_ps(detail::load128(bytes)), _mm256_cvtph_ps(detail::load128(bytes + 16))};
}
inline uint16_t to_half(float x) {
  return static_cast<uint16_t>(_mm_extract_epi16(_mm_cvtps_ph(_mm_set_ss(x), _MM_FROUND_TO_NEAREST_INT), 0));
}
inline f32x16 load_bf16(const uint16_t* p) {
  return {detail::widen(detail::load128(p)), detail::widen(detail::load128(p + 8))};
}
inline void store_bf16_first(uint16_t* p, f32x16 x, size_t n) {
  const __m256i mixed = _mm256_packus_epi32(detail::narrow(x.a), detail::narrow(x.b));
  const __m256i narrow = _mm256_permute4x64_epi64(mixed, 0xD8);
  if (n >= 16) return _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), narrow);
  uint16_t numbers[16];
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers), narrow);
  for (size_t i = 0; i < n; ++i) p[i] = numbers[i];
}

inline i32x16 zero_i32() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
inline i32x16 set1_i32(int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
inline i32x16 add_i32(i32x16 x, i32x16 y) { return {_mm256_add_epi32(x.a, y.a), _mm256_add_epi32(x.b, y.b)}; }
inline i32x16 to_i32(f32x16 x) { return {_mm256_cvtps_epi32(x.a), _mm256_cvtps_epi32(x.b)}; }
inline f32x16 to_f32(i32x16 x) { return {_mm256_cvtepi32_ps(x.a), _mm256_cvtepi32_ps(x.b)}; }
inline int32_t sum_i32(i32x16 x) {
  const __m256i eight = _mm256_add_epi32(x.a, x.b);
  const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
  const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0xEE));
  return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0x55)));
}
inline void store_i8(int8_t* p, i32x16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
  const __m128i bytes = _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), bytes);
}
inline void store_i16(int16_t* p, i32x16 x) {
  const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(x.a, x.b), 0xD8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), words);
}
inline f32x16 load_u8(const uint8_t* p) {
  return to_f32({_mm256_cvtepu8_epi32(detail::load64(p)), _mm256_cvtepu8_epi32(detail::load64(p + 8))});
}
inline f32x16 load_i8(const int8_t* p) {
  return to_f32({_mm256_cvtepi8_epi32(detail::load64(p)), _mm256_cvtepi8_epi32(detail::load64(p + 8))});
}

inline u8x64 load_codes(const uint8_t* p) { return {detail::load256(p), detail::load256(p + 32)}; }
template <int shift>
inline u8x64 bits(u8x64 x, uint8_t mask) {
  if constexpr (shift > 0) x = {_mm256_slli_epi16(x.a, shift), _mm256_slli_epi16(x.b, shift)};
  if constexpr (shift < 0) x = {_mm256_srli_epi16(x.a, -shift), _mm256_srli_epi16(x.b, -shift)};
  const __m256i kept = _mm256_set1_epi8(static_cast<char>(mask));
  return {_mm256_and_si256(x.a, kept), _mm256_and_si256(x.b, kept)};
}
template <int shift>
inline u8x64 with_bits(u8x64 a, u8x64 x, uint8_t mask) {
  x = bits<shift>(x, mask);
  return {_mm256_or_si256(a.a, x.a), _mm256_or_si256(a.b, x.b)};
}

inline i32x16 spread4(const int8_t* p) {
  int32_t four;
  __builtin_memcpy(&four, p, 4);
  return set1_i32(four);
}
inline i32x16 dot4(i32x16 acc, u8x64 weights, i32x16 x) {
  return {detail::dot4(acc.a, weights.a, x.a), detail::dot4(acc.b, weights.b, x.b)};
}
template <int num_bits>
inline void dot32(i32x16& low, i32x16& high, const u8x64 (&codes)[8], const int8_t* x) {
  __m256i a[8], b[8];
  for (int i = 0; i < 8; ++i) a[i] = codes[i].a, b[i] = codes[i].b;
  low = {detail::dot16<num_bits>(low.a, a, x), detail::dot16<num_bits>(low.b, b, x)};
  high = {detail::dot16<num_bits>(high.a, a + 4, x + 16), detail::dot16<num_bits>(high.b, b + 4, x + 16)};
}
inline constexpr bool kWideCodesAreFree = false;

inline bf16x32 spread2(const uint16_t* p) {
  int32_t two;
  __builtin_memcpy(&two, p, 4);
  return {_mm256_set1_epi32(two), _mm256_set1_epi32(two)};
}
inline bf16x32 load_pairs(const uint16_t* p) { return {detail::load256(p), detail::load256(p + 16)}; }
inline f32x16 dot2(f32x16 acc, bf16x32 weights, bf16x32 x) {
  return {detail::dot2(acc.a, weights.a, x.a), detail::dot2(acc.b, weights.b, x.b)};
}

inline i16x32 spread2(const int16_t* p) {
  int32_t two;
  __builtin_memcpy(&two, p, 4);
  return {_mm256_set1_epi32(two), _mm256_set1_epi32(two)};
}
inline i16x32 load_pairs(const int8_t* p) {
  return {_mm256_cvtepi8_epi16(detail::load128(p)), _mm256_cvtepi8_epi16(detail::load128(p + 16))};
}
inline i32x16 dot2(i32x16 acc, i16x32 codes, i16x32 x) {
  return {_mm256_add_epi32(acc.a, _mm256_madd_epi16(codes.a, x.a)), _mm256_add_epi32(acc.b, _mm256_madd_epi16(codes.b, x.b))};
}

inline constexpr int kDenseRows = 4, kDenseTiles = 1;

inline void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
inline void prefetch_far(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace pagoda::avx2
