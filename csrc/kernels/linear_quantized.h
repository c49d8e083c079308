// The quantized formats as products want them: a unit's codes as bytes, and its numbers per lane.
//
// Formats with an offset get codes shifted up so that the offset is always 128, which Group.offsets takes away; the scale is
// that much smaller, by a power of two, so no result changes.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {

// Where one tile's planes begin.
struct Planes {
  const uint8_t* codes;
  const uint8_t* upper;
  const uint8_t* scales;
  const uint8_t* minima;
  const uint8_t* super_scales;
  const uint8_t* super_minima;

  Planes(const uint8_t* tile, const TileLayout& at)
      : codes(tile + at.codes), upper(tile + at.upper), scales(tile + at.scales), minima(tile + at.minima),
        super_scales(tile + at.super_scales), super_minima(tile + at.super_minima) {}
};

constexpr bool is_k_quant(Format format) { return format >= Format::q4_k; }
constexpr bool has_fifth_bits(Format format) {
  return format == Format::q5_0 || format == Format::q5_1 || format == Format::q5_k;
}
constexpr bool has_minima(Format format) {
  return format == Format::q4_1 || format == Format::q5_1 || format == Format::q4_k || format == Format::q5_k;
}
// A scale for each half of a unit.
constexpr bool has_half_scales(Format format) { return format == Format::q6_k; }

// By how many bits codes are shifted so that an offset becomes 128.
constexpr int code_shift(Format format) {
  switch (format) {
    case Format::q4_0: return 4;
    case Format::q5_0: return 3;
    case Format::q6_k: return 2;
    default: return 0;
  }
}
constexpr float code_step(Format format) { return 1.0f / static_cast<float>(1 << code_shift(format)); }

// Byte 4 × lane + t of vector i becomes input 4 i + t.
template <Format format>
inline void unpack_codes(const Planes& tile, size_t unit, u8x64 (&codes)[8]) {
  if constexpr (format == Format::q8_0) {
    for (int i = 0; i < 8; ++i) codes[i] = load_codes(tile.codes + unit * 512 + 64 * i);
    return;
  }
  constexpr int shift = code_shift(format);
  constexpr uint8_t mask = 15 << shift;
  for (int i = 0; i < 4; ++i) {
    const u8x64 nibbles = load_codes(tile.codes + unit * 256 + 64 * i);
    codes[i] = bits<shift>(nibbles, mask);
    codes[4 + i] = bits<shift - 4>(nibbles, mask);
  }
  if constexpr (has_fifth_bits(format)) {
    uint64_t fifth[8];
    __builtin_memcpy(fifth, tile.upper + unit * 64, 64);
    for (int i = 0; i < 8; ++i) codes[i] = with_bit(codes[i], fifth[i], 16 << shift);
  }
  if constexpr (format == Format::q6_k) {
    for (int half = 0; half < 2; ++half) {
      const u8x64 pairs = load_codes(tile.upper + unit * 128 + 64 * half);
      codes[4 * half] = either(codes[4 * half], bits<6>(pairs, 0xC0));
      codes[4 * half + 1] = either(codes[4 * half + 1], bits<4>(pairs, 0xC0));
      codes[4 * half + 2] = either(codes[4 * half + 2], bits<2>(pairs, 0xC0));
      codes[4 * half + 3] = either(codes[4 * half + 3], bits<0>(pairs, 0xC0));
    }
  }
}

// What one step of the codes above is worth.
template <Format format>
inline void load_scales(const Planes& tile, size_t unit, f32x16 (&scales)[2]) {
  if constexpr (format == Format::q6_k) {
    const f32x16 super = mul(load_half(tile.super_scales + unit / 8 * 32), set1(code_step(format)));
    const int8_t* halves = reinterpret_cast<const int8_t*>(tile.scales + unit * 32);
    scales[0] = mul(super, load_i8(halves));
    scales[1] = mul(super, load_i8(halves + 16));
  } else if constexpr (is_k_quant(format)) {
    scales[0] = mul(load_half(tile.super_scales + unit / 8 * 32), load_u8(tile.scales + unit * 16));
  } else if constexpr (code_shift(format) != 0) {
    scales[0] = mul(load_half(tile.scales + unit * 32), set1(code_step(format)));
  } else {
    scales[0] = load_half(tile.scales + unit * 32);
  }
}

// What is added to each of the unit's values.
template <Format format>
inline f32x16 load_minimum(const Planes& tile, size_t unit) {
  if constexpr (is_k_quant(format)) {
    const f32x16 super = load_half(tile.super_minima + unit / 8 * 32);
    return sub(zero(), mul(super, load_u8(tile.minima + unit * 16)));
  } else {
    return load_half(tile.minima + unit * 32);
  }
}

}  // namespace pagoda::PAGODA_ISA
