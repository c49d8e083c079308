// Choosing a token of one row at random.
#pragma once

#include <vector>

#include "line.h"
#include "sampling.h"

namespace pagoda {

// What it works on is kept from one row to the next. Not for several threads.
class Chooser {
 public:
  explicit Chooser(const Kernels& kernels) : kernels_(kernels), row_(kernels) {}

  // The token id. maxima: of the row's chunks; it is not broken.
  int64_t choose(const float* logits, size_t vocab_size, const float* maxima, const Chance& chance);

 private:
  struct Reached {
    int64_t id;        // −1: not reached
    int64_t running;   // the weights up to and with that token
  };

  float bound() const;
  void sort_gathered();
  void fill_buckets();
  template <class Enough>
  Reached reach_in_sorted(int64_t running, Enough enough) const;
  template <class Enough>
  Reached reach_in_buckets(Enough enough);
  template <class Reach>
  int64_t pick(int64_t total, bool complete, Reach reach) const;

  const Kernels& kernels_;
  Row row_;
  const float* logits_ = nullptr;
  size_t vocab_size_ = 0;
  Chance chance_{};
  double largest_ = 0.0;
  int64_t least_ = 1;                    // a token that weighs less is cut off by min_p, or weighs nothing
  std::vector<float> sorted_logits_;     // of the gathered places, once they are sorted
  std::vector<int64_t> sorted_weights_;
  std::vector<int64_t> weights_;         // of the whole row
  std::vector<int64_t> buckets_;         // sums of weights
  std::vector<uint16_t> bucket_of_;
};

}  // namespace pagoda
