// The lanes of the instruction set that this translation unit is compiled for.
#pragma once

#if defined(PAGODA_AVX512)
#include "simd_avx512.h"
#elif defined(PAGODA_AVX2)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif

namespace pagoda::PAGODA_ISA {

// What is read after this in the program is read after it by the compiled code, too. Reading runs at the speed of memory
// only if the processor sees addresses that go up (with the scales first, a product of one row with Q8_0 lost 15%; with
// the vectors of values in an order that the compiler liked, attention of one token 5 to 9%).
inline void keep_order() { __asm__ volatile("" ::: "memory"); }

// low + the products of inputs 0 … 15 and high + those of 16 … 31: eight vectors of codes below 2^num_bits with what `x`
// points to. Where narrow codes are cheaper, the instruction set has its own.
#if !defined(PAGODA_AVX2)
template <int num_bits>
inline void dot32(i32x16& low, i32x16& high, const u8x64 (&codes)[8], const int8_t* x) {
  for (int i = 0; i < 4; ++i) {
    low = dot4(low, codes[i], spread4(x + 4 * i));
    high = dot4(high, codes[4 + i], spread4(x + 16 + 4 * i));
  }
}
#endif

}  // namespace pagoda::PAGODA_ISA
