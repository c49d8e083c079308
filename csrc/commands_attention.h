#pragma once

#include <vector>

#include "attention_plan.h"
#include "commands.h"

namespace pagoda {

// Attention proper, and the joining of what it leaves where the keys are split among workers.
std::vector<CommandPtr> paged_attention(const Kernels& kernels, const StepTensor& out, const StepTensor& q,
                                        const KVCache& cache, size_t layer, float scale, const AttentionPlan& plan);

}  // namespace pagoda
