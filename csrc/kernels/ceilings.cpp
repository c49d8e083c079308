// What a machine can do at most with this instruction set: read memory, and multiply and add.
#include "table.h"

namespace pagoda::PAGODA_ISA {
namespace {

// Enough additions at once to hide their latency, and no more accumulators than stay in registers.
#if defined(PAGODA_AVX512)
constexpr size_t kChains = 12;
#elif defined(PAGODA_AVX2)
constexpr size_t kChains = 5;
#else
constexpr size_t kChains = 1;
#endif
static_assert(kChains <= kPeakChains);

struct Floats {
  using Sum = f32x16;
  static constexpr uint64_t kInputs = 1;   // of each lane
  static Sum begin() { return zero(); }
  static Sum step(Sum sum, const uint8_t* weights, const uint8_t* x) {
    float one;
    __builtin_memcpy(&one, x, 4);
    return fma(load(reinterpret_cast<const float*>(weights)), set1(one), sum);
  }
  static f32x16 end(Sum sum) { return sum; }
};

struct Pairs {
  using Sum = f32x16;
  static constexpr uint64_t kInputs = 2;
  static Sum begin() { return zero(); }
  static Sum step(Sum sum, const uint8_t* weights, const uint8_t* x) {
    const bf16x32 inputs = spread2(reinterpret_cast<const uint16_t*>(x));
    return dot2(sum, load_pairs(reinterpret_cast<const uint16_t*>(weights)), inputs);
  }
  static f32x16 end(Sum sum) { return sum; }
};

struct Bytes {
  using Sum = i32x16;
  static constexpr uint64_t kInputs = 4;
  static Sum begin() { return zero_i32(); }
  static Sum step(Sum sum, const uint8_t* weights, const uint8_t* x) {
    return dot4(sum, load_codes(weights), spread4(reinterpret_cast<const int8_t*>(x)));
  }
  static f32x16 end(Sum sum) { return to_f32(sum); }
};

template <class Numbers>
uint64_t multiply_add(const PeakTask& task) {
  typename Numbers::Sum sums[kChains];
  for (auto& sum : sums) sum = Numbers::begin();
  for (size_t round = 0; round < task.rounds; ++round)
    for (size_t vector = 0; vector < kPeakVectors; ++vector)
      for (size_t chain = 0; chain < kChains; ++chain)
        sums[chain] = Numbers::step(sums[chain], task.weights + 64 * vector, task.x + 4 * chain);
  f32x16 all = zero();
  for (auto& sum : sums) all = add(all, Numbers::end(sum));
  store(task.sums, all);
  return task.rounds * kPeakVectors * kChains * 16 * 2 * Numbers::kInputs;
}

}  // namespace

float read_memory(const float* numbers, size_t count, size_t streams, size_t bytes_ahead) {
  f32x16 sums[4] = {zero(), zero(), zero(), zero()};
  const size_t share = count / streams;
  for (size_t i = 0; i < share; i += 64)
    for (size_t stream = 0; stream < streams; ++stream) {
      const float* const p = numbers + stream * share + i;
      if (bytes_ahead)
        for (size_t line = 0; line < 4; ++line) prefetch(p + 16 * line + bytes_ahead / 4);
      for (size_t line = 0; line < 4; ++line) sums[line] = add(sums[line], load(p + 16 * line));
    }
  return sum(add(add(sums[0], sums[1]), add(sums[2], sums[3])));
}

uint64_t multiply_add_f32(const PeakTask& task) { return multiply_add<Floats>(task); }
uint64_t multiply_add_bf16(const PeakTask& task) { return multiply_add<Pairs>(task); }
uint64_t multiply_add_q8(const PeakTask& task) { return multiply_add<Bytes>(task); }

}  // namespace pagoda::PAGODA_ISA
