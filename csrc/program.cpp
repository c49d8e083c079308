#include "program.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

#include "commands_attention.h"

namespace pagoda {

Program::Program(Threads& threads, KVCache& cache, size_t max_tokens, size_t max_seqs, size_t max_logit_rows,
                 size_t arena_bytes)
    : threads_(threads), cache_(cache), max_tokens_(max_tokens), max_seqs_(max_seqs), max_logit_rows_(max_logit_rows),
      arena_(arena_bytes), num_ids_(std::numeric_limits<size_t>::max()), num_positions_(num_ids_) {
  require(max_tokens > 0 && max_seqs > 0 && max_logit_rows > 0, "max_tokens, max_seqs and max_logit_rows must be at least 1");
  append(prologue(cache_, ropes_));
}

Program::Caller::Caller(Program& program) : has_caller_(program.has_caller_) {
  if (has_caller_.exchange(true, std::memory_order_acquire))
    throw std::runtime_error("the program is in use: it is for one caller at a time");
}

size_t Program::declare(size_t width, int64_t f32, int64_t bf16, int64_t q8) {
  require(width > 0, "tensor: width must be at least 1");
  require(q8 < 0 || width % kGroup == 0, "tensor: with q8, width must be a multiple of 32");
  const auto place = [&](int64_t offset, Form form) -> uint8_t* {
    if (offset < 0) return nullptr;
    const size_t bytes = form_bytes(form, width, max_tokens_), begin = static_cast<size_t>(offset);
    require(begin % 64 == 0, "tensor: offsets must be multiples of 64");
    require(begin <= arena_.bytes() && bytes <= arena_.bytes() - begin, "tensor: a form does not fit the arena");
    return arena_.data() + begin;
  };
  StepTensor tensor;
  tensor.width = width;
  tensor.f32 = reinterpret_cast<float*>(place(f32, Form::f32));
  tensor.bf16 = reinterpret_cast<uint16_t*>(place(bf16, Form::bf16));
  tensor.codes = reinterpret_cast<int8_t*>(place(q8, Form::q8));
  if (tensor.codes) tensor.groups = reinterpret_cast<Group*>(tensor.codes + max_tokens_ * tensor.code_stride());
  tensors_.push_back(tensor);
  return tensors_.size() - 1;
}

size_t Program::declare_rope(std::vector<float> inverse_frequencies) {
  const Caller caller(*this);
  auto rope = std::make_unique<Rope>();
  rope->inverse_frequencies = std::move(inverse_frequencies);
  const size_t numbers = max_tokens_ * rope->half();
  rope->memory = Memory(2 * numbers * sizeof(float));
  rope->cosine = reinterpret_cast<float*>(rope->memory.data());
  rope->sine = rope->cosine + numbers;
  ropes_.push_back(std::move(rope));
  return ropes_.size() - 1;
}

const StepTensor& Program::tensor(int64_t index) const {
  if (index < 0 || static_cast<size_t>(index) >= tensors_.size())
    throw std::out_of_range("there is no tensor " + std::to_string(index));
  return tensors_[static_cast<size_t>(index)];
}

const Rope* Program::rope(int64_t index) const {
  if (index == -1) return nullptr;
  if (index < 0 || static_cast<size_t>(index) >= ropes_.size())
    throw std::out_of_range("there is no rope " + std::to_string(index));
  return ropes_[static_cast<size_t>(index)].get();
}

const AttentionPlan& Program::plan(const AttentionShape& shape) {
  const Caller caller(*this);
  for (const auto& plan : plans_)
    if (plan->shape() == shape) return *plan;
  const size_t max_context = cache_.num_blocks() * cache_.block_size();
  plans_.push_back(std::make_unique<AttentionPlan>(shape, threads_.count(), max_context));
  return *plans_.back();
}

void Program::set_rows(int64_t index, RowsOf rows_of) {
  tensor(index);
  tensors_[static_cast<size_t>(index)].rows_of = rows_of;
}

void Program::look_up(const Matrix& table, bool by_position) {
  size_t& bound = by_position ? num_positions_ : num_ids_;
  bound = std::min(bound, table.num_columns());
}

void Program::record(CommandPtr command) {
  const Caller caller(*this);
  append(std::move(command));
}

void Program::append(CommandPtr command) {
  require(logits_.data() == nullptr, "the logits are the last command");
  commands_.push_back(std::move(command));
  const size_t bytes = align64(commands_.back()->scratch_bytes());
  if (bytes > scratch_bytes_) {
    scratch_bytes_ = bytes;
    scratch_ = Memory(threads_.count() * bytes);
  }
  running_.reserve(commands_.size());
  stages_.reserve(commands_.size());
}

void Program::record_logits(const StepTensor& x, const Matrix& head) {
  const Caller caller(*this);
  Memory logits(max_logit_rows_ * head.num_columns() * sizeof(float));
  append(logits_linear(kernels(), reinterpret_cast<float*>(logits.data()), x, head, threads_.count()));
  logits_ = std::move(logits);
  vocab_size_ = head.num_columns();
}

void Program::run(const Step& step) {
  const Caller caller(*this);
  check(step);
  step_ = step;
  slice(0);
  for (const auto& plan : plans_) plan->prepare(step_);
  run_commands(commands_.data(), commands_.data() + commands_.size());
}

void Program::run_logits(size_t first) {
  const Caller caller(*this);
  if (first >= step_.num_logit_rows)
    throw std::out_of_range("first is " + std::to_string(first) + ", the step had " + std::to_string(step_.num_logit_rows) +
                            " rows of logits");
  require(logits_.data() != nullptr, "the program has no logits");
  slice(first);
  run_commands(&commands_.back(), &commands_.back() + 1);
}

void Program::slice(size_t first) {
  step_.first_logit_row = first;
  step_.num_sliced_rows = logits_.data() ? std::min(max_logit_rows_, step_.num_logit_rows - first) : 0;
}

void Program::run_commands(const CommandPtr* first, const CommandPtr* end) {
  running_.clear();
  stages_.clear();
  for (const CommandPtr* command = first; command != end; ++command) running_.push_back({this, command->get()});
  for (const Running& running : running_) {
    const size_t num_items = running.command->num_items(step_);
    if (num_items == 0) continue;
    stages_.push_back({[](const void* context, size_t item, size_t worker) {
                         const auto& [program, command] = *static_cast<const Running*>(context);
                         command->run(program->step_, item, program->scratch_.data() + worker * program->scratch_bytes_);
                       },
                       &running, num_items});
  }
  threads_.run_stages(stages_.data(), stages_.size());
}

void Program::read(const StepTensor& tensor, size_t rows, Form form, float* out) const {
  const bool there = form == Form::f32 ? tensor.f32 != nullptr : form == Form::bf16 ? tensor.bf16 != nullptr : tensor.codes != nullptr;
  require(there, "the tensor lacks that form");
  require(rows <= max_tokens_, "the tensor has fewer rows");
  for (size_t r = 0; r < rows; ++r) {
    const RowOut row = tensor.row(r);
    for (size_t i = 0; i < tensor.width; ++i) {
      if (form == Form::f32) *out++ = row.f32[i];
      else if (form == Form::bf16) *out++ = float_from_bf16(row.bf16[i]);
      else *out++ = row.groups[i / kGroup].scale * static_cast<float>(row.codes[i]);
    }
  }
}

}  // namespace pagoda
