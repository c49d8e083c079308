// Sixteen lanes in plain C++, for any machine. Loops over lanes, which compilers turn into whatever there is.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#define PAGODA_ISA portable

namespace pagoda::portable {

struct f32x16 { float lane[16]; };
struct i32x16 { int32_t lane[16]; };
struct u8x64 { uint8_t byte[64]; };       // 16 lanes of 4 unsigned bytes
struct bf16x32 { uint16_t half[32]; };    // 16 lanes of 2 bf16
struct i16x32 { int16_t half[32]; };      // 16 lanes of 2 integers

namespace detail {
template <class F>
inline f32x16 each(F f) {
  f32x16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}
template <class F>
inline i32x16 each_i32(F f) {
  i32x16 r;
  for (int i = 0; i < 16; ++i) r.lane[i] = f(i);
  return r;
}
inline float from_bits(uint32_t bits) { float x; __builtin_memcpy(&x, &bits, 4); return x; }
inline uint32_t to_bits(float x) { uint32_t bits; __builtin_memcpy(&bits, &x, 4); return bits; }
inline float from_bf16(uint16_t x) { return from_bits(static_cast<uint32_t>(x) << 16); }
// A half's exponent is moved to a float's; what a half denormal lacks is put right by one multiplication.
inline float from_half(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16, rest = h & 0x7FFFu;
  if (rest >= 0x7C00u) return from_bits(sign | 0x7F800000u | (rest & 0x3FFu) << 13);
  const float magnitude = from_bits(rest << 13) * 0x1p112f;
  return rest < 0x400u ? (sign ? -1.0f : 1.0f) * (static_cast<float>(rest) * 0x1p-24f) : from_bits(sign | to_bits(magnitude));
}
// To nearest even. A float of 0.5 has the last place of a half's denormals.
inline uint16_t to_half(float x) {
  const uint32_t sign = to_bits(x) >> 16 & 0x8000u, magnitude = to_bits(x) & 0x7FFFFFFFu;
  uint32_t half = (magnitude + 0xFFFu + (magnitude >> 13 & 1u) - 0x38000000u) >> 13;
  if (magnitude < 0x38800000u) half = to_bits(from_bits(magnitude) + 0.5f) - to_bits(0.5f);
  if (magnitude >= 0x477FF000u) half = magnitude > 0x7F800000u ? 0x7E00u : 0x7C00u;
  return static_cast<uint16_t>(sign | half);
}
inline uint16_t to_bf16(float x) {
  const uint32_t bits = to_bits(x), magnitude = bits & 0x7FFFFFFFu;
  if (magnitude > 0x7F800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);
  if (magnitude < 0x00800000u) return static_cast<uint16_t>(bits >> 16 & 0x8000u);
  return static_cast<uint16_t>((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}
}  // namespace detail

inline f32x16 zero() { return f32x16{}; }
inline f32x16 set1(float x) { return detail::each([&](int) { return x; }); }
inline f32x16 load(const float* p) { return detail::each([&](int i) { return p[i]; }); }
inline f32x16 load_first(const float* p, size_t n) {
  f32x16 r{};
  for (size_t i = 0; i < n && i < 16; ++i) r.lane[i] = p[i];
  return r;
}
inline void store(float* p, f32x16 x) { for (int i = 0; i < 16; ++i) p[i] = x.lane[i]; }
inline void store_first(float* p, f32x16 x, size_t n) { for (size_t i = 0; i < n && i < 16; ++i) p[i] = x.lane[i]; }
inline f32x16 add(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] + b.lane[i]; }); }
inline f32x16 sub(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] - b.lane[i]; }); }
inline f32x16 mul(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] * b.lane[i]; }); }
inline f32x16 div(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] / b.lane[i]; }); }
// Rounded twice: a fused one is slow where there is no instruction for it.
inline f32x16 fma(f32x16 a, f32x16 b, f32x16 c) { return add(mul(a, b), c); }
inline f32x16 max(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; }); }
inline f32x16 min(f32x16 a, f32x16 b) { return detail::each([&](int i) { return a.lane[i] < b.lane[i] ? a.lane[i] : b.lane[i]; }); }
inline f32x16 abs(f32x16 a) { return detail::each([&](int i) { return detail::from_bits(detail::to_bits(a.lane[i]) & 0x7FFFFFFFu); }); }
inline float sum(f32x16 a) {
  for (int width = 8; width; width /= 2) for (int i = 0; i < width; ++i) a.lane[i] += a.lane[i + width];
  return a.lane[0];
}
inline float largest(f32x16 a) {
  float r = a.lane[0];
  for (int i = 1; i < 16; ++i) r = a.lane[i] > r ? a.lane[i] : r;
  return r;
}
inline f32x16 keep_first(f32x16 x, size_t n, f32x16 rest) {
  return detail::each([&](int i) { return static_cast<size_t>(i) < n ? x.lane[i] : rest.lane[i]; });
}
inline f32x16 round_to_integer(f32x16 a) { return detail::each([&](int i) { return std::nearbyintf(a.lane[i]); }); }
inline f32x16 scale_by_power(f32x16 a, f32x16 n) {
  return detail::each([&](int i) {
    const int32_t whole = n.lane[i] == n.lane[i] ? static_cast<int32_t>(n.lane[i]) : 0, half = whole / 2;
    return a.lane[i] * detail::from_bits(static_cast<uint32_t>(half + 127) << 23) *
           detail::from_bits(static_cast<uint32_t>(whole - half + 127) << 23);
  });
}

inline f32x16 load_half(const void* p) {
  uint16_t halves[16];
  __builtin_memcpy(halves, p, 32);
  return detail::each([&](int i) { return detail::from_half(halves[i]); });
}
inline uint16_t to_half(float x) { return detail::to_half(x); }
inline f32x16 load_bf16(const uint16_t* p) { return detail::each([&](int i) { return detail::from_bf16(p[i]); }); }
inline void store_bf16_first(uint16_t* p, f32x16 x, size_t n) {
  for (size_t i = 0; i < n && i < 16; ++i) p[i] = detail::to_bf16(x.lane[i]);
}

inline i32x16 zero_i32() { return i32x16{}; }
inline i32x16 set1_i32(int32_t x) { return detail::each_i32([&](int) { return x; }); }
inline i32x16 add_i32(i32x16 a, i32x16 b) { return detail::each_i32([&](int i) { return a.lane[i] + b.lane[i]; }); }
inline i32x16 to_i32(f32x16 a) { return detail::each_i32([&](int i) { return static_cast<int32_t>(std::nearbyintf(a.lane[i])); }); }
inline f32x16 to_f32(i32x16 a) { return detail::each([&](int i) { return static_cast<float>(a.lane[i]); }); }
inline int32_t sum_i32(i32x16 a) {
  int32_t r = 0;
  for (int i = 0; i < 16; ++i) r += a.lane[i];
  return r;
}
inline void store_i8(int8_t* p, i32x16 x) { for (int i = 0; i < 16; ++i) p[i] = static_cast<int8_t>(x.lane[i]); }
inline void store_i16(int16_t* p, i32x16 x) { for (int i = 0; i < 16; ++i) p[i] = static_cast<int16_t>(x.lane[i]); }
inline f32x16 load_u8(const uint8_t* p) { return detail::each([&](int i) { return static_cast<float>(p[i]); }); }
inline f32x16 load_i8(const int8_t* p) { return detail::each([&](int i) { return static_cast<float>(p[i]); }); }

inline u8x64 load_codes(const uint8_t* p) { u8x64 r; __builtin_memcpy(r.byte, p, 64); return r; }
template <int shift>
inline u8x64 bits(u8x64 x, uint8_t mask) {
  for (auto& b : x.byte) b = static_cast<uint8_t>((shift >= 0 ? b << (shift & 7) : b >> (-shift & 7)) & mask);
  return x;
}
template <int shift>
inline u8x64 with_bits(u8x64 a, u8x64 x, uint8_t mask) {
  x = bits<shift>(x, mask);
  for (int i = 0; i < 64; ++i) a.byte[i] |= x.byte[i];
  return a;
}

inline i32x16 spread4(const int8_t* p) { int32_t four; __builtin_memcpy(&four, p, 4); return set1_i32(four); }
inline i32x16 dot4(i32x16 acc, u8x64 weights, i32x16 x) {
  int8_t bytes[64];
  __builtin_memcpy(bytes, x.lane, 64);
  for (int i = 0; i < 16; ++i)
    for (int t = 0; t < 4; ++t) acc.lane[i] += static_cast<int32_t>(weights.byte[4 * i + t]) * bytes[4 * i + t];
  return acc;
}
inline constexpr bool kWideCodesAreFree = true;

inline bf16x32 load_pairs(const uint16_t* p) { bf16x32 r; __builtin_memcpy(r.half, p, 64); return r; }
inline bf16x32 spread2(const uint16_t* p) {
  bf16x32 r;
  for (int i = 0; i < 16; ++i) r.half[2 * i] = p[0], r.half[2 * i + 1] = p[1];
  return r;
}
inline f32x16 dot2(f32x16 acc, bf16x32 weights, bf16x32 x) {
  return detail::each([&](int i) {
    const float low = detail::from_bf16(weights.half[2 * i]) * detail::from_bf16(x.half[2 * i]);
    return acc.lane[i] + low + detail::from_bf16(weights.half[2 * i + 1]) * detail::from_bf16(x.half[2 * i + 1]);
  });
}

inline i16x32 load_pairs(const int8_t* p) {
  i16x32 r;
  for (int i = 0; i < 32; ++i) r.half[i] = p[i];
  return r;
}
inline i16x32 spread2(const int16_t* p) {
  i16x32 r;
  for (int i = 0; i < 16; ++i) r.half[2 * i] = p[0], r.half[2 * i + 1] = p[1];
  return r;
}
inline i32x16 dot2(i32x16 acc, i16x32 codes, i16x32 x) {
  return detail::each_i32([&](int i) {
    return acc.lane[i] + codes.half[2 * i] * x.half[2 * i] + codes.half[2 * i + 1] * x.half[2 * i + 1];
  });
}

inline constexpr int kDenseRows = 2, kDenseTiles = 1;

inline void prefetch(const void* p) { __builtin_prefetch(p); }
inline void prefetch_far(const void* p) { __builtin_prefetch(p, 0, 2); }

}  // namespace pagoda::portable
