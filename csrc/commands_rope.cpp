#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "row_command.h"

namespace pagoda {
namespace {

// The first items zero blocks, one in one layer each; the others work out the angles of some tokens each.
class Prologue final : public Command {
 public:
  Prologue(KVCache& cache, const std::vector<std::unique_ptr<Rope>>& ropes) : cache_(cache), ropes_(ropes) {}

  size_t num_items(const Step& step) const override {
    const size_t chunks = (step.num_tokens + kTokensPerItem - 1) / kTokensPerItem;
    return step.num_new_blocks * cache_.layers().size() + (ropes_.empty() ? 0 : chunks);
  }

  void run(const Step& step, size_t item, uint8_t*) const override {
    const size_t num_layers = cache_.layers().size(), zeroed = step.num_new_blocks * num_layers;
    if (item < zeroed) {
      cache_.zero(item % num_layers, static_cast<size_t>(step.new_blocks[item / num_layers]));
      return;
    }
    const size_t first = (item - zeroed) * kTokensPerItem;
    for (const auto& rope : ropes_)
      for (size_t t = first; t < std::min(first + kTokensPerItem, step.num_tokens); ++t)
        angles(*rope, step.positions[t], t);
  }

 private:
  static constexpr size_t kTokensPerItem = 16;

  // The angle is rounded to float32, as the reference has it; its cosine and sine are those of that number.
  static void angles(const Rope& rope, int64_t position, size_t token) {
    for (size_t i = 0; i < rope.half(); ++i) {
      const double angle = static_cast<float>(position) * rope.inverse_frequencies[i];
      rope.cosine[token * rope.half() + i] = static_cast<float>(std::cos(angle));
      rope.sine[token * rope.half() + i] = static_cast<float>(std::sin(angle));
    }
  }

  KVCache& cache_;
  const std::vector<std::unique_ptr<Rope>>& ropes_;
};

// One token's heads. scratch: a head.
class RopeAndStoreKV {
 public:
  RopeAndStoreKV(const Kernels& kernels, const StepTensor& q, const StepTensor& qkv, const KVCache& cache, size_t layer,
                 QKV heads)
      : kernels_(kernels), q_(q), qkv_(qkv), layer_(cache.layers()[layer]), block_size_(cache.block_size()),
        heads_(std::move(heads)) {
    const size_t head_dim = layer_.head_dim;
    require(q.f32 && qkv.f32, "rope_and_store_kv: q and qkv must have the form f32");
    require(!q.bf16 && !q.codes, "rope_and_store_kv: q must have the form f32 only");
    require(qkv.rows_of == RowsOf::tokens, "rope_and_store_kv: qkv must have a row for each token");
    require(q.width == heads_.num_heads * head_dim, "rope_and_store_kv: q is not as wide as its heads");
    require(qkv.width == q.width + 2 * layer_.kv_heads * head_dim, "rope_and_store_kv: qkv is not as wide as its heads");
    require(!heads_.rope || 2 * heads_.rope->half() <= head_dim, "rope_and_store_kv: the rope is wider than a head");
    require(heads_.q_norm.empty() || heads_.q_norm.size() == head_dim, "rope_and_store_kv: q_norm must have head_dim numbers");
    require(heads_.k_norm.empty() || heads_.k_norm.size() == head_dim, "rope_and_store_kv: k_norm must have head_dim numbers");
  }

  void operator()(const Step& step, size_t t, float* key) const {
    const size_t head_dim = layer_.head_dim;
    const float* in = qkv_.row(t).f32;
    float* const q = q_.row(t).f32;
    for (size_t h = 0; h < heads_.num_heads; ++h, in += head_dim) prepare(in, heads_.q_norm, t, q + h * head_dim);
    const size_t slot = static_cast<size_t>(step.slot_mapping[t]), block = slot / block_size_, offset = slot % block_size_;
    const float* value = in + layer_.kv_heads * head_dim;
    for (size_t h = 0; h < layer_.kv_heads; ++h, in += head_dim, value += head_dim) {
      prepare(in, heads_.k_norm, t, key);
      kernels_.store_kv[static_cast<int>(layer_.format)](key, value, head_dim, offset, layer_.keys(block, h),
                                                         layer_.values(block, h));
    }
  }

 private:
  // A head of q or k, normed and rotated.
  void prepare(const float* head, const std::vector<float>& gain, size_t token, float* out) const {
    if (gain.empty()) {
      std::memcpy(out, head, layer_.head_dim * sizeof(float));
    } else {
      RowOut row;
      row.f32 = out;
      kernels_.rms_norm({head, nullptr, nullptr, gain.data(), nullptr, heads_.eps, layer_.head_dim, row});
    }
    if (!heads_.rope) return;
    const size_t half = heads_.rope->half();
    kernels_.rotate(out, heads_.rope->cosine + token * half, heads_.rope->sine + token * half, half);
  }

  const Kernels& kernels_;
  StepTensor q_;
  StepTensor qkv_;
  KVCache::Layer layer_;
  size_t block_size_;
  QKV heads_;
};

}  // namespace

CommandPtr prologue(KVCache& cache, const std::vector<std::unique_ptr<Rope>>& ropes) {
  return std::make_unique<Prologue>(cache, ropes);
}

CommandPtr rope_and_store_kv(const Kernels& kernels, const StepTensor& q, const StepTensor& qkv, const KVCache& cache,
                             size_t layer, QKV heads) {
  RopeAndStoreKV token(kernels, q, qkv, cache, layer, std::move(heads));
  return by_rows(RowsOf::tokens, qkv.width, cache.layers()[layer].head_dim * sizeof(float), std::move(token));
}

}  // namespace pagoda
