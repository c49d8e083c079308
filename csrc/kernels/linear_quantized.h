// The quantized formats as products want them: a unit's codes as bytes, and its numbers per lane.
//
// Group.offsets takes away what an offset of 128 adds. So formats with an offset get codes shifted up until it is 128, and a
// scale that is smaller by that power of two, so no result changes; or, where narrow codes are cheaper, a part of Group.offsets.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {

// One unit, and what goes ahead of its eight. k plays no part in where they are.
template <Format format>
struct Unit {
  static constexpr TileLayout at = tile_layout(format, 0);
  const uint8_t* codes;
  const uint8_t* super;

  Unit(const uint8_t* tile, size_t unit) : codes(tile + at.unit(unit)), super(tile + at.super_scales(unit)) {}
  const uint8_t* upper() const { return codes + at.upper; }
  const uint8_t* scales() const { return codes + at.scales; }
  const uint8_t* minima() const { return codes + at.minima; }
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

// The bits of a code as stored, and by how many an offset is shifted to be 128.
constexpr int stored_bits(Format format) {
  return format == Format::q8_0 ? 8 : format == Format::q6_k ? 6 : has_fifth_bits(format) ? 5 : 4;
}
constexpr int offset_shift(Format format) { return has_minima(format) ? 0 : 8 - stored_bits(format); }

// By how many bits codes are shifted, and the bits they then have.
constexpr int code_shift(Format format) { return kWideCodesAreFree ? offset_shift(format) : 0; }
constexpr int code_bits(Format format) { return stored_bits(format) + code_shift(format); }
constexpr float code_step(Format format) { return 1.0f / static_cast<float>(1 << code_shift(format)); }

// Byte 4 × lane + t of vector i becomes input 4 i + t.
template <Format format>
inline void unpack_codes(const Unit<format>& unit, u8x64 (&codes)[8]) {
  if constexpr (format == Format::q8_0) {
    for (int i = 0; i < 8; ++i) codes[i] = load_codes(unit.codes + 64 * i);
    return;
  }
  constexpr int shift = code_shift(format);
  constexpr uint8_t mask = 15 << shift;
  for (int i = 0; i < 4; ++i) {
    const u8x64 nibbles = load_codes(unit.codes + 64 * i);
    codes[i] = bits<shift>(nibbles, mask);
    codes[4 + i] = bits<shift - 4>(nibbles, mask);
  }
  if constexpr (has_fifth_bits(format)) {
    uint64_t fifth[8];
    __builtin_memcpy(fifth, unit.upper(), 64);
    for (int i = 0; i < 8; ++i) codes[i] = with_bit(codes[i], fifth[i], 16 << shift);
  }
  if constexpr (format == Format::q6_k) {
    for (int half = 0; half < 2; ++half) {
      const u8x64 pairs = load_codes(unit.upper() + 64 * half);
      codes[4 * half] = either(codes[4 * half], bits<4 + shift>(pairs, 48 << shift));
      codes[4 * half + 1] = either(codes[4 * half + 1], bits<2 + shift>(pairs, 48 << shift));
      codes[4 * half + 2] = either(codes[4 * half + 2], bits<shift>(pairs, 48 << shift));
      codes[4 * half + 3] = either(codes[4 * half + 3], bits<shift - 2>(pairs, 48 << shift));
    }
  }
}

// What one step of the codes above is worth.
template <Format format>
inline void load_scales(const Unit<format>& unit, f32x16 (&scales)[2]) {
  if constexpr (format == Format::q6_k) {
    const f32x16 super = mul(load_half(unit.super), set1(code_step(format)));
    const int8_t* halves = reinterpret_cast<const int8_t*>(unit.scales());
    scales[0] = mul(super, load_i8(halves));
    scales[1] = mul(super, load_i8(halves + 16));
  } else if constexpr (is_k_quant(format)) {
    scales[0] = mul(load_half(unit.super), load_u8(unit.scales()));
  } else if constexpr (code_shift(format) != 0) {
    scales[0] = mul(load_half(unit.scales()), set1(code_step(format)));
  } else {
    scales[0] = load_half(unit.scales());
  }
}

// What is added to each of the unit's values.
template <Format format>
inline f32x16 load_minimum(const Unit<format>& unit) {
  if constexpr (is_k_quant(format)) {
    const f32x16 super = load_half(unit.super + 32);
    return sub(zero(), mul(super, load_u8(unit.minima())));
  } else {
    return load_half(unit.minima());
  }
}

}  // namespace pagoda::PAGODA_ISA
