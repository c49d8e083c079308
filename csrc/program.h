// Commands over tensors in one arena, recorded once and run every step.
//
// A step is one call of the threads: each command is a stage, whose items any worker may take.
//
// A program is for one caller at a time. A step, a slice of logits or something recorded while another call has it throws
// std::runtime_error.
#pragma once

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include "attention_plan.h"
#include "commands.h"
#include "threads.h"

namespace pagoda {

class Program {
 public:
  Program(Threads& threads, KVCache& cache, size_t max_tokens, size_t max_seqs, size_t max_logit_rows, size_t arena_bytes);

  Threads& threads() const { return threads_; }
  const Kernels& kernels() const { return threads_.kernels(); }
  KVCache& cache() const { return cache_; }

  // Recording. Throws std::invalid_argument, and std::out_of_range for an index that was not given out.
  size_t declare(size_t width, int64_t f32, int64_t bf16, int64_t q8);
  size_t declare_rope(std::vector<float> inverse_frequencies);
  const StepTensor& tensor(int64_t index) const;
  const Rope* rope(int64_t index) const;                     // null for −1
  const AttentionPlan& plan(const AttentionShape& shape);    // made where there is none yet
  void record(CommandPtr command);
  void set_rows(int64_t index, RowsOf rows_of);              // of a command's output, for the commands after it
  void look_up(const Matrix& table, bool by_position);       // bounds what a step may ask of it
  void record_logits(const StepTensor& x, const Matrix& head);

  // Runs a step. Throws std::out_of_range and std::invalid_argument before anything is run, and leaves the logits of the
  // first rows in place. The caller keeps the step's arrays alive until then.
  void run(const Step& step);
  // Works out another slice of the last step's logits.
  void run_logits(size_t first);

  const float* logits() const { return reinterpret_cast<const float*>(logits_.data()); }
  size_t num_sliced_rows() const { return step_.num_sliced_rows; }
  size_t vocab_size() const { return vocab_size_; }

  // The first rows of one form as float32, [rows, width].
  void read(const StepTensor& tensor, size_t rows, Form form, float* out) const;
  size_t max_tokens() const { return max_tokens_; }

 private:
  // What a stage of the threads' work is handed.
  struct Running {
    const Program* program;
    const Command* command;
  };

  // Has the program while it lives.
  class Caller {
   public:
    explicit Caller(Program& program);
    ~Caller() { has_caller_.store(false, std::memory_order_release); }
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

   private:
    std::atomic<bool>& has_caller_;
  };

  void append(CommandPtr command);
  void check(const Step& step) const;   // program_check.cpp
  void slice(size_t first);
  void run_commands(const CommandPtr* first, const CommandPtr* end);

  std::atomic<bool> has_caller_{false};
  Threads& threads_;
  KVCache& cache_;
  size_t max_tokens_;
  size_t max_seqs_;
  size_t max_logit_rows_;
  Memory arena_;
  Memory logits_;
  size_t vocab_size_ = 0;
  size_t num_ids_;         // ids and positions below these may be looked up
  size_t num_positions_;
  std::vector<StepTensor> tensors_;
  std::vector<std::unique_ptr<Rope>> ropes_;
  std::vector<std::unique_ptr<AttentionPlan>> plans_;
  std::vector<CommandPtr> commands_;

  Memory scratch_;
  size_t scratch_bytes_ = 0;   // of one worker
  std::vector<Running> running_;
  std::vector<Stage> stages_;
  Step step_;
};

}  // namespace pagoda
