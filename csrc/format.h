// Number formats of weights: how files store them, and how they lie in memory once packed.
//
// Packed, a matrix [n, k] is cut into tiles of 16 outputs (the last one padded with zeros). A tile is contiguous; inside
// it the planes of its format follow each other, each over all of k, each starting at a multiple of 64 bytes. A lane is
// one of the 16 outputs; a unit is 16 outputs × 32 inputs.
//
//   f32          [k][16] float
//   f16          [k][16] half
//   bf16         [k / 2][16][2]: pairs of inputs side by side, as dot products of pairs want them; an odd k is padded
//   nibbles      [k / 32] units of 4 × 64 bytes. Byte 4 × lane + t of vector j has input 4 j + t in its lower half and
//                input 16 + 4 j + t in its upper half
//   bytes        [k / 32] units of 8 × 64 bytes. Byte 4 × lane + t of vector i is input 4 i + t
//   fifth bits   [k / 32] units of 8 × 64 bits. Bit 4 × lane + t of word i belongs to input 4 i + t
//   upper pairs  [k / 32] units of 2 × 64 bytes. Byte 4 × lane + t of vector j has in bits 2 p, 2 p + 1 the upper two bits
//                of input 16 j + 4 p + t
//   scales       one number per lane and group of inputs: [groups][16]
//
//   format  planes
//   q4_0    nibbles; scales half per 32                        value = scale × (code − 8)
//   q4_1    nibbles; scales half per 32; minima half per 32    value = scale × code + minimum
//   q5_0    nibbles; fifth bits; scales half per 32            value = scale × (code − 16)
//   q5_1    nibbles; fifth bits; scales; minima                value = scale × code + minimum
//   q8_0    bytes, 128 added to make them unsigned; scales     value = scale × (code − 128)
//   q4_k    nibbles; scales u8 per 32; minima u8 per 32; super-scales half per 256; super-minima half per 256
//                                              value = (super × scale) × code − super-minimum × minimum, in float32
//   q5_k    nibbles; fifth bits; then as q4_k
//   q6_k    nibbles; upper pairs; scales i8 per 16; super-scales half per 256
//                                              value = (super × scale) × (code − 32)
// Functions here are static: these headers are compiled for several instruction sets, and a shared copy could be any of theirs.
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

// Byte offsets of the planes of one tile with k inputs. A plane that the format lacks has the offset of the next one.
struct TileLayout {
  size_t codes;         // numbers, nibbles or bytes
  size_t upper;         // fifth bits or upper pairs
  size_t scales;
  size_t minima;
  size_t super_scales;
  size_t super_minima;
  size_t bytes;         // of the whole tile
};

static inline constexpr TileLayout tile_layout(Format format, size_t k) {
  size_t codes = 0, upper = 0, scales = 0, minima = 0, super_scales = 0, super_minima = 0;
  const size_t units = k / 32;
  switch (format) {
    case Format::f32: codes = k * 64; break;
    case Format::f16: codes = k * 32; break;
    case Format::bf16: codes = (k + 1) / 2 * 64; break;
    case Format::q4_0: codes = units * 256, scales = units * 32; break;
    case Format::q4_1: codes = units * 256, scales = units * 32, minima = units * 32; break;
    case Format::q5_0: codes = units * 256, upper = units * 64, scales = units * 32; break;
    case Format::q5_1: codes = units * 256, upper = units * 64, scales = units * 32, minima = units * 32; break;
    case Format::q8_0: codes = units * 512, scales = units * 32; break;
    case Format::q4_k:
      codes = units * 256, scales = units * 16, minima = units * 16;
      super_scales = units / 8 * 32, super_minima = units / 8 * 32;
      break;
    case Format::q5_k:
      codes = units * 256, upper = units * 64, scales = units * 16, minima = units * 16;
      super_scales = units / 8 * 32, super_minima = units / 8 * 32;
      break;
    case Format::q6_k:
      codes = units * 256, upper = units * 128, scales = units * 32, super_scales = units / 8 * 32;
      break;
  }
  TileLayout layout{};
  layout.codes = 0;
  layout.upper = align64(codes);
  layout.scales = layout.upper + align64(upper);
  layout.minima = layout.scales + align64(scales);
  layout.super_scales = layout.minima + align64(minima);
  layout.super_minima = layout.super_scales + align64(super_scales);
  layout.bytes = layout.super_minima + align64(super_minima);
  return layout;
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
