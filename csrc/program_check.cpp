#include <stdexcept>
#include <string>

#include "program.h"

namespace pagoda {
namespace {

void require_below(int64_t value, size_t bound, const char* name) {
  if (value < 0 || static_cast<uint64_t>(value) >= bound)
    throw std::out_of_range(std::string(name) + " has " + std::to_string(value) + ", must be from 0 to below " +
                            std::to_string(bound));
}

void require_all_below(const int64_t* values, size_t n, size_t bound, const char* name) {
  for (size_t i = 0; i < n; ++i) require_below(values[i], bound, name);
}

void require_at_most(size_t value, size_t limit, const char* name) {
  if (value > limit)
    throw std::invalid_argument("the step has " + std::to_string(value) + " " + name + ", at most " +
                                std::to_string(limit) + " are declared");
}

}  // namespace

void Program::check(const Step& step) const {
  require_at_most(step.num_tokens, max_tokens_, "tokens");
  require_at_most(step.num_seqs, max_seqs_, "requests");
  require_at_most(step.num_logit_rows, max_tokens_, "rows of logits");
  require_all_below(step.input_ids, step.num_tokens, num_ids_, "input_ids");
  require_all_below(step.positions, step.num_tokens, num_positions_, "positions");
  require_all_below(step.slot_mapping, step.num_tokens, cache_.num_blocks() * cache_.block_size(), "slot_mapping");
  require_all_below(step.logit_rows, step.num_logit_rows, step.num_tokens, "logit_rows");
  require_all_below(step.new_blocks, step.num_new_blocks, cache_.num_blocks(), "new_blocks");

  require(step.query_start_loc[0] == 0, "query_start_loc must begin with 0");
  for (size_t s = 0; s < step.num_seqs; ++s) {
    const int64_t length = int64_t{step.query_start_loc[s + 1]} - step.query_start_loc[s], in_cache = step.seq_lens[s];
    require(length >= 0, "query_start_loc must ascend");
    require(in_cache >= length, "seq_lens must count the step's own tokens");
    const size_t blocks = (static_cast<size_t>(in_cache) + cache_.block_size() - 1) / cache_.block_size();
    require(blocks <= step.max_blocks, "block_table is too narrow for seq_lens");
    for (size_t b = 0; b < blocks; ++b)
      require_below(step.block_table[s * step.max_blocks + b], cache_.num_blocks(), "block_table");
  }
  require(static_cast<size_t>(step.query_start_loc[step.num_seqs]) == step.num_tokens,
          "query_start_loc must end with the number of tokens");
}

}  // namespace pagoda
