#include <algorithm>
#include <cstring>

#include "commands.h"

namespace pagoda {
namespace {

constexpr size_t kBlockBytes = size_t{256} << 10;   // of weights in an item: fits a core's second cache, long to stream
constexpr size_t kItemsPerWorker = 4;              // at least, so that none waits long for another
constexpr size_t kTogether = 6;                    // twice the tiles that dense kernels take at a time; even
constexpr size_t kPanelRows = 64;                  // of gate and up at a time

// About as many tiles as an item should have.
size_t tiles_at_once(const Matrix& weight, size_t workers) {
  size_t tiles = 0;
  for (const Segment& segment : weight.segments()) tiles += segment.num_tiles;
  const size_t tile_bytes = (weight.num_bytes() + tiles - 1) / tiles;
  return std::max<size_t>(1, std::min(kBlockBytes / tile_bytes, tiles / (kItemsPerWorker * workers)));
}

struct Block {
  const Segment* segment;
  size_t first_tile;
  size_t num_tiles;
};

// A segment's tiles in blocks of nearly the same size, as many for each worker.
void cut(const Segment& segment, size_t at_once, size_t workers, std::vector<Block>& blocks) {
  const size_t unit = input_form(segment.format) == Form::q8 ? 1 : kTogether;
  const size_t units = (segment.num_tiles + unit - 1) / unit;
  const size_t wanted = (segment.num_tiles + std::max(at_once, unit) - 1) / std::max(at_once, unit);
  const size_t count = std::min(units, (wanted + workers - 1) / workers * workers);
  for (size_t i = 0; i < count; ++i) {
    const size_t first = units * i / count * unit, end = std::min(units * (i + 1) / count * unit, segment.num_tiles);
    blocks.push_back({&segment, first, end - first});
  }
}

Rows rows_from(Rows x, size_t first) {
  if (x.f32) x.f32 += first * x.f32_stride;
  if (x.bf16) x.bf16 += first * x.bf16_stride;
  if (x.codes) x.codes += first * x.code_stride, x.groups += first * x.group_stride;
  return x;
}

// Tiles of a segment times rows of x; y: of the first row and the first tile's first lane.
void multiply(const Kernels& kernels, const Segment& segment, size_t first_tile, size_t num_tiles, size_t k, const Rows& x,
              size_t num_rows, float* y, size_t y_stride) {
  const size_t columns = std::min(num_tiles * kLanes, segment.num_columns - first_tile * kLanes);
  kernels.linear[static_cast<int>(segment.format)](
      {segment.tiles + first_tile * segment.tile_stride, segment.tile_stride, num_tiles, columns, k, x, num_rows, y, y_stride,
       segment.bias ? segment.bias + first_tile * kLanes : nullptr});
}

void require_input(const StepTensor& x, const Matrix& weight) {
  require(x.width == weight.k(), "linear: x is not as wide as the matrix has inputs");
  require(!weight.has_input_form(Form::f32) || x.f32, "linear: x must have the form f32");
  require(!weight.has_input_form(Form::bf16) || x.bf16, "linear: x must have the form bf16");
  require(!weight.has_input_form(Form::q8) || x.codes, "linear: x must have the form q8");
}

// Where the rows of a product go, and which of x they are.
struct Product {
  const Kernels& kernels;
  StepTensor x;
  const Matrix& weight;
  float* y;
  size_t y_stride;
};

class Linear : public Command {
 public:
  Linear(const Product& product, size_t workers) : product_(product) {
    require_input(product.x, product.weight);
    const size_t at_once = tiles_at_once(product.weight, workers);
    for (const Segment& segment : product.weight.segments()) cut(segment, at_once, workers, blocks_);
  }

  size_t num_items(const Step& step) const override { return step.rows(product_.x.rows_of) ? blocks_.size() : 0; }
  void run(const Step& step, size_t item, uint8_t*) const override {
    run_rows(item, 0, step.rows(product_.x.rows_of));
  }

 protected:
  void run_rows(size_t item, size_t first_row, size_t num_rows) const {
    const Block& block = blocks_[item];
    multiply(product_.kernels, *block.segment, block.first_tile, block.num_tiles, product_.weight.k(),
             rows_from(product_.x.rows(), first_row), num_rows,
             product_.y + block.segment->first_column + block.first_tile * kLanes, product_.y_stride);
  }

  Product product_;
  std::vector<Block> blocks_;
};

// The slice's rows only, at the beginning of y.
class LogitsLinear final : public Linear {
 public:
  using Linear::Linear;
  size_t num_items(const Step& step) const override { return step.num_sliced_rows ? blocks_.size() : 0; }
  void run(const Step& step, size_t item, uint8_t*) const override {
    run_rows(item, step.first_logit_row, step.num_sliced_rows);
  }
};

// Gate and up of a block of columns stay in the worker's scratch.
class GatedLinear final : public Command {
 public:
  GatedLinear(const Kernels& kernels, const StepTensor& out, const StepTensor& x, const Matrix& weight, Activation kind,
              size_t workers)
      : kernels_(kernels), out_(out), x_(x), weight_(weight), kind_(kind) {
    require_input(x, weight);
    require(weight.segments().size() == 2 && weight.segments()[0].num_columns == weight.segments()[1].num_columns,
            "gated_linear: weight must be of two segments with the same number of rows");
    require(out.width * 2 == weight.num_columns(), "gated_linear: weight must have twice as many outputs as out is wide");
    require(!out.codes || out.width % kGroup == 0, "gated_linear: with q8, out must be a multiple of 32 wide");
    // Of either half; whole groups of quantized codes.
    const size_t at_once = tiles_at_once(weight, workers);
    const size_t multiple = 2 * (at_once < kTilesTogether ? 1 : kTilesTogether);
    tiles_at_once_ = std::max<size_t>(1, at_once / 2 / multiple) * multiple;
  }

  size_t num_items(const Step& step) const override {
    return step.rows(x_.rows_of) ? (gate().num_tiles + tiles_at_once_ - 1) / tiles_at_once_ : 0;
  }
  size_t scratch_bytes() const override { return kPanelRows * row_bytes(2 * columns_at_once() * sizeof(float)); }
  void run(const Step& step, size_t item, uint8_t* scratch) const override {
    const size_t first_tile = item * tiles_at_once_, column = first_tile * kLanes;
    const size_t num_tiles = std::min(tiles_at_once_, gate().num_tiles - first_tile);
    const size_t columns = std::min(columns_at_once(), out_.width - column);
    const size_t stride = row_bytes(2 * columns_at_once() * sizeof(float)) / sizeof(float);
    float* const gates = reinterpret_cast<float*>(scratch);
    // Turn by turn, 16 of each, or first one half and then the other.
    const bool interleaved = weight_.is_interleaved();
    float* const ups = gates + (interleaved ? kLanes : columns_at_once());
    const size_t step_16 = interleaved ? 2 * kLanes : kLanes;
    const size_t rows = step.rows(x_.rows_of);
    for (size_t first = 0; first < rows; first += kPanelRows) {
      const size_t count = std::min(kPanelRows, rows - first);
      const Rows x = rows_from(x_.rows(), first);
      if (interleaved) {
        multiply(kernels_, weight_.interleaved(), 2 * first_tile, 2 * num_tiles, weight_.k(), x, count, gates, stride);
      } else {
        multiply(kernels_, gate(), first_tile, num_tiles, weight_.k(), x, count, gates, stride);
        multiply(kernels_, up(), first_tile, num_tiles, weight_.k(), x, count, ups, stride);
      }
      for (size_t r = 0; r < count; ++r)
        kernels_.gated_activation(gates + r * stride, ups + r * stride, step_16, columns, kind_,
                                  columns_from(out_.row(first + r), column));
    }
  }

 private:
  const Segment& gate() const { return weight_.segments()[0]; }
  const Segment& up() const { return weight_.segments()[1]; }
  size_t columns_at_once() const { return tiles_at_once_ * kLanes; }

  const Kernels& kernels_;
  StepTensor out_;
  StepTensor x_;
  const Matrix& weight_;
  Activation kind_;
  size_t tiles_at_once_;
};

}  // namespace

RowOut columns_from(RowOut row, size_t column) {
  if (row.f32) row.f32 += column;
  if (row.bf16) row.bf16 += column;
  if (row.codes) row.codes += column, row.groups += column / kGroup;
  return row;
}

CommandPtr linear(const Kernels& kernels, const StepTensor& out, const StepTensor& x, const Matrix& weight,
                  size_t workers) {
  require(out.f32 && !out.bf16 && !out.codes, "linear: out must have the form f32 only");
  require(out.width == weight.num_columns(), "linear: out is not as wide as the matrix has outputs");
  return std::make_unique<Linear>(Product{kernels, x, weight, out.f32, out.f32_stride()}, workers);
}

CommandPtr gated_linear(const Kernels& kernels, const StepTensor& out, const StepTensor& x, const Matrix& weight,
                        Activation kind, size_t workers) {
  return std::make_unique<GatedLinear>(kernels, out, x, weight, kind, workers);
}

CommandPtr logits_linear(const Kernels& kernels, float* logits, const StepTensor& x, const Matrix& head, size_t workers) {
  require(x.rows_of == RowsOf::logit_rows, "logits_linear: x must be selected rows");
  return std::make_unique<LogitsLinear>(Product{kernels, x, head, logits, head.num_columns()}, workers);
}

}  // namespace pagoda
