#include <nanobind/stl/tuple.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "module.h"
#include "sampling.h"

namespace pagoda {

using namespace nanobind::literals;

namespace {

// Rows may lie apart; the numbers of one may not.
using LogitsIn = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;

Logits checked(const LogitsIn& logits, size_t vocab_size) {
  if (vocab_size > kMostTokens)
    throw std::invalid_argument("vocab_size is " + std::to_string(vocab_size) + ", must be at most " +
                                std::to_string(kMostTokens));
  if (vocab_size < 1 || vocab_size > logits.shape(1))
    throw std::invalid_argument("vocab_size is " + std::to_string(vocab_size) + ", must be 1 to the " +
                                std::to_string(logits.shape(1)) + " columns of logits");
  if (logits.shape(0) > 0 && logits.stride(1) != 1) throw std::invalid_argument("the rows of logits have gaps");
  return {logits.data(), logits.shape(0), static_cast<size_t>(logits.stride(0)), vocab_size};
}

void check_below(const ArrayIn<int64_t, 1>& numbers, size_t limit, const char* name) {
  for (size_t i = 0; i < numbers.shape(0); ++i) {
    const int64_t number = numbers.data()[i];
    if (number < 0 || static_cast<uint64_t>(number) >= limit)
      throw std::out_of_range(std::string(name) + " has " + std::to_string(number) + ", must be below " +
                              std::to_string(limit));
  }
}

template <class Array>
const auto* of_length(const Array& array, size_t length, const char* name) {
  if (array.shape(0) != length)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(array.shape(0)) + " numbers, must have " +
                                std::to_string(length));
  return array.data();
}

nb::tuple choose_tokens(Threads& threads, const LogitsIn& logits, size_t vocab_size,
                        const ArrayIn<int64_t, 1>& random_rows, const ArrayIn<double, 1>& temperature,
                        const ArrayIn<int64_t, 1>& top_k,
                        const ArrayIn<double, 1>& top_p, const ArrayIn<double, 1>& min_p,
                        const ArrayIn<double, 1>& uniforms) {
  const Logits rows = checked(logits, vocab_size);
  check_below(random_rows, rows.num_rows, "random_rows");
  const size_t count = random_rows.shape(0);
  const double *t = of_length(temperature, count, "temperature"), *p = of_length(top_p, count, "top_p"),
               *m = of_length(min_p, count, "min_p"), *u = of_length(uniforms, count, "uniforms");
  const int64_t* const k = of_length(top_k, count, "top_k");
  std::vector<Chance> chances(count);
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && random_rows.data()[i] <= random_rows.data()[i - 1])
      throw std::invalid_argument("random_rows are not ascending");
    if (!(t[i] > 0.0) || k[i] < 0 || !(p[i] > 0.0) || !(m[i] >= 0.0 && m[i] <= 1.0) || !(u[i] >= 0.0 && u[i] < 1.0))
      throw std::invalid_argument("row " + std::to_string(random_rows.data()[i]) +
                                  " cannot be sampled with temperature " + std::to_string(t[i]) + ", top_k " +
                                  std::to_string(k[i]) + ", top_p " + std::to_string(p[i]) + ", min_p " +
                                  std::to_string(m[i]) + ", number " + std::to_string(u[i]));
    chances[i] = {t[i], k[i], p[i], m[i], u[i]};
  }
  NewArray<int64_t> token_ids(rows.num_rows);
  NewArray<bool> broken(rows.num_rows);
  {
    const nb::gil_scoped_release unlocked;
    choose(threads, rows, random_rows.data(), chances.data(), count, token_ids.numbers.get(), broken.numbers.get());
  }
  return nb::make_tuple(token_ids.release(), broken.release());
}

nb::tuple score_tokens(Threads& threads, const LogitsIn& logits, size_t vocab_size, const ArrayIn<int64_t, 1>& rows,
                       const ArrayIn<int64_t, 1>& token_ids, size_t alternatives) {
  const Logits all = checked(logits, vocab_size);
  const size_t count = rows.shape(0);
  of_length(token_ids, count, "token_ids");
  check_below(rows, all.num_rows, "rows");
  check_below(token_ids, vocab_size, "token_ids");
  const size_t others = std::min(alternatives, vocab_size);
  NewArray<int64_t> ids(count, 1 + others), ranks(count, 1 + others);
  NewArray<float> values(count, 1 + others);
  {
    const nb::gil_scoped_release unlocked;
    logprobs(threads, all, rows.data(), token_ids.data(), count, others, ids.numbers.get(), values.numbers.get(),
             ranks.numbers.get());
  }
  return nb::make_tuple(ids.release(), values.release(), ranks.release());
}

}  // namespace

void bind_sampling(nb::module_& module) {
  module.def("choose", choose_tokens, "threads"_a, "logits"_a.noconvert(), "vocab_size"_a, "random_rows"_a.noconvert(),
             "temperature"_a.noconvert(), "top_k"_a.noconvert(), "top_p"_a.noconvert(), "min_p"_a.noconvert(),
             "uniforms"_a.noconvert());
  module.def("logprobs", score_tokens, "threads"_a, "logits"_a.noconvert(), "vocab_size"_a, "rows"_a.noconvert(),
             "token_ids"_a.noconvert(), "alternatives"_a);
}

}  // namespace pagoda
