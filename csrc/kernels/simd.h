// The lanes of the instruction set that this translation unit is compiled for.
#pragma once

#if defined(PAGODA_AVX512)
#include "simd_avx512.h"
#elif defined(PAGODA_AVX2)
#include "simd_avx2.h"
#else
#include "simd_portable.h"
#endif
