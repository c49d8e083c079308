#include "threads.h"

#include <chrono>
#include <climits>
#include <stdexcept>

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
constexpr int kPausesPerLook = 32;   // at the clock

void pause() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Thrown at a barrier where another worker has failed; its own error is what the caller gets.
struct OtherWorkerFailed {};

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

#if defined(__x86_64__)
FloatMode::FloatMode() : saved_(_mm_getcsr()) { _mm_setcsr(0x9FC0); }   // exceptions masked, to nearest, FTZ, DAZ
FloatMode::~FloatMode() { _mm_setcsr(static_cast<unsigned>(saved_)); }
#elif defined(__aarch64__)
FloatMode::FloatMode() {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{1} << 24));   // FZ; to nearest, no traps
}
FloatMode::~FloatMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
FloatMode::FloatMode() : saved_(0) {}
FloatMode::~FloatMode() = default;
#endif

Threads::Threads(size_t count, const Kernels& kernels) : count_(count), kernels_(kernels) {
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
  closing_ = true;
  started_.advance();
  for (std::thread& worker : workers_) worker.join();
  workers_.clear();
}

void Threads::work(size_t worker) {
  const FloatMode mode;
  for (uint32_t seen = 0;; ++seen) {
    started_.wait_while(seen);
    if (closing_) return;
    run_share(worker);
    if (busy_.fetch_sub(1, std::memory_order_acq_rel) == 1) finished_.advance();
  }
}

void Threads::run_job(Call call, const void* context) {
  std::lock_guard<std::mutex> lock(callers_);
  if (closing_) throw std::runtime_error("the threads are closed");
  const FloatMode mode;
  call_ = call;
  context_ = context;
  failed_.store(false, std::memory_order_relaxed);
  error_ = nullptr;
  arrived_.store(0, std::memory_order_relaxed);
  if (count_ > 1) {
    const uint32_t seen = finished_.value();
    busy_.store(count_ - 1, std::memory_order_relaxed);
    started_.advance();
    run_share(0);
    finished_.wait_while(seen);
  } else {
    run_share(0);
  }
  if (error_) std::rethrow_exception(error_);
}

void Threads::run_share(size_t worker) {
  try {
    call_(context_, worker);
  } catch (const OtherWorkerFailed&) {
  } catch (...) {
    {
      std::lock_guard<std::mutex> lock(error_mutex_);
      if (!error_) error_ = std::current_exception();
    }
    failed_.store(true);
    passed_.advance();
  }
}

void Threads::barrier() {
  if (count_ == 1) return;
  const uint32_t seen = passed_.value();
  if (failed_.load()) throw OtherWorkerFailed{};
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == count_) {
    arrived_.store(0, std::memory_order_relaxed);
    passed_.advance();
  } else {
    passed_.wait_while(seen);
  }
  if (failed_.load()) throw OtherWorkerFailed{};
}

}  // namespace pagoda
