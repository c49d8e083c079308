// Norms, activations and sums of rows, in float32. All but the norms' sums is done number by number.
#include "elementwise_rows.h"
#include "exp.h"

namespace pagoda::PAGODA_ISA {

namespace {

void store_valid(float* p, f32x16 x, size_t valid) {
  if (valid == 16) store(p, x);
  else store_first(p, x, valid);
}

// The row that the norm is of; x + y goes to `total` on the way.
struct Source {
  const float* x;
  const float* y;
  float* total;

  f32x16 operator()(size_t i, size_t valid) const {
    const f32x16 own = load_valid(x + i, valid);
    if (!y) return own;
    const f32x16 both = add(own, load_valid(y + i, valid));
    store_valid(total + i, both, valid);
    return both;
  }
};

// x / (1 + exp(−x)).
f32x16 silu(f32x16 x) { return div(x, add(set1(1.0f), exp(sub(zero(), x)))); }

// x / 2 × (1 + tanh(u)) with u = √(2/π) (x + 0.044715 x³), as 1 + tanh(u) = 2 / (1 + exp(−2 u)).
f32x16 gelu_tanh(f32x16 x) {
  constexpr float kMinusTwice = -1.5957691216057308f;  // −2 √(2/π)
  const f32x16 inner = fma(mul(mul(x, x), set1(0.044715f)), x, x);
  return div(x, add(set1(1.0f), exp(mul(inner, set1(kMinusTwice)))));
}

template <f32x16 (*kActivation)(f32x16)>
void write_activation(const float* x, size_t n, const RowOut& out) {
  write_each(n, out, [=](size_t i, size_t valid) { return kActivation(load_valid(x + i, valid)); });
}

template <f32x16 (*kActivation)(f32x16)>
void write_gated(const float* gate, const float* up, size_t step_16, size_t n, const RowOut& out) {
  write_each(n, out, [=](size_t i, size_t valid) {
    const size_t at = i / 16 * step_16;
    return mul(kActivation(load_valid(gate + at, valid)), load_valid(up + at, valid));
  });
}

}  // namespace

void rms_norm(const NormTask& task) {
  const Source source{task.x, task.y, task.total};
  const float squares = sum_each(task.n, [&](size_t i, size_t valid, f32x16 part) {
    const f32x16 x = source(i, valid);
    return fma(x, x, part);
  });
  const f32x16 factor = set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(task.n) + task.eps));
  const float* row = task.y ? task.total : task.x;
  const float* gain = task.gain;
  write_each(task.n, task.out, [=](size_t i, size_t valid) {
    return mul(mul(load_valid(row + i, valid), factor), load_valid(gain + i, valid));
  });
}

void layer_norm(const NormTask& task) {
  const Source source{task.x, task.y, task.total};
  const float total = sum_each(task.n, [&](size_t i, size_t valid, f32x16 part) {
    return add(part, source(i, valid));
  });
  const f32x16 mean = set1(total / static_cast<float>(task.n));
  const float* row = task.y ? task.total : task.x;
  const float squares = sum_each(task.n, [=](size_t i, size_t valid, f32x16 part) {
    const f32x16 distance = keep_first(sub(load_valid(row + i, valid), mean), valid, zero());
    return fma(distance, distance, part);
  });
  const f32x16 factor = set1(1.0f / __builtin_sqrtf(squares / static_cast<float>(task.n) + task.eps));
  const float *gain = task.gain, *bias = task.bias;
  write_each(task.n, task.out, [=](size_t i, size_t valid) {
    const f32x16 standard = mul(sub(load_valid(row + i, valid), mean), factor);
    return fma(standard, load_valid(gain + i, valid), load_valid(bias + i, valid));
  });
}

void add(const float* x, const float* y, size_t n, float* out) {
  size_t i = 0;
  for (; i + 16 <= n; i += 16) store(out + i, add(load(x + i), load(y + i)));
  if (i < n) store_first(out + i, add(load_first(x + i, n - i), load_first(y + i, n - i)), n - i);
}

void write_row(const float* x, size_t n, const RowOut& out) {
  write_each(n, out, [=](size_t i, size_t valid) { return load_valid(x + i, valid); });
}

void gated_activation(const float* gate, const float* up, size_t step_16, size_t n, Activation activation,
                      const RowOut& out) {
  if (activation == Activation::silu) write_gated<silu>(gate, up, step_16, n, out);
  else write_gated<gelu_tanh>(gate, up, step_16, n, out);
}

void activation(const float* x, size_t n, Activation activation, const RowOut& out) {
  if (activation == Activation::silu) write_activation<silu>(x, n, out);
  else write_activation<gelu_tanh>(x, n, out);
}

}  // namespace pagoda::PAGODA_ISA
