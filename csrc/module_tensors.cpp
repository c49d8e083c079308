#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "instruction_sets.h"
#include "kv_cache.h"
#include "matrix.h"
#include "module.h"
#include "tensor.h"
#include "threads.h"

namespace pagoda {

using namespace nanobind::literals;

namespace {

constexpr const char* kFormNames[] = {"f32", "bf16", "q8"};

using Segments = std::vector<std::tuple<std::string, ArrayIn<uint8_t, 2>>>;

void new_threads(Threads* self, int64_t count, const std::string& instruction_set) {
  if (count < 1) throw std::invalid_argument("count is " + std::to_string(count) + ", must be at least 1");
  const Kernels* kernels = kernels_for(instruction_set.c_str());
  if (!kernels)
    throw std::invalid_argument("instruction_set is '" + instruction_set + "', which this machine cannot execute");
  new (self) Threads(static_cast<size_t>(count), *kernels);
}

void new_matrix(Matrix* self, Threads& threads, size_t in_features, const Segments& segments,
                const std::optional<ArrayIn<float, 1>>& bias) {
  std::vector<StoredSegment> stored;
  size_t out_features = 0;
  for (const auto& [name, rows] : segments) {
    const Format format = format_named(name);
    const size_t row_bytes = stored_row_bytes(format, in_features);
    if (rows.shape(1) != row_bytes)
      throw std::invalid_argument("a row of a segment has " + std::to_string(rows.shape(1)) + " bytes, must have " +
                                  std::to_string(row_bytes));
    stored.push_back({format, rows.data(), rows.shape(0)});
    out_features += rows.shape(0);
  }
  if (out_features == 0) throw std::invalid_argument("segments have no rows");
  if (bias && bias->shape(0) != out_features)
    throw std::invalid_argument("bias has " + std::to_string(bias->shape(0)) + " numbers, must have " +
                                std::to_string(out_features));
  const nb::gil_scoped_release unlocked;
  new (self) Matrix(threads, in_features, stored, bias ? bias->data() : nullptr);
}

std::vector<std::string> input_forms(const Matrix& matrix) {
  std::vector<std::string> names;
  for (const Form form : {Form::f32, Form::bf16, Form::q8})
    if (matrix.has_input_form(form)) names.push_back(kFormNames[static_cast<int>(form)]);
  return names;
}

KVFormat kv_format_named(const std::string& name) {
  for (int i = 0; i < kNumKVFormats; ++i)
    if (name == kKVFormatNames[i]) return static_cast<KVFormat>(i);
  throw std::invalid_argument("format is '" + name + "', must be bf16 or int8");
}

void new_cache(KVCache* self, const std::vector<std::pair<size_t, size_t>>& layers, size_t num_blocks, size_t block_size,
               const std::string& format) {
  new (self) KVCache(layers, num_blocks, block_size, kv_format_named(format));
}

nb::object read_block(const KVCache& cache, size_t layer, size_t block, bool keys) {
  if (layer >= cache.layers().size()) throw std::out_of_range("layer is out of range");
  if (block >= cache.num_blocks()) throw std::out_of_range("block is out of range");
  const KVCache::Layer& l = cache.layers()[layer];
  NewArray<float> out(cache.block_size(), l.kv_heads, l.head_dim);
  if (keys) cache.read_keys(layer, block, out.numbers.get());
  else cache.read_values(layer, block, out.numbers.get());
  return out.release();
}

}  // namespace

Form form_named(const std::string& name) {
  for (int i = 0; i < 3; ++i)
    if (name == kFormNames[i]) return static_cast<Form>(i);
  throw std::invalid_argument("form is '" + name + "', must be f32, bf16 or q8");
}

void bind_tensors(nb::module_& module) {
  module.def("instruction_sets", &instruction_sets);
  module.def("input_form", [](const std::string& format) {
    return kFormNames[static_cast<int>(input_form(format_named(format)))];
  }, "format"_a);
  module.def("form_bytes", [](const std::string& form, size_t width, size_t rows) {
    return form_bytes(form_named(form), width, rows);
  }, "form"_a, "width"_a, "rows"_a);
  module.def("packed_bytes", [](const std::string& format, size_t out_features, size_t in_features) {
    return packed_bytes(format_named(format), out_features, in_features);
  }, "format"_a, "out_features"_a, "in_features"_a);

  nb::class_<Threads>(module, "Threads")
      .def("__init__", &new_threads, "count"_a, "instruction_set"_a)
      .def_prop_ro("count", &Threads::count)
      .def_prop_ro("instruction_set", [](const Threads& threads) { return threads.kernels().name; })
      .def("close", &Threads::close, nb::call_guard<nb::gil_scoped_release>());

  nb::class_<Matrix>(module, "Matrix")
      .def("__init__", &new_matrix, "threads"_a, "in_features"_a, "segments"_a.noconvert(), "bias"_a.noconvert() = nb::none(),
           nb::keep_alive<1, 2>())
      .def_prop_ro("in_features", &Matrix::k)
      .def_prop_ro("out_features", &Matrix::num_columns)
      .def_prop_ro("num_bytes", &Matrix::num_bytes)
      .def_prop_ro("input_forms", &input_forms)
      .def("unpack", [](const Matrix& matrix, size_t row) {
        if (row >= matrix.num_columns()) throw std::out_of_range("row is out of range");
        NewArray<float> out(matrix.k());
        matrix.unpack(row, 1.0f, out.numbers.get());
        return out.release();
      }, "row"_a);

  nb::class_<KVCache>(module, "KVCache")
      .def("__init__", &new_cache, "layers"_a, "num_blocks"_a, "block_size"_a, "format"_a = "bf16")
      .def_prop_ro("num_bytes", &KVCache::num_bytes)
      .def_prop_ro("format", [](const KVCache& cache) { return kKVFormatNames[static_cast<int>(cache.format())]; })
      .def("keys", [](const KVCache& cache, size_t layer, size_t block) { return read_block(cache, layer, block, true); },
           "layer"_a, "block"_a)
      .def("values",
           [](const KVCache& cache, size_t layer, size_t block) { return read_block(cache, layer, block, false); },
           "layer"_a, "block"_a);
}

}  // namespace pagoda
