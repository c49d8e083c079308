// Commands of a program: what one step does with its tensors, cut into items that any worker may take.
//
// An item writes what no other item of its command reads or writes. What items there are may depend on the step and on the
// number of workers; what numbers come out may not.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/kernels.h"
#include "kv_cache.h"
#include "matrix.h"
#include "tensor.h"

namespace pagoda {

// How many rows a tensor has in a step: one for each token, or for each row that gets logits.
enum class RowsOf : uint8_t { tokens, logit_rows };

// One step's inputs: runner/batch.py.
struct Step {
  size_t num_tokens = 0;
  size_t num_seqs = 0;
  size_t num_logit_rows = 0;
  size_t num_new_blocks = 0;
  size_t max_blocks = 0;                      // of a row of block_table
  const int64_t* input_ids = nullptr;         // [num_tokens]
  const int64_t* positions = nullptr;         // [num_tokens]
  const int64_t* slot_mapping = nullptr;      // [num_tokens]
  const int32_t* query_start_loc = nullptr;   // [num_seqs + 1]
  const int32_t* seq_lens = nullptr;          // [num_seqs]
  const int32_t* block_table = nullptr;       // [num_seqs, max_blocks]
  const int64_t* logit_rows = nullptr;        // [num_logit_rows]
  const int64_t* new_blocks = nullptr;        // [num_new_blocks]
  size_t first_logit_row = 0;                 // of the slice of logits that is wanted
  size_t num_sliced_rows = 0;

  size_t rows(RowsOf of) const { return of == RowsOf::tokens ? num_tokens : num_logit_rows; }
};

struct StepTensor : Tensor {
  RowsOf rows_of = RowsOf::tokens;
};

// Cosines and sines of the step's positions, [max_tokens, half] each.
struct Rope {
  std::vector<float> inverse_frequencies;   // [half]
  Memory memory;
  float* cosine = nullptr;
  float* sine = nullptr;

  size_t half() const { return inverse_frequencies.size(); }
};

class Command {
 public:
  virtual ~Command() = default;
  virtual size_t num_items(const Step& step) const = 0;
  // scratch: scratch_bytes() of the worker's own, 64-byte aligned.
  virtual void run(const Step& step, size_t item, uint8_t* scratch) const = 0;
  virtual size_t scratch_bytes() const { return 0; }
};
using CommandPtr = std::unique_ptr<Command>;

// All of these throw std::invalid_argument where tensors do not fit each other or lack a form.

// commands_rows.cpp: by rows.
CommandPtr embed(const Kernels&, const StepTensor& out, const Matrix& table, float scale);
CommandPtr embed_positions(const Kernels&, const StepTensor& out, const Matrix& table);
CommandPtr add(const Kernels&, const StepTensor& out, const StepTensor& x, const StepTensor& y);
CommandPtr convert(const Kernels&, const StepTensor& out, const StepTensor& x);
CommandPtr activation(const Kernels&, const StepTensor& out, const StepTensor& x, Activation kind);
CommandPtr gated_activation(const Kernels&, const StepTensor& out, const StepTensor& x, Activation kind);
CommandPtr select_rows(const StepTensor& out, const StepTensor& x);

// y and total: both or neither. bias: layer norm; none: RMS norm.
struct NormOperands {
  const StepTensor& out;
  const StepTensor& x;
  const StepTensor* y;
  const StepTensor* total;
  std::vector<float> gain;
  std::vector<float> bias;
  float eps;
};
CommandPtr norm(const Kernels&, NormOperands operands);

// commands_linear.cpp: by blocks of columns.
CommandPtr linear(const Kernels&, const StepTensor& out, const StepTensor& x, const Matrix& weight, size_t workers);
CommandPtr gated_linear(const Kernels&, const StepTensor& out, const StepTensor& x, const Matrix& weight, Activation kind,
                        size_t workers);
// The step's slice of logits: rows × head.num_columns().
CommandPtr logits_linear(const Kernels&, float* logits, const StepTensor& x, const Matrix& head, size_t workers);

// commands_rope.cpp
// Zeroes the step's new blocks and works out the cosines and sines of every rope.
CommandPtr prologue(KVCache& cache, const std::vector<std::unique_ptr<Rope>>& ropes);

struct QKV {
  size_t num_heads;
  const Rope* rope;              // or null
  std::vector<float> q_norm;     // empty: none
  std::vector<float> k_norm;
  float eps;
};
CommandPtr rope_and_store_kv(const Kernels&, const StepTensor& q, const StepTensor& qkv, const KVCache& cache, size_t layer,
                             QKV heads);

// The same row from a column on; with quantized codes the column is a multiple of 32.
RowOut columns_from(RowOut row, size_t column);

// Throws std::invalid_argument.
void require(bool holds, const char* what);

}  // namespace pagoda
