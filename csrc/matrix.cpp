#include "matrix.h"

#include <algorithm>
#include <stdexcept>

#include "pack.h"

namespace pagoda {
namespace {

constexpr size_t kPackBytes = size_t{256} << 10;   // about so much is packed at a time

bool are_halves(const std::vector<StoredSegment>& stored) {
  return stored.size() == 2 && stored[0].format == stored[1].format && stored[0].num_rows == stored[1].num_rows;
}

}  // namespace

Format format_named(const std::string& name) {
  static const char* const names[kNumFormats] = {"F32",  "F16",  "BF16", "Q4_0", "Q4_1", "Q5_0",
                                                 "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"};
  for (int i = 0; i < kNumFormats; ++i)
    if (name == names[i]) return static_cast<Format>(i);
  throw std::invalid_argument("there is no kernel for weights of format " + name);
}

size_t stored_row_bytes(Format format, size_t k) {
  const size_t elements = block_elements(format);
  if (k == 0 || k % elements != 0)
    throw std::invalid_argument("in_features is " + std::to_string(k) + ", must be a multiple of " +
                                std::to_string(elements) + " and not 0");
  return k / elements * block_bytes(format);
}

size_t packed_bytes(Format format, size_t num_rows, size_t k) {
  stored_row_bytes(format, k);
  return (num_rows + kLanes - 1) / kLanes * tile_layout(format, k).bytes;
}

Matrix::Matrix(Threads& threads, size_t k, const std::vector<StoredSegment>& stored, const float* bias)
    : kernels_(threads.kernels()), k_(k), interleaved_(are_halves(stored) && !bias) {
  size_t bytes = 0, num_tiles = 0;
  for (const StoredSegment& segment : stored) {
    const size_t tiles = (segment.num_rows + kLanes - 1) / kLanes;
    const size_t tile_bytes = tile_layout(segment.format, k).bytes;
    segments_.push_back({segment.format, num_columns_, segment.num_rows, tiles,
                         interleaved_ ? 2 * tile_bytes : tile_bytes, nullptr, nullptr});
    bytes += packed_bytes(segment.format, segment.num_rows, k);
    num_tiles += tiles;
    num_columns_ += segment.num_rows;
  }
  const size_t tile_bytes = bytes;
  memory_ = Memory(tile_bytes + (bias ? align64(num_tiles * kLanes * sizeof(float)) : 0));

  uint8_t* next = memory_.data();
  float* next_bias = reinterpret_cast<float*>(memory_.data() + tile_bytes);
  for (size_t i = 0; i < stored.size(); ++i) {
    Segment& segment = segments_[i];
    uint8_t* tiles = next;
    segment.tiles = tiles;
    next += interleaved_ ? segment.tile_stride / 2 : segment.num_tiles * segment.tile_stride;
    const size_t at_once = std::max<size_t>(1, kPackBytes / segment.tile_stride);
    threads.each((segment.num_tiles + at_once - 1) / at_once, [&](size_t item, size_t) {
      const size_t first = item * at_once;
      pack_tiles(segment.format, stored[i].rows, stored_row_bytes(segment.format, k), stored[i].num_rows, k, first,
                 std::min(at_once, segment.num_tiles - first), tiles + first * segment.tile_stride, segment.tile_stride);
    });
    if (!bias) continue;
    std::copy_n(bias + segment.first_column, segment.num_columns, next_bias);
    segment.bias = next_bias;
    next_bias += segment.num_tiles * kLanes;
  }
}

bool Matrix::has_input_form(Form form) const {
  for (const Segment& segment : segments_)
    if (input_form(segment.format) == form) return true;
  return false;
}

void Matrix::unpack(size_t column, float scale, float* out) const {
  const Segment* segment = segments_.data();
  while (column >= segment->first_column + segment->num_columns) ++segment;
  const size_t row = column - segment->first_column;
  kernels_.unpack_row[static_cast<int>(segment->format)](segment->tiles + row / kLanes * segment->tile_stride,
                                                         row % kLanes, k_, scale, out);
}

}  // namespace pagoda
