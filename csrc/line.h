// The line: tokens of one row of logits by (logit descending, id ascending).
#pragma once

#include <vector>

#include "kernels/kernels.h"

namespace pagoda {

inline size_t chunks_of(size_t vocab_size) { return (vocab_size + kChunk - 1) / kChunk; }

inline constexpr double kLargestWeight = 0x1p40;   // of the first token, by `Kernels::weigh`

// A place in the line as one number that grows along it. All differ, as ids do.
uint64_t place_of(float logit, uint32_t id);
inline int64_t id_at(uint64_t place) { return static_cast<int64_t>(place & 0xFFFFFFFFu); }
float logit_at(uint64_t place);

// One row of logits. What it works on is kept from one row to the next.
class Row {
 public:
  explicit Row(const Kernels& kernels) : kernels_(kernels) {}

  // maxima: of its chunks (`Kernels::chunk_maxima`), which must be no NaN.
  void begin(const float* logits, size_t vocab_size, const float* maxima);

  float largest() const { return largest_; }
  // The lowest id of a token with the largest logit.
  int64_t first() const;
  // A logit that at least `count` tokens reach, if so many chunks exist; else −infinity.
  float reached_by(size_t count);
  // All tokens whose logits are at least `least`, in any order.
  void gather(float least);
  // Of those, the first `count` of the line, in any order.
  void keep_first(size_t count);
  std::vector<uint64_t>& gathered() { return places_; }
  const std::vector<uint64_t>& gathered() const { return places_; }

 private:
  const Kernels& kernels_;
  const float* logits_ = nullptr;
  const float* maxima_ = nullptr;
  size_t vocab_size_ = 0, num_chunks_ = 0;
  float largest_ = 0.0f;
  std::vector<float> sorted_maxima_;
  std::vector<uint64_t> places_;
};

}  // namespace pagoda
