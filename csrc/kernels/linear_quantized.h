// The quantized formats as products want them: a unit's codes as bytes, and its numbers per lane.
//
// Group.offsets takes away what an offset of 128 adds. So formats with an offset get codes shifted up until it is 128,
// and a scale that is smaller by that power of two, so no result changes; or, where narrow codes are cheaper, a part of
// Group.offsets.
#pragma once

#include "table.h"

namespace pagoda::PAGODA_ISA {

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

// A unit, unpacked.
struct Unit {
  u8x64 codes[8];       // byte 4 × lane + t of vector i is input 4 i + t
  f32x16 scales[2];     // what one step of a code is worth; the second one only where halves have their own
  f32x16 minimum;       // what is added to each value
};

template <Format format>
inline void unpack_codes(const uint8_t* unit, u8x64 (&codes)[8]) {
  if constexpr (format == Format::q8_0) {
    for (int i = 0; i < 8; ++i) codes[i] = load_codes(unit + 64 * i);
    return;
  }
  constexpr int shift = code_shift(format);
  constexpr uint8_t mask = 15 << shift;
  for (int i = 0; i < 4; ++i) {
    const u8x64 nibbles = load_codes(unit + 64 * i);
    codes[i] = bits<shift>(nibbles, mask);
    codes[4 + i] = bits<shift - 4>(nibbles, mask);
  }
  keep_order();
  const uint8_t* upper = unit + tile_layout(format, 0).upper;
  if constexpr (has_fifth_bits(format)) {
    const u8x64 fifth = load_codes(upper);
    constexpr int to = 4 + shift;
    constexpr uint8_t bit = 1 << to;
    codes[0] = with_bits<to>(codes[0], fifth, bit);
    codes[1] = with_bits<to - 1>(codes[1], fifth, bit);
    codes[2] = with_bits<to - 2>(codes[2], fifth, bit);
    codes[3] = with_bits<to - 3>(codes[3], fifth, bit);
    codes[4] = with_bits<to - 4>(codes[4], fifth, bit);
    codes[5] = with_bits<to - 5>(codes[5], fifth, bit);
    codes[6] = with_bits<to - 6>(codes[6], fifth, bit);
    codes[7] = with_bits<to - 7>(codes[7], fifth, bit);
  }
  if constexpr (format == Format::q6_k) {
    for (int half = 0; half < 2; ++half) {
      const u8x64 pairs = load_codes(upper + 64 * half);
      codes[4 * half] = with_bits<4 + shift>(codes[4 * half], pairs, 48 << shift);
      codes[4 * half + 1] = with_bits<2 + shift>(codes[4 * half + 1], pairs, 48 << shift);
      codes[4 * half + 2] = with_bits<shift>(codes[4 * half + 2], pairs, 48 << shift);
      codes[4 * half + 3] = with_bits<shift - 2>(codes[4 * half + 3], pairs, 48 << shift);
    }
  }
}

// Reads a tile's units in their order. Super-scales stay in registers: reading them again, behind the stream, disturbs
// it.
template <Format format>
class Units {
 public:
  static constexpr TileLayout kLayout = tile_layout(format, 0);

  explicit Units(const uint8_t* tile) : at_(tile), super_scale_(zero()), super_minimum_(zero()) {}

  const uint8_t* position() const { return at_; }

  // Unit `index`, the one after the last that was read.
  void next(size_t index, Unit& unit) {
    if constexpr (is_k_quant(format)) {
      if (index % 8 == 0) read_super();
    }
    unpack_codes<format>(at_, unit.codes);
    keep_order();
    const uint8_t* scales = at_ + kLayout.scales;
    if constexpr (has_half_scales(format)) {
      unit.scales[0] = mul(super_scale_, load_i8(reinterpret_cast<const int8_t*>(scales)));
      unit.scales[1] = mul(super_scale_, load_i8(reinterpret_cast<const int8_t*>(scales) + kLanes));
    } else if constexpr (is_k_quant(format)) {
      unit.scales[0] = mul(super_scale_, load_u8(scales));
      unit.minimum = mul(super_minimum_, load_u8(at_ + kLayout.minima));
    } else {
      unit.scales[0] = load_scale(scales);
      if constexpr (has_minima(format)) unit.minimum = load_half(at_ + kLayout.minima);
    }
    at_ += kLayout.unit_bytes;
  }

 private:
  static f32x16 load_scale(const uint8_t* p) {
    if constexpr (code_shift(format) == 0) return load_half(p);
    else return scale_by_power(load_half(p), set1(-code_shift(format)));
  }
  // Super-minima are subtracted.
  void read_super() {
    super_scale_ = load_scale(at_);
    if constexpr (has_minima(format)) super_minimum_ = sub(zero(), load_half(at_ + 32));
    at_ += kLayout.super_bytes;
  }

  const uint8_t* at_;
  f32x16 super_scale_, super_minimum_;
};

}  // namespace pagoda::PAGODA_ISA
