#include "commands_attention.h"

#include <algorithm>

namespace pagoda {
namespace {

// What both phases know: a layer's cache, its queries, and where the results go.
struct Attention {
  const Kernels& kernels;
  StepTensor out;
  StepTensor q;
  KVCache::Layer layer;
  size_t block_size;
  float scale;
  const AttentionPlan& plan;

  void attend(const AttentionTask& task, size_t split, const Partial& partial, void* scratch) const {
    kernels.attend[static_cast<int>(layer.format)](task, split, partial, scratch);
  }

  size_t rows_per_token() const { return plan.shape().group; }
  size_t partial_bytes() const {
    return align64(plan.max_item_rows() * (layer.head_dim + 2) * sizeof(float));
  }

  // Of so many K/V heads from kv_head on.
  AttentionTask task(const Step& step, const AttentionPlan::Unit& unit, size_t kv_head, size_t kv_heads) const {
    const size_t column = kv_head * plan.shape().group * layer.head_dim;
    return {q.row(unit.first_row).f32 + column, q.f32_stride(), unit.num_tokens, unit.start, kv_heads, plan.shape().group,
            layer.head_dim, scale, plan.shape().window, layer.keys(0, kv_head), layer.values(0, kv_head),
            layer.key_block_bytes(), layer.value_block_bytes(), block_size,
            step.block_table + unit.seq * step.max_blocks};
  }

  // A worker's own partial, `index` in its scratch.
  Partial scratch_partial(uint8_t* scratch, size_t index) const {
    float* const values = reinterpret_cast<float*>(scratch + index * partial_bytes());
    const size_t rows = plan.max_item_rows();
    float* const largest = values + rows * layer.head_dim;
    return {largest, largest + rows, values};
  }

  // values / sum of every (token, head), in every form of `out`. line: the heads of one token.
  void finish(const AttentionPlan::Unit& unit, size_t kv_head, const Partial& whole, float* line) const {
    const size_t group = plan.shape().group, head_dim = layer.head_dim, column = kv_head * group * head_dim;
    for (size_t t = 0; t < unit.num_tokens; ++t) {
      RowOut row = columns_from(out.row(unit.first_row + t), column);
      float* const floats = row.f32 ? row.f32 : line;
      for (size_t h = 0; h < group; ++h)
        kernels.finish(whole.values + (t * group + h) * head_dim, whole.sum[t * group + h], head_dim, floats + h * head_dim);
      row.f32 = nullptr;
      if (row.bf16 || row.codes) kernels.write_row(floats, group * head_dim, row);
    }
  }

  size_t line_bytes() const { return align64(plan.shape().group * layer.head_dim * sizeof(float)); }
};

// Units whole, or splits of them.
class Attend final : public Command {
 public:
  explicit Attend(const Attention& attention)
      : attention_(attention),
        kernel_scratch_(align64(attention.kernels.attention_scratch(attention.layer.head_dim))) {}

  size_t num_items(const Step&) const override { return attention_.plan.num_items(); }
  size_t scratch_bytes() const override {
    return kernel_scratch_ + 2 * attention_.partial_bytes() + attention_.line_bytes();
  }

  void run(const Step& step, size_t item, uint8_t* scratch) const override {
    if (attention_.plan.splits_are_items()) run_split(step, item, scratch);
    else run_unit(step, item, scratch);
  }

 private:
  void run_unit(const Step& step, size_t item, uint8_t* scratch) const {
    const AttentionPlan::Unit& unit = attention_.plan.unit_of_item(item);
    const size_t first = (item - unit.first_item) * unit.kv_heads;
    const size_t heads = std::min(unit.kv_heads, attention_.layer.kv_heads - first);
    const AttentionTask task = attention_.task(step, unit, first, heads);
    const size_t rows = heads * unit.num_tokens * task.heads;
    uint8_t* const mine = scratch + kernel_scratch_;
    const Partial running = attention_.scratch_partial(mine, 0), next = attention_.scratch_partial(mine, 1);
    attention_.attend(task, unit.first_split, running, scratch);
    for (size_t split = unit.first_split + 1; split < unit.end_split; ++split) {
      attention_.attend(task, split, next, scratch);
      attention_.kernels.merge(running, next, rows, task.head_dim);
    }
    float* const line = reinterpret_cast<float*>(mine + 2 * attention_.partial_bytes());
    for (size_t i = 0; i < heads; ++i) {
      const size_t row = i * unit.num_tokens * task.heads;
      attention_.finish(unit, first + i, {running.largest + row, running.sum + row, running.values + row * task.head_dim},
                        line);
    }
  }

  void run_split(const Step& step, size_t item, uint8_t* scratch) const {
    const AttentionPlan::Unit& unit = attention_.plan.unit_of_item(item);
    const size_t splits = unit.end_split - unit.first_split, kv_head = (item - unit.first_item) / splits;
    const size_t split = unit.first_split + (item - unit.first_item) % splits;
    attention_.attend(attention_.task(step, unit, kv_head, 1), split, attention_.plan.partial(unit, kv_head, split),
                              scratch);
  }

  Attention attention_;
  size_t kernel_scratch_;
};

// Joins the partials of a unit and K/V head, where splits were items.
class Join final : public Command {
 public:
  explicit Join(const Attention& attention) : attention_(attention) {}

  size_t num_items(const Step&) const override {
    const AttentionPlan& plan = attention_.plan;
    return plan.splits_are_items() ? plan.units().size() * attention_.layer.kv_heads : 0;
  }
  size_t scratch_bytes() const override { return attention_.line_bytes(); }

  void run(const Step&, size_t item, uint8_t* scratch) const override {
    const size_t kv_heads = attention_.layer.kv_heads, kv_head = item % kv_heads;
    const AttentionPlan::Unit& unit = attention_.plan.units()[item / kv_heads];
    const Partial running = attention_.plan.partial(unit, kv_head, unit.first_split);
    for (size_t split = unit.first_split + 1; split < unit.end_split; ++split)
      attention_.kernels.merge(running, attention_.plan.partial(unit, kv_head, split),
                               unit.num_tokens * attention_.rows_per_token(), attention_.layer.head_dim);
    attention_.finish(unit, kv_head, running, reinterpret_cast<float*>(scratch));
  }

 private:
  Attention attention_;
};

}  // namespace

std::vector<CommandPtr> paged_attention(const Kernels& kernels, const StepTensor& out, const StepTensor& q,
                                        const KVCache& cache, size_t layer, float scale, const AttentionPlan& plan) {
  const KVCache::Layer& shape = cache.layers()[layer];
  require(q.f32, "paged_attention: q must have the form f32");
  require(q.rows_of == RowsOf::tokens, "paged_attention: q must have a row for each token");
  require(q.width == shape.kv_heads * plan.shape().group * shape.head_dim, "paged_attention: q is not as wide as its heads");
  require(out.width == q.width, "paged_attention: out is not as wide as q");
  require(!out.codes || shape.head_dim % kGroup == 0, "paged_attention: with q8, head_dim must be a multiple of 32");
  const Attention attention{kernels, out, q, shape, cache.block_size(), scale, plan};
  std::vector<CommandPtr> commands;
  commands.push_back(std::make_unique<Attend>(attention));
  commands.push_back(std::make_unique<Join>(attention));
  return commands;
}

}  // namespace pagoda
