// Packing is copying with a stride: the units of format.h were chosen so that four bytes of a stored row become one
// lane's four bytes of a vector. The loops go lane by lane within a block, so that each cache line of the 16 rows is read
// while it is near, and write a few KB at a time. Stored rows are not aligned. Words are little-endian.
#include "pack.h"

#include <cstring>

namespace pagoda {
namespace {

constexpr uint32_t kLowNibbles = 0x0F0F0F0Fu, kHighNibbles = 0xF0F0F0F0u;
constexpr uint32_t kLowPairs = 0x03030303u, kLowSixes = 0x3F3F3F3Fu;

inline uint32_t load4(const uint8_t* p) { uint32_t x; std::memcpy(&x, p, 4); return x; }
inline void store4(uint8_t* p, uint32_t x) { std::memcpy(p, &x, 4); }
inline void copy2(uint8_t* to, const uint8_t* from) { std::memcpy(to, from, 2); }

// The rows of one tile, and where their units go.
struct TileRows {
  const uint8_t* stored;
  size_t row_bytes;
  size_t lanes;
  size_t k;
  uint8_t* tile;
  TileLayout at;

  const uint8_t* row(size_t lane) const { return stored + lane * row_bytes; }
  uint8_t* unit(size_t u) const { return tile + at.unit(u); }
};

// Numbers of `Bytes` each, `count` of them in a row: [count][16].
template <size_t Bytes>
void transpose(const TileRows& rows, size_t count) {
  constexpr size_t kStep = 128 / Bytes;
  for (size_t begin = 0; begin < count; begin += kStep) {
    const size_t end = begin + kStep < count ? begin + kStep : count;
    for (size_t lane = 0; lane < rows.lanes; ++lane) {
      const uint8_t* from = rows.row(lane) + begin * Bytes;
      uint8_t* to = rows.tile + (begin * kLanes + lane) * Bytes;
      for (size_t i = begin; i < end; ++i, from += Bytes, to += kLanes * Bytes) std::memcpy(to, from, Bytes);
    }
  }
}

void pack_bf16(const TileRows& rows) {
  transpose<4>(rows, rows.k / 2);
  if (rows.k % 2 == 0) return;
  uint8_t* last = rows.tile + rows.k / 2 * 64;
  std::memset(last, 0, 64);
  for (size_t lane = 0; lane < rows.lanes; ++lane) copy2(last + 4 * lane, rows.row(lane) + (rows.k - 1) * 2);
}

// Four vectors of 16 dwords from 16 bytes of one row, eight from 32.
template <int Vectors>
inline void copy_codes(uint8_t* unit, size_t lane, const uint8_t* from, uint32_t flip) {
  for (int i = 0; i < Vectors; ++i) store4(unit + 64 * i + 4 * lane, load4(from + 4 * i) ^ flip);
}

// Even bits to the lower half, odd ones to the upper half (Hacker's Delight, 7-2).
inline uint32_t unshuffle(uint32_t x) {
  uint32_t t = (x ^ x >> 1) & 0x22222222u;
  x ^= t ^ t << 1;
  t = (x ^ x >> 2) & 0x0C0C0C0Cu;
  x ^= t ^ t << 2;
  t = (x ^ x >> 4) & 0x00F000F0u;
  x ^= t ^ t << 4;
  t = (x ^ x >> 8) & 0x0000FF00u;
  return x ^ t ^ t << 8;
}

// Blocks of 32: a scale; a minimum if there is one; fifth bits if there are; nibbles or bytes.
template <bool Minima, bool FifthBits, bool Bytes>
void pack_blocks_of_32(const TileRows& rows) {
  constexpr size_t kFifthBits = Minima ? 4 : 2, kCodes = kFifthBits + (FifthBits ? 4 : 0);
  constexpr size_t kBlock = kCodes + (Bytes ? 32 : 16);
  for (size_t u = 0; u < rows.k / 32; ++u) {
    uint8_t* unit = rows.unit(u);
    for (size_t lane = 0; lane < rows.lanes; ++lane) {
      const uint8_t* block = rows.row(lane) + u * kBlock;
      copy2(unit + rows.at.scales + 2 * lane, block);
      if (Minima) copy2(unit + rows.at.minima + 2 * lane, block + 2);
      // Bit 4 i + t becomes bit i of byte t.
      if (FifthBits) store4(unit + rows.at.upper + 4 * lane, unshuffle(unshuffle(load4(block + kFifthBits))));
      if (Bytes) copy_codes<8>(unit, lane, block + kCodes, 0x80808080u);
      else copy_codes<4>(unit, lane, block + kCodes, 0);
    }
  }
}

// 32 bytes whose low nibbles are the inputs of one unit and whose high ones are those of another.
inline void copy_nibbles(uint8_t* low_unit, uint8_t* high_unit, size_t lane, const uint8_t* from) {
  for (int j = 0; j < 4; ++j) {
    const uint32_t a = load4(from + 4 * j), b = load4(from + 16 + 4 * j);
    store4(low_unit + 64 * j + 4 * lane, (a & kLowNibbles) | (b & kLowNibbles) << 4);
    store4(high_unit + 64 * j + 4 * lane, (a >> 4 & kLowNibbles) | (b & kHighNibbles));
  }
}

// Byte i of each 4 to `to` + i × step.
inline void spread_bytes(uint8_t* to, size_t step, uint32_t bytes) {
  for (size_t i = 0; i < 4; ++i) to[i * step] = static_cast<uint8_t>(bytes >> 8 * i);
}

// Bit c of byte r becomes bit r of byte c.
inline uint64_t transpose_bits(uint64_t x) {
  uint64_t t = (x ^ x >> 7) & 0x00AA00AA00AA00AAull;
  x ^= t ^ t << 7;
  t = (x ^ x >> 14) & 0x0000CCCC0000CCCCull;
  x ^= t ^ t << 14;
  t = (x ^ x >> 28) & 0x00000000F0F0F0F0ull;
  return x ^ t ^ t << 28;
}

// The 32 bytes of fifth bits of a Q5_K block, of one lane: bit u of byte 4 i + t becomes, in unit u, bit i of byte t.
void spread_fifth_bits(const uint8_t* bytes, uint8_t* upper, size_t step) {
  for (int t = 0; t < 4; ++t) {
    uint64_t eight = 0;
    for (int i = 0; i < 8; ++i) eight |= static_cast<uint64_t>(bytes[4 * i + t]) << 8 * i;
    const uint64_t of_units = transpose_bits(eight);
    for (int u = 0; u < 8; ++u) upper[u * step + t] = static_cast<uint8_t>(of_units >> 8 * u);
  }
}

// Blocks of 256: super-scale, super-minimum, 12 bytes of scales and minima, 32 of fifth bits (Q5_K), 128 of nibbles.
template <bool FifthBits>
void pack_q4_k(const TileRows& rows) {
  constexpr size_t kCodes = FifthBits ? 48 : 16, kBlock = kCodes + 128;
  const size_t step = rows.at.unit_bytes;
  for (size_t b = 0; b < rows.k / 256; ++b) {
    uint8_t* units = rows.unit(8 * b);
    for (size_t lane = 0; lane < rows.lanes; ++lane) {
      const uint8_t* block = rows.row(lane) + b * kBlock;
      copy2(rows.tile + rows.at.super_scales(8 * b) + 2 * lane, block);
      copy2(rows.tile + rows.at.super_minima(8 * b) + 2 * lane, block + 2);
      // Six bits each: the first four whole; of the last four the upper two bits are above those.
      const uint32_t first = load4(block + 4), second = load4(block + 8), third = load4(block + 12);
      uint8_t* scales = units + rows.at.scales + lane;
      spread_bytes(scales, step, first & kLowSixes);
      spread_bytes(scales + 4 * step, step, (third & kLowNibbles) | (first >> 6 & kLowPairs) << 4);
      uint8_t* minima = units + rows.at.minima + lane;
      spread_bytes(minima, step, second & kLowSixes);
      spread_bytes(minima + 4 * step, step, (third >> 4 & kLowNibbles) | (second >> 6 & kLowPairs) << 4);
      for (int q = 0; q < 4; ++q)
        copy_nibbles(units + 2 * q * step, units + (2 * q + 1) * step, lane, block + kCodes + 32 * q);
      if (FifthBits) spread_fifth_bits(block + 16, units + rows.at.upper + 4 * lane, step);
    }
  }
}

// Blocks of 256: 128 bytes of low nibbles, 64 of upper pairs, 16 scales, super-scale. Each half has four units: the
// nibbles of the first and third are the same bytes' low and high halves, as are those of the second and fourth.
void pack_q6_k(const TileRows& rows) {
  const size_t step = rows.at.unit_bytes;
  for (size_t b = 0; b < rows.k / 256; ++b) {
    for (size_t lane = 0; lane < rows.lanes; ++lane) {
      const uint8_t* block = rows.row(lane) + b * 210;
      copy2(rows.tile + rows.at.super_scales(8 * b) + 2 * lane, block + 208);
      for (int i = 0; i < 16; ++i) rows.unit(8 * b + i / 2)[rows.at.scales + i % 2 * kLanes + lane] = block[192 + i];
      for (int half = 0; half < 2; ++half) {
        uint8_t* units = rows.unit(8 * b + 4 * half);
        copy_nibbles(units, units + 2 * step, lane, block + 64 * half);
        copy_nibbles(units + step, units + 3 * step, lane, block + 64 * half + 32);
        uint8_t* upper = units + rows.at.upper + 4 * lane;
        for (int j = 0; j < 2; ++j) {
          uint32_t pairs[4];  // of inputs 16 j + 4 p …, two bits for each of the four units
          for (int p = 0; p < 4; ++p) pairs[p] = load4(block + 128 + 32 * half + 16 * j + 4 * p);
          for (int u = 0; u < 4; ++u) {
            uint32_t lane_bits = 0;
            for (int p = 0; p < 4; ++p) lane_bits |= (pairs[p] >> 2 * u & kLowPairs) << 2 * p;
            store4(upper + step * u + 64 * j, lane_bits);
          }
        }
      }
    }
  }
}

void pack_tile(Format format, const TileRows& rows) {
  switch (format) {
    case Format::f32: return transpose<4>(rows, rows.k);
    case Format::f16: return transpose<2>(rows, rows.k);
    case Format::bf16: return pack_bf16(rows);
    case Format::q4_0: return pack_blocks_of_32<false, false, false>(rows);
    case Format::q4_1: return pack_blocks_of_32<true, false, false>(rows);
    case Format::q5_0: return pack_blocks_of_32<false, true, false>(rows);
    case Format::q5_1: return pack_blocks_of_32<true, true, false>(rows);
    case Format::q8_0: return pack_blocks_of_32<false, false, true>(rows);
    case Format::q4_k: return pack_q4_k<false>(rows);
    case Format::q5_k: return pack_q4_k<true>(rows);
    case Format::q6_k: return pack_q6_k(rows);
  }
}

}  // namespace

void pack_tiles(Format format, const uint8_t* stored, size_t row_bytes, size_t num_rows, size_t k, size_t first_tile,
                size_t num_tiles, uint8_t* tiles, size_t tile_stride) {
  const TileLayout layout = tile_layout(format, k);
  for (size_t t = 0; t < num_tiles; ++t) {
    const size_t first_row = (first_tile + t) * kLanes;
    const size_t lanes = num_rows - first_row < kLanes ? num_rows - first_row : kLanes;
    uint8_t* tile = tiles + t * tile_stride;
    if (lanes < kLanes) std::memset(tile, 0, layout.bytes);
    pack_tile(format, {stored + first_row * row_bytes, row_bytes, lanes, k, tile, layout});
  }
}

}  // namespace pagoda
