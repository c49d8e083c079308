#include "module.h"

NB_MODULE(_native, module) {
  pagoda::bind_tensors(module);
#if __has_include("program.h")
  pagoda::bind_program(module);
#endif
#if __has_include("module_sampling.cpp")
  pagoda::bind_sampling(module);
#endif
#if __has_include("module_limits.cpp")
  pagoda::bind_limits(module);
#endif
}
