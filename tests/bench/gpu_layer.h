#pragma once

#include <cstdint>
#include <vector>

#include "kernels/chosen_mlp.h"
#include "kernels/moe_gate.h"
#include "tests/bench/gpu_inputs.h"

/// One layer of DeepSeek-V3, as one of 16 devices that share the experts computes it, op by op as
/// model/forward does.
namespace troupe::timing {

struct LayerSizes {
  std::int64_t hidden = 7168, heads = 128, q_lora = 1536, kv_lora = 512, rope = 64, nope = 128;
  std::int64_t v_head = 128, inner = 2048;
  std::int64_t experts_all = 256, experts_here = 16, top_k = 8, groups = 8;
  std::int64_t rows = 32, context = 4096;

  /// What the twin can do in a second.
  static LayerSizes small() { return {256, 8, 64, 64, 32, 32, 32, 64, 16, 4, 2, 4, 2, 300}; }
};

class V3Layer {
 public:
  V3Layer(kernels::Stream& stream, Drawn& drawn, const LayerSizes& sizes);

  /// Each of the experts here gets as many rows as the batch has: those of all devices.
  void run();
  /// That must be read of weights and of the cache.
  double bytes() const;
  /// Multiplications and additions.
  double operations() const;

 private:
  void attention(const kernels::Tensor& x, const kernels::Tensor& y);
  void experts(const kernels::Tensor& x, const kernels::Tensor& h);

  kernels::Stream& stream_;
  const LayerSizes s_;
  kernels::Weight norm_, q_norm_, kv_norm_, q_a_, q_b_, kv_a_, uk_, uv_, o_, gate_;
  kernels::GatedMlp shared_;
  std::vector<kernels::GatedMlp> experts_;
  Cached cache_;
  kernels::Tensor x_, cos_, sin_, pair_rows_, pair_outputs_, correction_, weights_;
  std::int32_t *ids_, *pair_ids_, *experts_read_;
  kernels::ExpertTable table_;
};

}  // namespace troupe::timing
