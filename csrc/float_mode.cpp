#include "float_mode.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

namespace pagoda {

#if defined(__x86_64__)
// Exceptions masked, to nearest; FTZ and DAZ.
FloatMode::FloatMode(Denormals denormals) : saved_(_mm_getcsr()) {
  _mm_setcsr(denormals == Denormals::are_zero ? 0x9FC0 : 0x1F80);
}
FloatMode::~FloatMode() { _mm_setcsr(static_cast<unsigned>(saved_)); }
#elif defined(__aarch64__)
// No traps, to nearest; FZ.
FloatMode::FloatMode(Denormals denormals) {
  asm volatile("mrs %0, fpcr" : "=r"(saved_));
  asm volatile("msr fpcr, %0" : : "r"(uint64_t{denormals == Denormals::are_zero} << 24));
}
FloatMode::~FloatMode() { asm volatile("msr fpcr, %0" : : "r"(saved_)); }
#else
FloatMode::FloatMode(Denormals) : saved_(0) {}
FloatMode::~FloatMode() = default;
#endif

}  // namespace pagoda
