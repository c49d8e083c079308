#include "sampling.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "chooser.h"
#include "float_mode.h"
#include "line.h"

namespace pagoda {
namespace {

constexpr size_t kPart = 64 * kChunk;   // of a row, whose largest numbers one worker finds at a time
constexpr size_t kFewNumbers = 1 << 17;  // looked through, and
constexpr size_t kFewChoices = 2;        // made, before another worker has woken up
constexpr float kLowestLogprob = -1e30f;

// The caller alone does what is little.
template <class Item>
void each(Threads& threads, size_t num_items, bool is_little, const Item& item) {
  if (!is_little) return threads.each(num_items, item);
  for (size_t i = 0; i < num_items; ++i) item(i, 0);
}

// Whether the row has a NaN or +inf, or nothing but −inf.
bool is_broken(const float* maxima, size_t num_chunks) {
  float largest = -std::numeric_limits<float>::infinity();
  for (size_t i = 0; i < num_chunks; ++i) {
    if (std::isnan(maxima[i])) return true;
    largest = std::max(largest, maxima[i]);
  }
  return std::isinf(largest);
}

// What log-probabilities need of one place.
class Scorer {
 public:
  explicit Scorer(const Kernels& kernels) : kernels_(kernels), row_(kernels) {}

  void score(const float* logits, size_t vocab_size, int64_t id, size_t alternatives, int64_t* ids, float* values,
             int64_t* ranks) {
    maxima_.resize(chunks_of(vocab_size));
    kernels_.chunk_maxima(logits, vocab_size, maxima_.data());
    ids[0] = id;
    for (size_t i = 0; i <= alternatives; ++i) ranks[i] = static_cast<int64_t>(i);
    if (is_broken(maxima_.data(), maxima_.size())) {
      std::fill_n(values, 1 + alternatives, kLowestLogprob);
      for (size_t i = 1; i <= alternatives; ++i) ids[i] = static_cast<int64_t>(i - 1);
      return;
    }
    row_.begin(logits, vocab_size, maxima_.data());
    const double largest = static_cast<double>(row_.largest());
    const int64_t total = kernels_.weigh(logits, vocab_size, largest, 1.0, 1, nullptr);
    const double log_total = std::log(static_cast<double>(total) / kLargestWeight);
    const auto value = [=](float logit) {
      return std::max(kLowestLogprob, static_cast<float>(static_cast<double>(logit) - largest - log_total));
    };

    std::vector<uint64_t>& places = row_.gathered();
    const float own = logits[id];
    const uint64_t place = place_of(own, static_cast<uint32_t>(id));
    row_.gather(own);
    ranks[0] = 1 + std::count_if(places.begin(), places.end(), [=](uint64_t other) { return other < place; });
    values[0] = value(own);
    if (alternatives == 0) return;
    row_.gather(row_.reached_by(alternatives));
    row_.keep_first(alternatives);
    std::sort(places.begin(), places.end());
    for (size_t i = 0; i < alternatives; ++i) {
      ids[1 + i] = id_at(places[i]);
      values[1 + i] = value(logits[ids[1 + i]]);
    }
  }

 private:
  const Kernels& kernels_;
  Row row_;
  std::vector<float> maxima_;
};

}  // namespace

// Denormals are kept all over: a temperature may be any number above 0.
void choose(Threads& threads, const Logits& logits, const int64_t* rows, const Chance* chances, size_t num_random,
            int64_t* token_ids, bool* broken) {
  const Kernels& kernels = threads.kernels();
  const size_t num_chunks = chunks_of(logits.vocab_size), parts = (logits.vocab_size + kPart - 1) / kPart;
  std::vector<float> maxima(logits.num_rows * num_chunks);
  const bool few_numbers = logits.num_rows * logits.vocab_size <= kFewNumbers;
  each(threads, logits.num_rows * parts, few_numbers, [&](size_t item, size_t) {
    const FloatMode mode(Denormals::are_kept);
    const size_t r = item / parts, begin = item % parts * kPart;
    kernels.chunk_maxima(logits.row(r) + begin, std::min(kPart, logits.vocab_size - begin),
                         maxima.data() + r * num_chunks + begin / kChunk);
  });

  const FloatMode mode(Denormals::are_kept);
  const auto maxima_of = [&](size_t r) { return maxima.data() + r * num_chunks; };
  Row row(kernels);
  for (size_t r = 0, next = 0; r < logits.num_rows; ++r) {
    broken[r] = is_broken(maxima_of(r), num_chunks);
    token_ids[r] = 0;
    if (next < num_random && rows[next] == static_cast<int64_t>(r)) {
      ++next;
    } else if (!broken[r]) {
      row.begin(logits.row(r), logits.vocab_size, maxima_of(r));
      token_ids[r] = row.first();
    }
  }
  if (num_random == 0) return;
  std::vector<Chooser> choosers(threads.count(), Chooser(kernels));
  each(threads, num_random, num_random <= kFewChoices, [&](size_t i, size_t worker) {
    const FloatMode exact(Denormals::are_kept);
    const size_t r = static_cast<size_t>(rows[i]);
    if (broken[r]) return;
    token_ids[r] = choosers[worker].choose(logits.row(r), logits.vocab_size, maxima_of(r), chances[i]);
  });
}

void logprobs(Threads& threads, const Logits& logits, const int64_t* rows, const int64_t* token_ids, size_t count,
              size_t alternatives, int64_t* ids, float* values, int64_t* ranks) {
  const size_t width = 1 + alternatives;
  std::vector<Scorer> scorers(threads.count(), Scorer(threads.kernels()));
  threads.each(count, [&](size_t i, size_t worker) {
    const FloatMode exact(Denormals::are_kept);
    scorers[worker].score(logits.row(static_cast<size_t>(rows[i])), logits.vocab_size, token_ids[i], alternatives,
                          ids + i * width, values + i * width, ranks + i * width);
  });
}

}  // namespace pagoda
