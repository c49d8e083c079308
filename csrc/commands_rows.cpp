#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <utility>

#include "row_command.h"

namespace pagoda {
namespace {

// Where a row is worked out before it is written in its other forms.
float* float_row(const RowOut& out, float* scratch) { return out.f32 ? out.f32 : scratch; }

void write_other_forms(const Kernels& kernels, const float* x, size_t n, RowOut out) {
  out.f32 = nullptr;
  if (out.bf16 || out.codes) kernels.write_row(x, n, out);
}

CommandPtr embed_rows(const Kernels& kernels, const StepTensor& out, const Matrix& table, float scale,
                      const int64_t* Step::*rows) {
  require(out.width == table.k(), "embed: out is not as wide as the table");
  return by_rows(RowsOf::tokens, out.width, out.width * sizeof(float),
                 [&kernels, out, &table, scale, rows](const Step& step, size_t r, float* scratch) {
                   const RowOut row = out.row(r);
                   float* const x = float_row(row, scratch);
                   table.unpack(static_cast<size_t>((step.*rows)[r]), scale, x);
                   write_other_forms(kernels, x, out.width, row);
                 });
}

}  // namespace

void require(bool holds, const char* what) {
  if (!holds) throw std::invalid_argument(what);
}

CommandPtr embed(const Kernels& kernels, const StepTensor& out, const Matrix& table, float scale) {
  return embed_rows(kernels, out, table, scale, &Step::input_ids);
}

CommandPtr embed_positions(const Kernels& kernels, const StepTensor& out, const Matrix& table) {
  return embed_rows(kernels, out, table, 1.0f, &Step::positions);
}

CommandPtr add(const Kernels& kernels, const StepTensor& out, const StepTensor& x, const StepTensor& y) {
  require(x.f32 && y.f32, "add: x and y must have the form f32");
  require(x.width == out.width && y.width == out.width, "add: widths differ");
  require(x.rows_of == y.rows_of, "add: numbers of rows differ");
  return by_rows(x.rows_of, out.width, out.width * sizeof(float),
                 [&kernels, out, x, y](const Step&, size_t r, float* scratch) {
                   const RowOut row = out.row(r);
                   float* const sum = float_row(row, scratch);
                   kernels.add(x.row(r).f32, y.row(r).f32, out.width, sum);
                   write_other_forms(kernels, sum, out.width, row);
                 });
}

CommandPtr convert(const Kernels& kernels, const StepTensor& out, const StepTensor& x) {
  require(x.f32, "convert: x must have the form f32");
  require(x.width == out.width, "convert: widths differ");
  return by_rows(x.rows_of, out.width, 0, [&kernels, out, x](const Step&, size_t r, float*) {
    kernels.write_row(x.row(r).f32, out.width, out.row(r));
  });
}

CommandPtr activation(const Kernels& kernels, const StepTensor& out, const StepTensor& x, Activation kind) {
  require(x.f32, "activation: x must have the form f32");
  require(x.width == out.width, "activation: widths differ");
  return by_rows(x.rows_of, out.width, 0, [&kernels, out, x, kind](const Step&, size_t r, float*) {
    kernels.activation(x.row(r).f32, out.width, kind, out.row(r));
  });
}

CommandPtr gated_activation(const Kernels& kernels, const StepTensor& out, const StepTensor& x, Activation kind) {
  require(x.f32, "gated_activation: x must have the form f32");
  require(x.width == 2 * out.width, "gated_activation: x must be twice as wide as out");
  return by_rows(x.rows_of, out.width, 0, [&kernels, out, x, kind](const Step&, size_t r, float*) {
    const float* const gate = x.row(r).f32;
    kernels.gated_activation(gate, gate + out.width, kLanes, out.width, kind, out.row(r));
  });
}

CommandPtr select_rows(const StepTensor& out, const StepTensor& x) {
  require(x.width == out.width, "select_rows: widths differ");
  require(x.rows_of == RowsOf::tokens, "select_rows: x is selected already");
  require((!out.f32 || x.f32) && (!out.bf16 || x.bf16) && (!out.codes || x.codes), "select_rows: x lacks a form of out");
  return by_rows(RowsOf::logit_rows, out.width, 0, [out, x](const Step& step, size_t r, float*) {
    const RowOut from = x.row(static_cast<size_t>(step.logit_rows[r])), to = out.row(r);
    if (to.f32) std::memcpy(to.f32, from.f32, out.width * sizeof(float));
    if (to.bf16) std::memcpy(to.bf16, from.bf16, (out.width + 1) / 2 * 4);
    if (to.codes) {
      std::memcpy(to.codes, from.codes, out.width);
      std::memcpy(to.groups, from.groups, out.width / kGroup * sizeof(Group));
    }
  });
}

CommandPtr norm(const Kernels& kernels, NormOperands operands) {
  const StepTensor &out = operands.out, &x = operands.x;
  const bool sums = operands.y != nullptr;
  require(x.f32 && x.width == out.width, "norm: x must have the form f32 and be as wide as out");
  require(sums == (operands.total != nullptr), "norm: y and total come together");
  require(operands.gain.size() == out.width, "norm: gain is not as long as out is wide");
  require(operands.bias.empty() || operands.bias.size() == out.width, "norm: bias is not as long as out is wide");
  if (sums) {
    require(operands.y->f32 && operands.y->width == x.width && operands.y->rows_of == x.rows_of,
            "norm: y must have the form f32 and the shape of x");
    require(operands.total->f32 && operands.total->width == x.width,
            "norm: total must have the form f32 and be as wide as x");
  }
  const StepTensor y = sums ? *operands.y : StepTensor{}, total = sums ? *operands.total : StepTensor{};
  return by_rows(x.rows_of, x.width, 0,
                 [&kernels, out, x, y, total, gain = std::move(operands.gain), bias = std::move(operands.bias),
                  eps = operands.eps](const Step&, size_t r, float*) {
                   const NormTask task{x.row(r).f32, y.row(r).f32, total.row(r).f32, gain.data(),
                                       bias.data(),  eps,          x.width,          out.row(r)};
                   if (bias.empty()) kernels.rms_norm(task);
                   else kernels.layer_norm(task);
                 });
}

}  // namespace pagoda
