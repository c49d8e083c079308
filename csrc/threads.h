// A pool of worker threads that do one thing at a time, and the kernels they use.
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

// Items that do not touch what each other writes. run(context, item, worker).
struct Stage {
  void (*run)(const void* context, size_t item, size_t worker);
  const void* context;
  size_t num_items;          // at least 1
  bool one_each = false;     // item i is worker i's, and there are as many
};

// Workers take items of a stage until there are none left, and the next stage begins when all items are done. It does not
// wait for workers that have none: one that the operating system took away holds up others only while it is inside an item.
//
// The caller is worker 0. A second caller waits until the first one's work is done. Items never take Python's lock, and
// callers hold it neither.
class Threads {
 public:
  Threads(size_t count, const Kernels& kernels);
  ~Threads() { close(); }
  Threads(const Threads&) = delete;
  Threads& operator=(const Threads&) = delete;

  size_t count() const { return count_; }
  const Kernels& kernels() const { return kernels_; }

  // One after the other. After an error no more items are run, and it comes out here.
  void run_stages(const Stage* stages, size_t num_stages);

  // item(index, worker) for every index below num_items, by whoever is free.
  template <class Item>
  void each(size_t num_items, const Item& item) {
    if (num_items == 0) return;
    const Stage stage{[](const void* context, size_t i, size_t worker) { (*static_cast<const Item*>(context))(i, worker); },
                      &item, num_items};
    run_stages(&stage, 1);
  }

  // job(worker), once on every worker.
  template <class Job>
  void run(const Job& job) {
    const Stage stage{[](const void* context, size_t, size_t worker) { (*static_cast<const Job*>(context))(worker); },
                      &job, count_, true};
    run_stages(&stage, 1);
  }

  // Ends the workers, once the work in progress is done. Work after it throws std::runtime_error.
  void close();

 private:
  // Each worker begins with a share of its own, and takes from the others' when it is done: who runs what is the same from
  // step to step as long as nobody is late.
  struct alignas(64) Share {
    std::atomic<uint32_t> next{0};
    uint32_t end = 0;
  };
  struct alignas(64) Counter {
    std::atomic<uint32_t> value{0};
  };

  void work(size_t worker);
  void lay_out(const Stage* stages, size_t num_stages);
  void take(size_t stage, size_t worker);
  void run_item(const Stage& stage, size_t item, size_t worker);

  const size_t count_;
  const Kernels& kernels_;
  std::vector<std::thread> workers_;
  std::mutex callers_;                 // who holds it has work done
  std::atomic<bool> closing_{false};

  // Stage s is in progress while the clock shows first_ + s. Workers read what follows only while `open_` and while their
  // own `inside_` is set; it is written when there is neither.
  Signal clock_;
  alignas(64) std::atomic<bool> open_{false};
  std::vector<Counter> inside_;        // [count]
  uint32_t first_ = 0;
  const Stage* stages_ = nullptr;
  size_t num_stages_ = 0;
  std::vector<Share> shares_;          // [stages, count]
  std::vector<Counter> left_;          // [stages]: items that are not done

  std::atomic<bool> failed_{false};
  std::mutex error_mutex_;
  std::exception_ptr error_;
};

}  // namespace pagoda
