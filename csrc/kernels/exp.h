// e^x and 2^x for 16 lanes.
#pragma once

#include "simd.h"

namespace pagoda::PAGODA_ISA {

// e^x within 1.2 ulp of the true value where that is a normal number; gradual underflow, which the floating-point mode
// may flush to zero. −infinity gives exactly 0 and 0 exactly 1, overflow infinity, NaN stays NaN. Every lane takes the
// same path.
//
// x = n ln 2 + r with |r| ≤ ln 2 / 2 (Cody and Waite: n × the upper part of ln 2 is exact), and e^x = 2^n e^r, with e^r
// by a polynomial of degree 6 whose first two coefficients are 1 and whose relative error is below 4e-9.
inline f32x16 exp(f32x16 x) {
  x = min(set1(89.0f), max(set1(-104.0f), x));   // beyond these: infinity and 0; NaN passes through both
  const f32x16 n = round_to_integer(mul(x, set1(0x1.715476p+0f)));
  f32x16 r = fma(n, set1(-0x1.63p-1f), x);
  r = fma(n, set1(0x1.bd0106p-13f), r);
  f32x16 p = set1(0x1.6a23b4p-10f);
  p = fma(p, r, set1(0x1.123a1ep-7f));
  p = fma(p, r, set1(0x1.5558f4p-5f));
  p = fma(p, r, set1(0x1.555492p-3f));
  p = fma(p, r, set1(0x1.fffffcp-2f));
  p = fma(p, r, set1(1.0f));
  p = fma(p, r, set1(1.0f));
  return scale_by_power(p, n);
}

// 2^x for x ≤ 0, as softmax needs it: within 3 ulp, otherwise like exp. A third cheaper: x − n is exact, and the
// polynomial, of degree 5, has a relative error below 1.1e-7.
inline f32x16 exp2_to_one(f32x16 x) {
  x = max(set1(-151.0f), x);
  const f32x16 n = round_to_integer(x), r = sub(x, n);
  f32x16 p = set1(0x1.5bb9fcp-10f);
  p = fma(p, r, set1(0x1.3cea96p-7f));
  p = fma(p, r, set1(0x1.c6b754p-5f));
  p = fma(p, r, set1(0x1.ebf9bcp-3f));
  p = fma(p, r, set1(0x1.62e42ap-1f));
  p = fma(p, r, set1(1.0f));
  return scale_by_power(p, n);
}

}  // namespace pagoda::PAGODA_ISA
