#include "chooser.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pagoda {
namespace {

constexpr size_t kHead = 64;            // chunks whose largest tokens begin the line: nearly always enough of it
constexpr size_t kMostSorted = 2048;    // places; where there are more, only a bucket of them is sorted
constexpr size_t kBuckets = 2048;

}  // namespace

int64_t Chooser::choose(const float* logits, size_t vocab_size, const float* maxima, const Chance& chance) {
  logits_ = logits;
  vocab_size_ = vocab_size;
  chance_ = chance;
  row_.begin(logits, vocab_size, maxima);
  largest_ = static_cast<double>(row_.largest());
  least_ = std::max<int64_t>(1, static_cast<int64_t>(std::ceil(chance.min_p * kLargestWeight)));
  const float all = bound();
  const auto in_sorted = [&](auto enough) { return reach_in_sorted(0, enough); };
  const auto total_sorted = [&] {
    int64_t total = 0;
    for (const int64_t weight : sorted_weights_) total += weight >= least_ ? weight : 0;
    return total;
  };

  const size_t top_k = static_cast<size_t>(chance.top_k);
  if (top_k > 0 && top_k < vocab_size) {
    const float some = std::max(all, row_.reached_by(std::min(top_k, chunks_of(vocab_size))));
    row_.gather(some);
    if (row_.gathered().size() < top_k && some > all) row_.gather(all);
    row_.keep_first(top_k);
    sort_gathered();
    return pick(total_sorted(), true, in_sorted);
  }
  // The beginning of the line is enough where it reaches as far as the choice and the cut before it.
  const float head = row_.reached_by(std::min(kHead, chunks_of(vocab_size)));
  row_.gather(std::max(all, head));
  const bool complete = head <= all, sortable = row_.gathered().size() <= kMostSorted;
  if (complete && sortable) {
    sort_gathered();
    return pick(total_sorted(), true, in_sorted);
  }
  weights_.resize(vocab_size);
  const int64_t total = kernels_.weigh(logits, vocab_size, largest_, chance.temperature, least_, weights_.data());
  if (sortable) {
    sort_gathered();
    const int64_t id = pick(total, false, in_sorted);
    if (id >= 0) return id;
  }
  fill_buckets();
  return pick(total, true, [&](auto enough) { return reach_in_buckets(enough); });
}

// All tokens that weigh at least `least_` have logits of at least this.
float Chooser::bound() const {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const double share = static_cast<double>(least_) / kLargestWeight;
  const double lowest = largest_ + chance_.temperature * (std::log(share) - 1e-6);
  if (lowest < -static_cast<double>(std::numeric_limits<float>::max())) return -kInfinity;
  return std::nextafter(static_cast<float>(lowest), -kInfinity);
}

// Puts what was gathered in the order of the line, and weighs it.
void Chooser::sort_gathered() {
  std::vector<uint64_t>& places = row_.gathered();
  std::sort(places.begin(), places.end());
  sorted_logits_.resize(places.size());
  sorted_weights_.resize(places.size());
  std::transform(places.begin(), places.end(), sorted_logits_.begin(), logit_at);
  kernels_.weigh(sorted_logits_.data(), places.size(), largest_, chance_.temperature, least_, sorted_weights_.data());
}

// The first sorted token at which the running sum of weights, begun with `running`, satisfies `enough`.
template <class Enough>
Chooser::Reached Chooser::reach_in_sorted(int64_t running, Enough enough) const {
  for (size_t i = 0; i < sorted_weights_.size(); ++i) {
    running += sorted_weights_[i] >= least_ ? sorted_weights_[i] : 0;
    if (enough(running)) return {id_at(row_.gathered()[i]), running};
  }
  return {-1, running};
}

// The line of the whole row in pieces, each of the same difference of logits, with the sums of their weights. A token's
// piece never falls along the line, as the rounding of a difference and of a product never turns an order.
void Chooser::fill_buckets() {
  double lowest = largest_;
  for (size_t i = 0; i < vocab_size_; ++i) {
    const double logit = static_cast<double>(logits_[i]);
    lowest = ((weights_[i] >= least_) & (logit < lowest)) ? logit : lowest;
  }
  const double factor = lowest < largest_ ? static_cast<double>(kBuckets) / (largest_ - lowest) : 0.0;
  buckets_.assign(kBuckets + 1, 0);   // the last one is for tokens that do not count
  bucket_of_.resize(vocab_size_);
  for (size_t i = 0; i < vocab_size_; ++i) {
    const double distance = (largest_ - static_cast<double>(logits_[i])) * factor;
    const auto own = static_cast<uint16_t>(std::min(distance, static_cast<double>(kBuckets - 1)));
    const uint16_t bucket = weights_[i] >= least_ ? own : kBuckets;
    bucket_of_[i] = bucket;
    buckets_[bucket] += weights_[i];
  }
}

template <class Enough>
Chooser::Reached Chooser::reach_in_buckets(Enough enough) {
  int64_t running = 0;
  for (size_t b = 0; b < kBuckets; ++b) {
    if (!enough(running + buckets_[b])) {
      running += buckets_[b];
      continue;
    }
    std::vector<uint64_t>& places = row_.gathered();
    places.clear();
    for (size_t i = 0; i < vocab_size_; ++i)
      if (bucket_of_[i] == b) places.push_back(place_of(logits_[i], static_cast<uint32_t>(i)));
    sort_gathered();
    return reach_in_sorted(running, enough);
  }
  return {-1, running};
}

// The choice among the tokens that `reach` walks along, −1 where they do not reach as far.
// total: the weight of what top_k and min_p leave. complete: `reach` has all of those.
template <class Reach>
int64_t Chooser::pick(int64_t total, bool complete, Reach reach) const {
  int64_t left = total;
  if (chance_.top_p < 1.0) {
    const double wanted = chance_.top_p * static_cast<double>(total);
    const Reached last = reach([=](int64_t running) { return static_cast<double>(running) >= wanted; });
    if (last.id >= 0) left = last.running;
    else if (!complete) return -1;
  }
  const auto target = std::min(static_cast<int64_t>(std::floor(chance_.uniform * static_cast<double>(left))), left - 1);
  return reach([=](int64_t running) { return running > target; }).id;
}

}  // namespace pagoda
