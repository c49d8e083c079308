// A pool of worker threads that do one job at a time, and the kernels they use.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "kernels/kernels.h"

namespace pagoda {

// A number that threads wait on until it changes: awake for at most 50 µs, then asleep.
class Signal {
 public:
  uint32_t value() const { return value_.load(std::memory_order_acquire); }
  void wait_while(uint32_t seen);
  void advance();

 private:
  void sleep_while(uint32_t seen);

  alignas(64) std::atomic<uint32_t> value_{0};
  std::atomic<uint32_t> sleepers_{0};
#ifndef __linux__
  std::mutex mutex_;
  std::condition_variable changed_;
#endif
};

// While it lives, the thread rounds to nearest and takes denormals for zero.
class FloatMode {
 public:
  FloatMode();
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  uint64_t saved_;
};

// The caller of a job is worker 0. A second caller waits until the first one's job is done. Jobs never take Python's lock,
// and callers hold it neither.
class Threads {
 public:
  Threads(size_t count, const Kernels& kernels);
  ~Threads() { close(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  size_t count() const { return count_; }
  const Kernels& kernels() const { return kernels_; }

  // job(worker) on every worker at once. What it throws ends the job (at the others' next barrier) and comes out here.
  template <class Job>
  void run(const Job& job) {
    run_job([](const void* context, size_t worker) { (*static_cast<const Job*>(context))(worker); }, &job);
  }

  // item(index, worker) for every index below num_items, each claimed by whoever is free.
  template <class Item>
  void each(size_t num_items, const Item& item) {
    std::atomic<size_t> next{0};
    run([&](size_t worker) {
      for (size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < num_items;) item(i, worker);
    });
  }

  // Inside a job: returns once every worker has come here, and what they wrote before is seen.
  void barrier();

  // Ends the workers, once the job in progress is done. A job after it throws std::runtime_error.
  void close();

 private:
  using Call = void (*)(const void* context, size_t worker);
  void run_job(Call call, const void* context);
  void work(size_t worker);
  void run_share(size_t worker);

  const size_t count_;
  const Kernels& kernels_;
  std::vector<std::thread> workers_;
  std::mutex callers_;          // who holds it runs a job
  bool closing_ = false;

  Call call_ = nullptr;
  const void* context_ = nullptr;
  Signal started_;
  alignas(64) std::atomic<size_t> busy_{0};   // workers other than the caller that have not finished the job
  Signal finished_;
  alignas(64) std::atomic<size_t> arrived_{0};
  Signal passed_;

  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace pagoda
