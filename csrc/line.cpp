#include "line.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace pagoda {

// A float's bits are turned so that, as an unsigned number, they fall as the float grows. Adding zero makes −0 its
// equal, 0.
uint64_t place_of(float logit, uint32_t id) {
  logit += 0.0f;
  uint32_t bits;
  std::memcpy(&bits, &logit, 4);
  return static_cast<uint64_t>(bits >> 31 ? bits : ~bits & 0x7FFFFFFFu) << 32 | id;
}

float logit_at(uint64_t place) {
  const uint32_t upper = static_cast<uint32_t>(place >> 32), bits = upper >> 31 ? upper : ~upper & 0x7FFFFFFFu;
  float logit;
  std::memcpy(&logit, &bits, 4);
  return logit;
}

void Row::begin(const float* logits, size_t vocab_size, const float* maxima) {
  logits_ = logits;
  maxima_ = maxima;
  vocab_size_ = vocab_size;
  num_chunks_ = chunks_of(vocab_size);
  largest_ = *std::max_element(maxima, maxima + num_chunks_);
}

int64_t Row::first() const {
  const size_t chunk = static_cast<size_t>(std::find(maxima_, maxima_ + num_chunks_, largest_) - maxima_);
  const float* const end = logits_ + vocab_size_;
  return std::find(logits_ + chunk * kChunk, end, largest_) - logits_;
}

float Row::reached_by(size_t count) {
  if (count > num_chunks_) return -std::numeric_limits<float>::infinity();
  sorted_maxima_.assign(maxima_, maxima_ + num_chunks_);
  const auto nth = sorted_maxima_.begin() + static_cast<std::ptrdiff_t>(count - 1);
  std::nth_element(sorted_maxima_.begin(), nth, sorted_maxima_.end(), std::greater<float>());
  return *nth;
}

void Row::gather(float least) {
  places_.clear();
  int32_t found[kChunk + 16];
  for (size_t chunk = 0; chunk < num_chunks_; ++chunk) {
    if (maxima_[chunk] < least) continue;
    const size_t begin = chunk * kChunk;
    const size_t count = kernels_.collect(logits_ + begin, std::min(kChunk, vocab_size_ - begin), least, found);
    for (size_t i = 0; i < count; ++i) {
      const size_t id = begin + static_cast<size_t>(found[i]);
      places_.push_back(place_of(logits_[id], static_cast<uint32_t>(id)));
    }
  }
}

void Row::keep_first(size_t count) {
  if (count >= places_.size()) return;
  std::nth_element(places_.begin(), places_.begin() + static_cast<std::ptrdiff_t>(count), places_.end());
  places_.resize(count);
}

}  // namespace pagoda
