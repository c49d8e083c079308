#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <stdexcept>

#include "commands_attention.h"
#include "module.h"
#include "program.h"

namespace pagoda {

using namespace nanobind::literals;

namespace {

using Floats = ArrayIn<float, 1>;

std::vector<float> copy_of(const Floats& array) { return {array.data(), array.data() + array.shape(0)}; }
std::vector<float> copy_of(const std::optional<Floats>& array) { return array ? copy_of(*array) : std::vector<float>(); }

Activation activation_named(const std::string& name) {
  if (name == "silu") return Activation::silu;
  if (name == "gelu_tanh") return Activation::gelu_tanh;
  throw std::invalid_argument("activation is '" + name + "', must be silu or gelu_tanh");
}

// A command whose output has as many rows as `x`.
void record(Program& program, int64_t out, int64_t x, CommandPtr command) {
  program.record(std::move(command));
  program.set_rows(out, program.tensor(x).rows_of);
}

void record_norm(Program& program, int64_t out, int64_t x, const Floats& gain, std::vector<float> bias, float eps, int64_t y,
                 int64_t total) {
  record(program, out, x,
         norm(program.kernels(), {program.tensor(out), program.tensor(x), y < 0 ? nullptr : &program.tensor(y),
                                  total < 0 ? nullptr : &program.tensor(total), copy_of(gain), std::move(bias), eps}));
  if (total >= 0) program.set_rows(total, program.tensor(x).rows_of);
}

const KVCache::Layer& layer_at(const Program& program, int64_t layer) {
  if (layer < 0 || static_cast<size_t>(layer) >= program.cache().layers().size())
    throw std::out_of_range("there is no layer " + std::to_string(layer));
  return program.cache().layers()[static_cast<size_t>(layer)];
}

void record_attention(Program& program, int64_t out, int64_t q, int64_t layer, int64_t num_heads, float scale,
                      int64_t window) {
  const KVCache::Layer& shape = layer_at(program, layer);
  const auto kv_heads = static_cast<int64_t>(shape.kv_heads);
  if (num_heads < 1 || num_heads % kv_heads != 0)
    throw std::invalid_argument("num_heads is " + std::to_string(num_heads) + ", must be a multiple of " +
                                std::to_string(kv_heads));
  if (window < 0) throw std::invalid_argument("window is " + std::to_string(window) + ", must be at least 0");
  const AttentionPlan& plan = program.plan({shape.kv_heads, static_cast<size_t>(num_heads / kv_heads), shape.head_dim,
                                            static_cast<size_t>(window)});
  for (CommandPtr& command : paged_attention(program.kernels(), program.tensor(out), program.tensor(q), program.cache(),
                                             static_cast<size_t>(layer), scale, plan))
    program.record(std::move(command));
}

// The slice of logits that is in place: a view that keeps the program alive.
nb::object logits_view(nb::handle self) {
  const Program& program = nb::cast<const Program&>(self);
  const size_t shape[2] = {program.num_sliced_rows(), program.vocab_size()};
  return nb::ndarray<nb::numpy, float>(const_cast<float*>(program.logits()), 2, shape, self).cast();
}

void require_length(size_t length, size_t expected, const char* name) {
  if (length != expected)
    throw std::invalid_argument(std::string(name) + " has " + std::to_string(length) + " entries, must have " +
                                std::to_string(expected));
}

nb::object run(nb::handle self, const ArrayIn<int64_t, 1>& input_ids, const ArrayIn<int64_t, 1>& positions,
               const ArrayIn<int64_t, 1>& slot_mapping, const ArrayIn<int32_t, 1>& query_start_loc,
               const ArrayIn<int32_t, 1>& seq_lens, const ArrayIn<int32_t, 2>& block_table,
               const ArrayIn<int64_t, 1>& logit_rows, const ArrayIn<int64_t, 1>& new_blocks) {
  Step step;
  step.num_tokens = input_ids.shape(0);
  step.num_seqs = seq_lens.shape(0);
  step.num_logit_rows = logit_rows.shape(0);
  step.num_new_blocks = new_blocks.shape(0);
  step.max_blocks = block_table.shape(1);
  require_length(positions.shape(0), step.num_tokens, "positions");
  require_length(slot_mapping.shape(0), step.num_tokens, "slot_mapping");
  require_length(query_start_loc.shape(0), step.num_seqs + 1, "query_start_loc");
  require_length(block_table.shape(0), step.num_seqs, "block_table");
  step.input_ids = input_ids.data();
  step.positions = positions.data();
  step.slot_mapping = slot_mapping.data();
  step.query_start_loc = query_start_loc.data();
  step.seq_lens = seq_lens.data();
  step.block_table = block_table.data();
  step.logit_rows = logit_rows.data();
  step.new_blocks = new_blocks.data();
  {
    Program& program = nb::cast<Program&>(self);
    const nb::gil_scoped_release unlocked;
    program.run(step);
  }
  return logits_view(self);
}

nb::object logits(nb::handle self, size_t first) {
  {
    Program& program = nb::cast<Program&>(self);
    const nb::gil_scoped_release unlocked;
    program.run_logits(first);
  }
  return logits_view(self);
}

void bind_recording(nb::class_<Program>& program) {
  program.def("tensor", &Program::declare, "width"_a, "f32"_a = -1, "bf16"_a = -1, "q8"_a = -1)
      .def("rope", [](Program& p, const Floats& frequencies) { return p.declare_rope(copy_of(frequencies)); },
           "inverse_frequencies"_a.noconvert())
      .def("embed", [](Program& p, int64_t out, const Matrix& table, float scale) {
        p.record(embed(p.kernels(), p.tensor(out), table, scale));
        p.look_up(table, false);
      }, "out"_a, "table"_a, "scale"_a, nb::keep_alive<1, 3>())
      .def("embed_positions", [](Program& p, int64_t out, const Matrix& table) {
        p.record(embed_positions(p.kernels(), p.tensor(out), table));
        p.look_up(table, true);
      }, "out"_a, "table"_a, nb::keep_alive<1, 3>())
      .def("add", [](Program& p, int64_t out, int64_t x, int64_t y) {
        record(p, out, x, add(p.kernels(), p.tensor(out), p.tensor(x), p.tensor(y)));
      }, "out"_a, "x"_a, "y"_a)
      .def("convert", [](Program& p, int64_t out, int64_t x) {
        record(p, out, x, convert(p.kernels(), p.tensor(out), p.tensor(x)));
      }, "out"_a, "x"_a)
      .def("rms_norm", [](Program& p, int64_t out, int64_t x, const Floats& gain, float eps, int64_t y, int64_t total) {
        record_norm(p, out, x, gain, {}, eps, y, total);
      }, "out"_a, "x"_a, "gain"_a.noconvert(), "eps"_a, "y"_a = -1, "total"_a = -1)
      .def("layer_norm", [](Program& p, int64_t out, int64_t x, const Floats& gain, const Floats& bias, float eps, int64_t y,
                            int64_t total) { record_norm(p, out, x, gain, copy_of(bias), eps, y, total); },
           "out"_a, "x"_a, "gain"_a.noconvert(), "bias"_a.noconvert(), "eps"_a, "y"_a = -1, "total"_a = -1)
      .def("linear", [](Program& p, int64_t out, int64_t x, const Matrix& weight) {
        record(p, out, x, linear(p.kernels(), p.tensor(out), p.tensor(x), weight, p.threads().count()));
      }, "out"_a, "x"_a, "weight"_a, nb::keep_alive<1, 4>())
      .def("gated_linear", [](Program& p, int64_t out, int64_t x, const Matrix& weight, const std::string& kind) {
        record(p, out, x, gated_linear(p.kernels(), p.tensor(out), p.tensor(x), weight, activation_named(kind),
                                       p.threads().count()));
      }, "out"_a, "x"_a, "weight"_a, "activation"_a, nb::keep_alive<1, 4>())
      .def("gated_activation", [](Program& p, int64_t out, int64_t x, const std::string& kind) {
        record(p, out, x, gated_activation(p.kernels(), p.tensor(out), p.tensor(x), activation_named(kind)));
      }, "out"_a, "x"_a, "activation"_a)
      .def("activation", [](Program& p, int64_t out, int64_t x, const std::string& kind) {
        record(p, out, x, activation(p.kernels(), p.tensor(out), p.tensor(x), activation_named(kind)));
      }, "out"_a, "x"_a, "activation"_a)
      .def("rope_and_store_kv", [](Program& p, int64_t q, int64_t qkv, int64_t layer, size_t num_heads, int64_t rope,
                                   const std::optional<Floats>& q_norm, const std::optional<Floats>& k_norm, float eps) {
        layer_at(p, layer);
        p.record(rope_and_store_kv(p.kernels(), p.tensor(q), p.tensor(qkv), p.cache(), static_cast<size_t>(layer),
                                   {num_heads, p.rope(rope), copy_of(q_norm), copy_of(k_norm), eps}));
      }, "q"_a, "qkv"_a, "layer"_a, "num_heads"_a, "rope"_a = -1, "q_norm"_a.noconvert() = nb::none(),
           "k_norm"_a.noconvert() = nb::none(), "eps"_a = 0.0f)
      .def("paged_attention", &record_attention, "out"_a, "q"_a, "layer"_a, "num_heads"_a, "scale"_a, "window"_a = 0)
      .def("select_rows", [](Program& p, int64_t out, int64_t x) {
        p.record(select_rows(p.tensor(out), p.tensor(x)));
        p.set_rows(out, RowsOf::logit_rows);
      }, "out"_a, "x"_a)
      .def("logits_linear", [](Program& p, int64_t x, const Matrix& head) { p.record_logits(p.tensor(x), head); }, "x"_a,
           "head"_a, nb::keep_alive<1, 3>());
}

}  // namespace

void bind_program(nb::module_& module) {
  nb::class_<Program> program(module, "Program");
  program.def(nb::init<Threads&, KVCache&, size_t, size_t, size_t, size_t>(), "threads"_a, "cache"_a, "max_tokens"_a,
              "max_seqs"_a, "max_logit_rows"_a, "arena_bytes"_a, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  bind_recording(program);
  program.def("run", &run, "input_ids"_a.noconvert(), "positions"_a.noconvert(), "slot_mapping"_a.noconvert(),
              "query_start_loc"_a.noconvert(), "seq_lens"_a.noconvert(), "block_table"_a.noconvert(),
              "logit_rows"_a.noconvert(), "new_blocks"_a.noconvert())
      .def("logits", &logits, "first"_a)
      .def("read", [](const Program& p, int64_t tensor, size_t rows, const std::string& form) {
        const StepTensor& t = p.tensor(tensor);
        require(rows <= p.max_tokens(), "the tensor has fewer rows");
        NewArray<float> out(rows, t.width);
        p.read(t, rows, form_named(form), out.numbers.get());
        return out.release();
      }, "tensor"_a, "rows"_a, "form"_a = "f32");
}

}  // namespace pagoda
