#include "module.h"

NB_MODULE(_native, module) {
  pagoda::bind_tensors(module);
  pagoda::bind_program(module);
#if __has_include("module_sampling.cpp")
  pagoda::bind_sampling(module);
#endif
  pagoda::bind_limits(module);
}
