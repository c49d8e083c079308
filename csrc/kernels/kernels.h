// The table of kernels that one instruction set provides. All of csrc/kernels/*.cpp is compiled once for each.
//
// A kernel's numbers depend on its arguments' values only: never on how many rows or tiles one call has, on where they lie
// in memory, or on the thread. So each output of a product has one chain of additions, in the order of its inputs, and
// sums over a row (norms, softmax, a group's codes) are cut in the same places and joined in the same order every time.
#pragma once

#include "../format.h"
#include "../kv_format.h"
#include "../tensor.h"

namespace pagoda {

// y[r][16 t + lane] = x[r] · tile t's lane + bias, for rows [0, num_rows) and tiles [0, num_tiles).
struct LinearTask {
  const uint8_t* tiles;      // the first tile; the next is tile_bytes further
  size_t tile_bytes;
  size_t num_tiles;
  size_t num_columns;        // valid ones; the last tile may have fewer than 16
  size_t k;
  Rows x;
  size_t num_rows;
  float* y;                  // of the first tile's first lane
  size_t y_stride;           // elements
  const float* bias;         // of the first tile's first lane, padded to whole tiles; or null
};
using LinearKernel = void (*)(const LinearTask&);
// Products are fastest where num_tiles is a multiple of this: some keep the sums of so many tiles in registers.
inline constexpr size_t kTilesTogether = 3;

// Norms of one row of n numbers. With y the row is x + y, which is also written to `total`.
struct NormTask {
  const float* x;
  const float* y;            // or null
  float* total;              // or null, where y is
  const float* gain;
  const float* bias;         // layer norm only
  float eps;
  size_t n;
  RowOut out;
};

enum class Activation : uint8_t { silu, gelu_tanh };

// One request's attention in one layer: the queries of `num_tokens` tokens at positions start …, all heads that share one
// of `kv_heads` K/V heads beside each other. K and V are read from the paged cache only (kv_format.h), where this step's are
// already stored. Fastest with 64 to 128 rows (tokens × heads), a multiple of 8.
struct AttentionTask {
  const float* q;            // [num_tokens] rows of q_stride, the first K/V head's first query head at column 0
  size_t q_stride;
  size_t num_tokens;
  size_t start;              // position of the first token
  size_t kv_heads;           // 1; or for one token, where no query heads share one, up to kMaxTurns
  size_t heads;              // query heads that share a K/V head
  size_t head_dim;
  float scale;
  size_t window;             // 0: none
  const uint8_t* k;          // the layer's K, and V, of the first K/V head in block 0
  const uint8_t* v;
  size_t key_block_bytes;    // from one block to the next
  size_t value_block_bytes;
  size_t block_size;         // a multiple of 16
  const int32_t* block_table;
};

// K/V heads that take turns, at most.
inline constexpr size_t kMaxTurns = 32;

// A part of the keys, cut at absolute positions: [split × kSplitKeys, (split + 1) × kSplitKeys).
inline constexpr size_t kSplitKeys = 256;

// What attention over one split gives for each row, which is a (token, head), those of one K/V head after the other: the largest score × log2 e, the sum of exp(score −
// largest score), and the sum of those times V, which has head_dim numbers. Empty splits have largest −infinity, sum 0
// and any values.
struct Partial {
  float* largest;            // [rows]
  float* sum;                // [rows]
  float* values;             // [rows][head_dim]
};

// The largest numbers of a row of logits are found by chunks of so many.
inline constexpr size_t kChunk = 256;

// What a machine's peaks are measured with: vectors of 64 bytes that lie in the nearest cache, times numbers of 4 bytes.
struct PeakTask {
  const uint8_t* weights;    // kPeakVectors × 64 bytes
  const uint8_t* x;          // kPeakChains × 4 bytes
  size_t rounds;             // over all of them
  float* sums;               // 16 lanes, so that nothing is left out
};
inline constexpr size_t kPeakVectors = 16;
inline constexpr size_t kPeakChains = 12;   // at most; as many as there are registers for

struct Kernels {
  const char* name;

  LinearKernel linear[kNumFormats];

  // One row of a packed matrix, as an embedding table: out[i] = scale × value.
  void (*unpack_row[kNumFormats])(const uint8_t* tile, size_t lane, size_t k, float scale, float* out);

  void (*rms_norm)(const NormTask&);
  void (*layer_norm)(const NormTask&);
  void (*add)(const float* x, const float* y, size_t n, float* out);
  // The row in every form that is wanted.
  void (*write_row)(const float* x, size_t n, const RowOut& out);
  // activation(gate) × up; after 16 numbers of each the next 16 are step_16 further. n is a multiple of 32 wherever quantized codes are wanted.
  void (*gated_activation)(const float* gate, const float* up, size_t step_16, size_t n, Activation, const RowOut& out);
  void (*activation)(const float* x, size_t n, Activation, const RowOut& out);

  // Rotates the first 2 × half numbers of a head in place: element i with i + half.
  void (*rotate)(float* head, const float* cosine, const float* sine, size_t half);
  // K and V of one token and K/V head into the cache; k and v point to the block and K/V head, offset is inside the block.
  void (*store_kv[kNumKVFormats])(const float* key, const float* value, size_t head_dim, size_t offset, uint8_t* k,
                                  uint8_t* v);

  // Scores, softmax and values over one split. scratch: attention_scratch(head_dim) bytes, 64-aligned.
  void (*attend[kNumKVFormats])(const AttentionTask&, size_t split, const Partial& out, void* scratch);
  size_t (*attention_scratch)(size_t head_dim);
  // Joins what `next` found to `running`, rows × head_dim; the order of joins is that of the splits.
  void (*merge)(const Partial& running, const Partial& next, size_t rows, size_t head_dim);
  // values / sum of one (token, head).
  void (*finish)(const float* values, float sum, size_t head_dim, float* out);

  // The largest number of every chunk of x (the last one may be shorter); NaN where the chunk has one.
  void (*chunk_maxima)(const float* x, size_t n, float* maxima);
  // The places of the numbers that are at least `least`, ascending; returns how many. places: room for n + 16.
  size_t (*collect)(const float* x, size_t n, float least, int32_t* places);
  // floor(2^40 × exp((x − largest) / temperature)) of each, the same on every machine, and the sum of those that are at
  // least `least`. No x is above `largest`. weights: null where only the sum is wanted.
  int64_t (*weigh)(const float* x, size_t n, double largest, double temperature, int64_t least, int64_t* weights);

  // The sum of so many numbers, a multiple of 1024, read as 1 to 16 streams side by side, a power of two; each line is
  // asked for so many bytes before it is read (0: not).
  float (*read_memory)(const float* numbers, size_t count, size_t streams, size_t bytes_ahead);
  // Products and additions of each Form; returns how many of them it did.
  uint64_t (*multiply_add[3])(const PeakTask&);
};

// The table of an instruction set that was compiled in and that this machine can execute; null otherwise.
const Kernels* kernels_for(const char* name);

}  // namespace pagoda
