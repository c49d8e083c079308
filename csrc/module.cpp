#include "module.h"

NB_MODULE(_native, module) {
  pagoda::bind_tensors(module);
  pagoda::bind_program(module);
  pagoda::bind_sampling(module);
  pagoda::bind_limits(module);
}
