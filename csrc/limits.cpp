#include "limits.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "memory.h"

namespace pagoda {
namespace {

constexpr size_t kNearestCache = 32 << 10;   // bytes; the smallest that x86-64 and Arm servers have
constexpr double kSeconds = 0.001;           // that a reading of a peak takes, about
constexpr int kReadings = 5;

// A share of every thread begins at a multiple of this, and so does each of its streams.
constexpr size_t kShareNumbers = (64 << 10) / sizeof(float);

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

template <class Job>
double seconds_of(Threads& threads, const Job& job) {
  const double begun = now();
  threads.run(job);
  return now() - begun;
}

// The best of several readings of operations a second, where job(worker, rounds) does rounds × operations.
template <class Job>
double best_rate(Threads& threads, double operations, const Job& job) {
  size_t rounds = 1;
  const auto best = [&] {
    double seconds = INFINITY;
    for (int i = 0; i < kReadings; ++i)
      seconds = std::min(seconds, seconds_of(threads, [&](size_t worker) { job(worker, rounds); }));
    return seconds;
  };
  double seconds = best();
  for (; seconds < kSeconds; seconds = best()) rounds *= seconds < kSeconds / 8 ? 8 : 2;
  return operations * static_cast<double>(rounds * threads.count()) / seconds;
}

// What one thread multiplies, all of it within the nearest cache.
struct Problem {
  size_t k, tiles, rows;

  size_t y_stride() const { return 16 * tiles + 16; }
  size_t tile_bytes(Format format) const { return tiles * tile_layout(format, k).bytes; }
  size_t x_bytes(Format format) const { return form_bytes(input_form(format), k, rows); }
  size_t bytes(Format format) const {
    return tile_bytes(format) + align64(x_bytes(format)) + rows * y_stride() * sizeof(float);
  }
  double operations() const { return 2.0 * static_cast<double>(k * 16 * tiles * rows); }
};

// A task on memory of problem.bytes(format). The byte 0x3C makes ordinary numbers of every format and form.
LinearTask task_on(uint8_t* memory, const Problem& problem, Format format) {
  std::memset(memory, 0x3C, problem.bytes(format));
  Tensor x;
  x.width = problem.k;
  uint8_t* const rows = memory + problem.tile_bytes(format);
  switch (input_form(format)) {
    case Form::f32: x.f32 = reinterpret_cast<float*>(rows); break;
    case Form::bf16: x.bf16 = reinterpret_cast<uint16_t*>(rows); break;
    case Form::q8: {
      x.codes = reinterpret_cast<int8_t*>(rows);
      x.groups = reinterpret_cast<Group*>(rows + problem.rows * row_bytes(problem.k));
      constexpr int32_t offset = -128 * 16 * 0x3C;
      std::fill_n(x.groups, problem.rows * x.group_stride(), Group{{offset, offset}, 0.01f, 32 * 0.6f});
      break;
    }
  }
  LinearTask task{};
  task.tiles = memory;
  task.tile_bytes = tile_layout(format, problem.k).bytes;
  task.num_tiles = problem.tiles;
  task.num_columns = 16 * problem.tiles;
  task.k = problem.k;
  task.x = x.rows();
  task.num_rows = problem.rows;
  task.y = reinterpret_cast<float*>(rows + align64(problem.x_bytes(format)));
  task.y_stride = problem.y_stride();
  return task;
}

// Operands whose products cancel, so that sums neither overflow nor become infinite.
struct PeakOperands {
  alignas(64) uint8_t weights[kPeakVectors * 64];
  alignas(64) uint8_t x[kPeakChains * 4];

  explicit PeakOperands(Form form) {
    for (uint32_t i = 0; i < kPeakVectors * 16; ++i) put(weights + 4 * i, weight(form, i / 16 % 2 == 1, i % 200));
    for (uint32_t i = 0; i < kPeakChains; ++i) put(x + 4 * i, input(form, i));
  }

 private:
  // The four bytes of a lane: 1 or −1 in float32, twice in bf16; or one byte four times.
  static uint32_t weight(Form form, bool negative, uint32_t byte) {
    switch (form) {
      case Form::f32: return negative ? 0xBF800000 : 0x3F800000;
      case Form::bf16: return negative ? 0xBF80BF80 : 0x3F803F80;
      case Form::q8: break;
    }
    return 0x01010101 * byte;
  }
  // 1 + i / 128 in float32, twice in bf16; or the bytes n, −n, n, −n. Another for each chain, or they would be one.
  static uint32_t input(Form form, uint32_t i) {
    const uint32_t number = 0x3F80 + i, n = i + 1;
    switch (form) {
      case Form::f32: return number << 16;
      case Form::bf16: return number << 16 | number;
      case Form::q8: break;
    }
    return (256 - n) << 24 | n << 16 | (256 - n) << 8 | n;
  }
  static void put(uint8_t* to, uint32_t bits) { std::memcpy(to, &bits, 4); }
};

}  // namespace

double read_bandwidth(Threads& threads, size_t num_bytes) {
  const size_t share = num_bytes / sizeof(float) / threads.count() / kShareNumbers * kShareNumbers;
  if (share == 0)
    throw std::invalid_argument("num_bytes is " + std::to_string(num_bytes) + ", must be at least 65536 a thread");
  const size_t bytes = share * threads.count() * sizeof(float);
  const Memory memory(bytes);
  float* const numbers = reinterpret_cast<float*>(memory.data());
  threads.run([&](size_t worker) { std::fill_n(numbers + worker * share, share, 1.0f); });
  std::vector<float> sums(threads.count());
  double best = 0;
  for (const size_t streams : {1, 2, 4, 8})
    for (const size_t ahead : {0, 1024, 4096}) {
      double seconds[3];
      for (double& reading : seconds)
        reading = seconds_of(threads, [&](size_t worker) {
          sums[worker] = threads.kernels().read_memory(numbers + worker * share, share, streams, ahead);
        });
      std::sort(seconds, seconds + 3);
      best = std::max(best, static_cast<double>(bytes) / seconds[1]);
    }
  return best;
}

double peak_operations(Threads& threads, Form form) {
  const PeakOperands operands(form);
  const auto kernel = threads.kernels().multiply_add[static_cast<int>(form)];
  alignas(64) float sums[16];
  const uint64_t operations = kernel({operands.weights, operands.x, 1, sums});
  return best_rate(threads, static_cast<double>(operations), [&](size_t, size_t rounds) {
    alignas(64) float own[16];
    kernel({operands.weights, operands.x, rounds, own});
  });
}

double format_ceiling(Threads& threads, Format format) {
  const LinearKernel kernel = threads.kernels().linear[static_cast<int>(format)];
  if (!kernel) throw std::invalid_argument("this instruction set has no product with weights of that format");
  std::vector<Memory> memory;
  for (size_t i = 0; i < threads.count(); ++i) memory.emplace_back(kNearestCache);
  double best = 0;
  for (const size_t k : {256, 512})
    for (const size_t tiles : {1, 2, 4})
      for (const size_t rows : {8, 12, 16, 32}) {
        const Problem problem{k, tiles, rows};
        if (problem.bytes(format) > kNearestCache) continue;
        std::vector<LinearTask> tasks;
        for (const Memory& own : memory) tasks.push_back(task_on(own.data(), problem, format));
        best = std::max(best, best_rate(threads, problem.operations(), [&](size_t worker, size_t rounds) {
          for (size_t round = 0; round < rounds; ++round) kernel(tasks[worker]);
        }));
      }
  return best;
}

}  // namespace pagoda
