// A weight matrix packed into tiles, of segments that are stacked along their outputs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "format.h"
#include "memory.h"
#include "threads.h"

namespace pagoda {

Format format_named(const std::string& name);   // throws std::invalid_argument

// Rows as a file has them: [num_rows, stored_row_bytes(format, k)].
struct StoredSegment {
  Format format;
  const uint8_t* rows;
  size_t num_rows;
};

size_t stored_row_bytes(Format format, size_t k);

// Throws std::invalid_argument where k is not a whole number of the format's blocks.
size_t packed_bytes(Format format, size_t num_rows, size_t k);

// Outputs first_column … first_column + num_columns − 1 of the matrix, which need not begin at a multiple of 16.
struct Segment {
  Format format;
  size_t first_column;
  size_t num_columns;
  size_t num_tiles;
  size_t tile_stride;  // bytes from one tile to the next
  const uint8_t* tiles;
  const float* bias;   // padded to whole tiles; or null
};

class Matrix {
 public:
  // bias: one number for each output; or null.
  Matrix(Threads& threads, size_t k, const std::vector<StoredSegment>& stored, const float* bias);

  size_t k() const { return k_; }
  size_t num_columns() const { return num_columns_; }
  size_t num_bytes() const { return memory_.bytes(); }
  const std::vector<Segment>& segments() const { return segments_; }
  bool has_input_form(Form form) const;
  // Whether the tiles of its two segments, such as gate and up, take turns in memory: one stream to read.
  bool is_interleaved() const { return interleaved_; }
  // Then: all their tiles as one segment, of whole tiles.
  Segment interleaved() const {
    const Segment& first = segments_[0];
    return {first.format, 0, 2 * first.num_tiles * kLanes, 2 * first.num_tiles, first.tile_stride / 2, first.tiles, nullptr};
  }

  // Weights of one output times `scale`, [k]. No bias.
  void unpack(size_t column, float scale, float* out) const;

 private:
  const Kernels& kernels_;
  size_t k_;
  size_t num_columns_ = 0;
  bool interleaved_;
  Memory memory_;
  std::vector<Segment> segments_;
};

}  // namespace pagoda
