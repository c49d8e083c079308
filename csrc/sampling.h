// Choosing tokens from rows of logits. What is chosen is written in src/pagoda/sampling/torch_sampler.py.
#pragma once

#include <cstddef>
#include <cstdint>

#include "threads.h"

namespace pagoda {

// So many tokens that weigh the most sum to 2^62 (line.h): no sum of weights leaves an int64_t.
inline constexpr size_t kMostTokens = (size_t{1} << 22) - 1;

// Rows of logits; what lies beyond `vocab_size` in a row is padding.
struct Logits {
  const float* data;
  size_t num_rows;
  size_t stride;      // elements from one row to the next
  size_t vocab_size;

  const float* row(size_t r) const { return data + r * stride; }
};

// How a row is chosen from at random. All are as `SamplingParams` allows them; top_k 0: no limit.
struct Chance {
  double temperature;
  int64_t top_k;
  double top_p;
  double min_p;
  double uniform;
};

// token_ids, broken [num_rows]. rows, chances [num_random]: of those that choose at random; the others take the most
// likely token.
void choose(Threads& threads, const Logits& logits, const int64_t* rows, const Chance* chances, size_t num_random,
            int64_t* token_ids, bool* broken);

// Of `count` places (row, token): ids, log-probabilities and ranks, each [count][1 + alternatives], the token itself
// first, then the most likely ones. alternatives is at most vocab_size. Broken rows give some numbers.
void logprobs(Threads& threads, const Logits& logits, const int64_t* rows, const int64_t* token_ids, size_t count,
              size_t alternatives, int64_t* ids, float* values, int64_t* ranks);

}  // namespace pagoda
