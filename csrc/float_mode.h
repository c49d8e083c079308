// How a thread takes denormal numbers, for as long as an object lives. Results are rounded to nearest in either case.
#pragma once

#include <cstdint>

namespace pagoda {

enum class Denormals : uint8_t {
  are_zero,   // read as zero and flushed to it: no instruction is slow
  are_kept,   // as the standard has it
};

class FloatMode {
 public:
  explicit FloatMode(Denormals denormals);
  ~FloatMode();
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  uint64_t saved_;
};

}  // namespace pagoda
