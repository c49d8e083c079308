#include "threads.h"

#include <chrono>
#include <climits>
#include <stdexcept>

#include "float_mode.h"

#ifdef __linux__
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif
#ifndef _WIN32
#include <pthread.h>
#include <signal.h>
#endif
#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pagoda {
namespace {

constexpr std::chrono::microseconds kSpinTime{50};
constexpr int kPausesPerLook = 32;    // at the time
constexpr int kLooksAwake = 1000;

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Signals are for Python's own threads. Threads inherit the mask of who starts them.
class SignalsBlocked {
 public:
#ifndef _WIN32
  SignalsBlocked() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &saved_);
  }
  ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &saved_, nullptr); }

 private:
  sigset_t saved_;
#endif
};

}  // namespace

void Signal::wait_while(uint32_t seen) {
  if (value() != seen) return;
  const auto start = std::chrono::steady_clock::now();
  do {
    for (int i = 0; i < kPausesPerLook; ++i) {
      if (value() != seen) return;
      pause();
    }
  } while (std::chrono::steady_clock::now() - start < kSpinTime);
  // Counted before the number is looked at again, and looked for after it has changed: one of the two sees the other.
  sleepers_.fetch_add(1);
  sleep_while(seen);
  sleepers_.fetch_sub(1);
}

#ifdef __linux__
void Signal::sleep_while(uint32_t seen) {
  static_assert(sizeof(value_) == sizeof(uint32_t));
  while (value_.load() == seen) syscall(SYS_futex, &value_, FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
}

void Signal::advance() {
  value_.fetch_add(1);
  if (sleepers_.load() > 0) syscall(SYS_futex, &value_, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}
#else
void Signal::sleep_while(uint32_t seen) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [&] { return value_.load() != seen; });
}

void Signal::advance() {
  value_.fetch_add(1);
  if (sleepers_.load() == 0) return;
  { std::lock_guard<std::mutex> lock(mutex_); }   // a sleeper is now either asleep or about to see the new number
  changed_.notify_all();
}
#endif

Threads::Threads(size_t count, const Kernels& kernels) : count_(count), kernels_(kernels), inside_(count) {
  const SignalsBlocked blocked;
  workers_.reserve(count - 1);
  try {
    for (size_t worker = 1; worker < count; ++worker) workers_.emplace_back([this, worker] { work(worker); });
  } catch (...) {
    close();
    throw;
  }
}

void Threads::close() {
  std::lock_guard<std::mutex> lock(callers_);
  closing_.store(true);
  clock_.advance();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Threads::run_stages(const Stage* stages, size_t num_stages) {
  std::lock_guard<std::mutex> lock(callers_);
  if (closing_.load()) throw std::runtime_error("the threads are closed");
  const FloatMode mode(Denormals::are_zero);
  lay_out(stages, num_stages);
  open_.store(true);
  clock_.advance();
  for (size_t s = 0; s < num_stages; ++s) {
    take(s, 0);
    clock_.wait_while(first_ + static_cast<uint32_t>(s));
  }
  open_.store(false);
  // Who is still inside finds nothing to do and leaves at once, unless it has to get a processor first.
  for (const Counter& inside : inside_)
    for (int looks = 0; inside.value.load() != 0; ++looks) {
      if (looks < kLooksAwake) pause();
      else std::this_thread::yield();
    }
  if (error_) std::rethrow_exception(error_);
}

void Threads::lay_out(const Stage* stages, size_t num_stages) {
  first_ = clock_.value() + 1;
  stages_ = stages;
  num_stages_ = num_stages;
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  if (left_.size() < num_stages) {
    shares_ = std::vector<Share>(num_stages * count_);
    left_ = std::vector<Counter>(num_stages);   // last: where memory ends, its size still says what there is
  }
  for (size_t s = 0; s < num_stages; ++s) {
    const size_t items = stages[s].num_items;
    left_[s].value.store(static_cast<uint32_t>(items), std::memory_order_relaxed);
    for (size_t w = 0; w < count_; ++w) {
      Share& share = shares_[s * count_ + w];
      share.next.store(static_cast<uint32_t>(items * w / count_), std::memory_order_relaxed);
      share.end = static_cast<uint32_t>(items * (w + 1) / count_);
    }
  }
}

void Threads::work(size_t worker) {
  const FloatMode mode(Denormals::are_zero);
  std::atomic<uint32_t>& inside = inside_[worker].value;
  for (uint32_t seen = 0;;) {
    clock_.wait_while(seen);
    // Either the caller, who closes first and looks second, sees this worker inside, or the worker sees that it is closed.
    inside.store(1);
    seen = clock_.value();
    if (closing_.load()) return;
    if (open_.load() && seen - first_ < num_stages_) take(seen - first_, worker);
    inside.store(0, std::memory_order_release);
  }
}

void Threads::take(size_t stage, size_t worker) {
  Share* const shares = shares_.data() + stage * count_;
  const bool one_each = stages_[stage].one_each;
  uint32_t done = 0;
  for (size_t i = 0; i < (one_each ? 1 : count_); ++i) {
    Share& share = shares[(worker + i) % count_];
    while (share.next.load(std::memory_order_relaxed) < share.end) {
      const uint32_t item = share.next.fetch_add(1, std::memory_order_relaxed);
      if (item >= share.end) break;
      run_item(stages_[stage], item, worker);
      ++done;
    }
  }
  if (done > 0 && left_[stage].value.fetch_sub(done, std::memory_order_acq_rel) == done) clock_.advance();
}

void Threads::run_item(const Stage& stage, size_t item, size_t worker) {
  if (failed_.load(std::memory_order_relaxed)) return;
  try {
    stage.run(stage.context, item, worker);
  } catch (...) {
    std::lock_guard<std::mutex> lock(error_mutex_);
    if (!error_) error_ = std::current_exception();
    failed_.store(true, std::memory_order_relaxed);
  }
}

}  // namespace pagoda
