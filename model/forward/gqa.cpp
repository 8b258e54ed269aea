#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/forward/layer_run.h"

namespace troupe {

using kernels::Tensor;

/// Grouped queries (arXiv 2305.13245): o(attention(turn(norm(q(x))), cache)), where the norms, the
/// biases, the window and the sinks are what the spec says.
void grouped_attention(const LayerRun& run, const Tensor& x, const Tensor& y) {
  kernels::Stream& stream = run.stream;
  kernels::Stream::Scope scope(stream);
  const AttentionSpec& a = run.spec.attention;
  const std::int64_t rows = x.rows;
  const Tensor q = stream.alloc_heads(rows, a.heads, a.qk_dim);
  const Tensor k = stream.alloc_heads(rows, a.kv_heads, a.qk_dim);
  const Tensor v = stream.alloc_heads(rows, a.kv_heads, a.v_dim);
  {
    const kernels::Weight& w = run.weight(WeightRole::kQ);
    const kernels::Activation in = kernels::prepare(stream, x, w);
    kernels::linear(stream, w, in, q.flat(), run.vector(WeightRole::kQBias));
    kernels::linear(stream, run.weight(WeightRole::kK), in, k.flat(),
                    run.vector(WeightRole::kKBias));
    kernels::linear(stream, run.weight(WeightRole::kV), in, v.flat(),
                    run.vector(WeightRole::kVBias));
  }
  if (run.weights.has(WeightRole::kQNorm)) {
    kernels::rms_norm(stream, q, run.weight(WeightRole::kQNorm), a.norm_eps, q);
    kernels::rms_norm(stream, k, run.weight(WeightRole::kKNorm), a.norm_eps, k);
  }
  run.turn(q);
  run.turn(k);

  kernels::AttentionInputs inputs;
  inputs.keys = run.cache.pool(run.layer, 0);
  inputs.values = run.cache.pool(run.layer, 1);
  inputs.kv_heads = a.kv_heads;
  inputs.scale = a.scale;
  inputs.window = a.window;
  inputs.sinks = run.vector(WeightRole::kSinks);
  kernels::store_kv(stream, inputs.keys, run.step.where(), k.flat());
  kernels::store_kv(stream, inputs.values, run.step.where(), v.flat());
  const Tensor attended = stream.alloc_heads(rows, a.heads, a.v_dim);
  kernels::attention(stream, inputs, run.step.where(), q, attended);

  const kernels::Weight& o = run.weight(WeightRole::kO);
  // A bias comes last: to a part of the sum it is not added yet.
  kernels::linear(stream, o, kernels::prepare(stream, attended.flat(), o), y,
                  a.ways == 1 ? run.vector(WeightRole::kOBias) : nullptr);
}

}  // namespace troupe
