// Number formats of weights: how files store them, and how they lie in memory once packed.
//
// Packed, a matrix [n, k] is cut into tiles of 16 outputs (the last one padded with zeros), each starting at a multiple
// of 64 bytes. A lane is one of the 16 outputs. A product reads a tile's bytes in their order, without a jump: that is
// what lets the processor's prefetchers keep up with memory (planes of codes and scales apart gave 24 GB/s where this
// gives 32).
//
//   f32          [k][16] float
//   f16          [k][16] half
//   bf16         [k / 2][16][2]: pairs of inputs side by side, as dot products of pairs want them; an odd k is padded
//
// The others are units of 16 outputs × 32 inputs, one after the other. A unit's parts, in this order, where a format
// has them:
//
//   nibbles      4 × 64 bytes. Byte 4 × lane + t of vector j has input 4 j + t in its lower half and input 16 + 4 j + t
//                in its upper half
//   bytes        8 × 64 bytes. Byte 4 × lane + t of vector i is input 4 i + t
//   fifth bits   64 bytes. Bit i of byte 4 × lane + t belongs to input 4 i + t
//   upper pairs  2 × 64 bytes. Byte 4 × lane + t of vector j has in bits 2 p, 2 p + 1 the upper two bits of input
//                16 j + 4 p + t
//   scales       one number per lane, or two (of inputs 0 … 15, then of 16 … 31)
//   minima       one number per lane
//
// K-quants have one half per lane and 8 units (super-scales), or two (super-minima), ahead of those units.
//
//   q4_0    nibbles; scales half                           value = scale × (code − 8)
//   q4_1    nibbles; scales half; minima half              value = scale × code + minimum
//   q5_0    nibbles; fifth bits; scales half               value = scale × (code − 16)
//   q5_1    nibbles; fifth bits; scales half; minima half  value = scale × code + minimum
//   q8_0    bytes, 128 added to make them unsigned; scales half            value = scale × (code − 128)
//   q4_k    super-scales, super-minima; nibbles; scales u8; minima u8
//                                              value = (super × scale) × code − super-minimum × minimum, in float32
//   q5_k    super-scales, super-minima; nibbles; fifth bits; scales u8; minima u8                           as q4_k
//   q6_k    super-scales; nibbles; upper pairs; scales i8, two             value = (super × scale) × (code − 32)
// Functions here are static: these headers are compiled for several instruction sets, and a shared copy could be any of
// theirs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace pagoda {

enum class Format : uint8_t { f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k };
inline constexpr int kNumFormats = 11;
inline constexpr size_t kLanes = 16;   // outputs of a tile
inline constexpr size_t kGroup = 32;   // inputs that share a scale of a quantized activation

// What a product with a matrix in that format multiplies it with.
enum class Form : uint8_t { f32, bf16, q8 };

static inline constexpr size_t align64(size_t bytes) { return (bytes + 63) / 64 * 64; }

static inline constexpr Form input_form(Format format) {
  switch (format) {
    case Format::f32:
    case Format::f16:
      return Form::f32;
    case Format::bf16:
      return Form::bf16;
    default:
      return Form::q8;
  }
}

// Where things are in a tile. Of formats without units only `bytes` is set. A part that a format lacks has the offset
// of the next one.
struct TileLayout {
  size_t upper;         // fifth bits or upper pairs, scales and minima: byte offsets in a unit, which codes begin
  size_t scales;
  size_t minima;
  size_t unit_bytes;
  size_t super_bytes;   // super-scales and super-minima, ahead of every 8 units
  size_t bytes;         // of the whole tile

  constexpr size_t unit(size_t u) const { return u * unit_bytes + (u / 8 + 1) * super_bytes; }
  constexpr size_t super_scales(size_t u) const { return u / 8 * (8 * unit_bytes + super_bytes); }
  constexpr size_t super_minima(size_t u) const { return super_scales(u) + 32; }
};

static inline constexpr TileLayout tile_layout(Format format, size_t k) {
  size_t codes = 256, upper = 0, scales = 32, minima = 0, super = 0;
  switch (format) {
    case Format::f32: return {0, 0, 0, 0, 0, k * 64};
    case Format::f16: return {0, 0, 0, 0, 0, align64(k * 32)};
    case Format::bf16: return {0, 0, 0, 0, 0, (k + 1) / 2 * 64};
    case Format::q4_0: break;
    case Format::q4_1: minima = 32; break;
    case Format::q5_0: upper = 64; break;
    case Format::q5_1: upper = 64, minima = 32; break;
    case Format::q8_0: codes = 512; break;
    case Format::q4_k: scales = 16, minima = 16, super = 64; break;
    case Format::q5_k: upper = 64, scales = 16, minima = 16, super = 64; break;
    case Format::q6_k: upper = 128, super = 32; break;
  }
  const size_t unit = codes + upper + scales + minima, units = k / 32;
  return {codes, codes + upper, codes + upper + scales, unit, super, align64(units * unit + units / 8 * super)};
}

// Elements that share a block in files, and the bytes of a block (ggml's block_q4_0 and so on).
static inline constexpr size_t block_elements(Format format) {
  if (format == Format::f32 || format == Format::f16 || format == Format::bf16) return 1;
  return format >= Format::q4_k ? 256 : 32;
}

static inline constexpr size_t block_bytes(Format format) {
  constexpr size_t bytes[kNumFormats] = {4, 2, 2, 18, 20, 22, 24, 34, 144, 176, 210};
  return bytes[static_cast<int>(format)];
}

}  // namespace pagoda
