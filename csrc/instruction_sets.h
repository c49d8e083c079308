// Which of the compiled kernels this machine can execute.
#pragma once

#include <string>
#include <vector>

#include "kernels/kernels.h"

namespace pagoda {

// Best first.
std::vector<std::string> instruction_sets();

}  // namespace pagoda
