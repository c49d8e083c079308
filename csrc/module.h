// The parts of the Python module `pagoda._native`; what each means is in src/pagoda/_native.pyi.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <string>
#include <vector>

#include "format.h"

namespace pagoda {

namespace nb = nanobind;

// Arrays as they come in. Bound with `.noconvert()`: a wrong type or an array with gaps is a TypeError, never a copy.
template <class Number, int dimensions>
using ArrayIn = nb::ndarray<const Number, nb::ndim<dimensions>, nb::c_contig, nb::device::cpu>;

// A new array of the given shape and its numbers, which the array owns.
template <class Number>
struct NewArray {
  template <class... Sizes>
  explicit NewArray(Sizes... sizes)
      : shape{static_cast<size_t>(sizes)...}, numbers(new Number[(static_cast<size_t>(sizes) * ...)]) {}

  nb::object release() {
    Number* const data = numbers.release();
    const nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<Number*>(p); });
    return nb::ndarray<nb::numpy, Number>(data, shape.size(), shape.data(), owner).cast();
  }

  std::vector<size_t> shape;
  std::unique_ptr<Number[]> numbers;
};

Form form_named(const std::string& name);   // throws std::invalid_argument

void bind_tensors(nb::module_& module);    // formats, Threads, Matrix, KVCache
void bind_program(nb::module_& module);
void bind_sampling(nb::module_& module);
void bind_limits(nb::module_& module);

}  // namespace pagoda
