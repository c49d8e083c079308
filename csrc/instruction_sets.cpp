#include "instruction_sets.h"

#ifdef __x86_64__
#include <cpuid.h>
#endif

namespace pagoda {

// Each is defined by kernels/table.cpp compiled for that instruction set, and called only where it can be executed.
namespace portable { const Kernels* kernels(); }
#ifdef __x86_64__
namespace avx2 { const Kernels* kernels(); }
namespace avx512 { const Kernels* kernels(); }
#endif

namespace {

#ifdef __x86_64__
// Bits of CPUID's leaves, and of the registers that the operating system saves (XCR0). Intel SDM, volume 2A, CPUID.
struct Cpu {
  unsigned leaf1_ecx = 0, leaf7_ebx = 0, leaf7_ecx = 0, leaf7_1_eax = 0;
  unsigned saved = 0;

  Cpu() {
    unsigned a, b, c, d;
    if (__get_cpuid(1, &a, &b, &c, &d)) leaf1_ecx = c;
    if (__get_cpuid_count(7, 0, &a, &b, &c, &d)) leaf7_ebx = b, leaf7_ecx = c;
    if (__get_cpuid_count(7, 1, &a, &b, &c, &d)) leaf7_1_eax = a;
    if (leaf1_ecx >> 27 & 1) {   // OSXSAVE
      unsigned high;
      asm volatile("xgetbv" : "=a"(saved), "=d"(high) : "c"(0));
    }
  }
  // FMA, F16C, AVX2 and the registers of AVX.
  bool has_avx2() const {
    return (leaf1_ecx >> 12 & 1) && (leaf1_ecx >> 29 & 1) && (leaf7_ebx >> 5 & 1) && (saved & 0x6) == 0x6;
  }
  // F, DQ, BW, VL, VNNI, BF16 and the registers of AVX-512.
  bool has_avx512() const {
    return has_avx2() && (leaf7_ebx >> 16 & 1) && (leaf7_ebx >> 17 & 1) && (leaf7_ebx >> 30 & 1) &&
           (leaf7_ebx >> 31 & 1) && (leaf7_ecx >> 11 & 1) && (leaf7_1_eax >> 5 & 1) && (saved & 0xE6) == 0xE6;
  }
};
#endif

std::vector<const Kernels*> executable() {
  std::vector<const Kernels*> found;
#ifdef __x86_64__
  const Cpu cpu;
  if (cpu.has_avx512()) found.push_back(avx512::kernels());
  if (cpu.has_avx2()) found.push_back(avx2::kernels());
#endif
  found.push_back(portable::kernels());
  return found;
}

}  // namespace

std::vector<std::string> instruction_sets() {
  std::vector<std::string> names;
  for (const Kernels* kernels : executable()) names.push_back(kernels->name);
  return names;
}

const Kernels* kernels_for(const char* name) {
  for (const Kernels* kernels : executable())
    if (std::string(name) == kernels->name) return kernels;
  return nullptr;
}

}  // namespace pagoda
