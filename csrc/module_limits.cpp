#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "limits.h"
#include "matrix.h"
#include "module.h"

namespace pagoda {

using namespace nanobind::literals;

namespace {

Form form_of_kind(const std::string& kind) {
  if (kind == "int8") return Form::q8;
  if (kind == "bf16") return Form::bf16;
  if (kind == "fp32") return Form::f32;
  throw std::invalid_argument("kind is '" + kind + "', must be int8, bf16 or fp32");
}

}  // namespace

void bind_limits(nb::module_& module) {
  const nb::call_guard<nb::gil_scoped_release> unlocked;
  module.def("read_bandwidth", &read_bandwidth, "threads"_a, "num_bytes"_a, unlocked);
  module.def("peak_operations", [](Threads& threads, const std::string& kind) {
    return peak_operations(threads, form_of_kind(kind));
  }, "threads"_a, "kind"_a, unlocked);
  module.def("format_ceiling", [](Threads& threads, const std::string& format) {
    return format_ceiling(threads, format_named(format));
  }, "threads"_a, "format"_a, unlocked);
}

}  // namespace pagoda
