#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/rms_norm.h"
#include "model/forward/layer_run.h"

namespace troupe {

using kernels::Activation;
using kernels::Tensor;

namespace {

/// q [rows, heads, nope + rope] = q_b(norm(q_a(x))), or straight from x.
void queries(const LayerRun& run, const Activation& x, const Tensor& q) {
  const AttentionSpec& a = run.spec.attention;
  const kernels::Weight& q_b = run.weight(WeightRole::kQb);
  if (a.q_lora == 0) return kernels::linear(run.stream, q_b, x, q.flat());
  const Tensor low = run.stream.alloc(q.rows, a.q_lora);  // [rows, q_lora]
  kernels::linear(run.stream, run.weight(WeightRole::kQa), x, low);
  kernels::rms_norm(run.stream, low, run.weight(WeightRole::kQaNorm), a.norm_eps, low);
  kernels::linear(run.stream, q_b, kernels::prepare(run.stream, low, q_b), q.flat());
}

/// attention(q W_UK, cache), absorbed (arXiv 2405.04434, sec. 2.1): [rows, heads, kv_lora]. The
/// cache holds norm(c) and the turned key part k_r, where (c, k_r) = kv_a(x); every head reads the
/// same.
void attend(const LayerRun& run, const Tensor& x, const Tensor& attended) {
  kernels::Stream& stream = run.stream;
  kernels::Stream::Scope scope(stream);
  const AttentionSpec& a = run.spec.attention;
  const std::int64_t rows = x.rows;
  const kernels::Weight& kv_a = run.weight(WeightRole::kKvA);
  const Activation in = kernels::prepare(stream, x, kv_a);

  // The latent and the shared key part of the new positions go into the cache.
  const Tensor kv = stream.alloc(rows, a.kv_lora + a.rope);  // [rows, kv_lora + rope]
  kernels::linear(stream, kv_a, in, kv);
  const Tensor latent = kv.columns(0, a.kv_lora);
  kernels::rms_norm(stream, latent, run.weight(WeightRole::kKvANorm), a.norm_eps, latent);
  run.turn(kv.columns(a.kv_lora, a.rope));
  const kernels::KvPool pool = run.cache.pool(run.layer, 0);
  kernels::store_kv(stream, pool, run.step.where(), kv);

  // Queries, with their unturned part carried into the latent space.
  const Tensor q = stream.alloc_heads(rows, a.heads, a.nope + a.rope);
  queries(run, in, q);
  const Tensor absorbed = stream.alloc_heads(rows, a.heads, a.kv_lora + a.rope);
  const kernels::Weight& uk = run.weight(WeightRole::kUk);
  kernels::linear(stream, uk, kernels::prepare(stream, q.columns(0, a.nope), uk),
                  absorbed.columns(0, a.kv_lora));
  kernels::copy(stream, q.columns(a.nope, a.rope), absorbed.columns(a.kv_lora, a.rope));
  run.turn(absorbed.columns(a.kv_lora, a.rope));

  kernels::AttentionInputs inputs;
  inputs.keys = inputs.values = pool;
  inputs.scale = a.scale;
  kernels::attention(stream, inputs, run.step.where(), absorbed, attended);
}

}  // namespace

/// o(W_UV attention(q W_UK, cache)). What the attention took is free again for the way out.
void mla(const LayerRun& run, const Tensor& x, const Tensor& y) {
  kernels::Stream& stream = run.stream;
  kernels::Stream::Scope scope(stream);
  const AttentionSpec& a = run.spec.attention;
  const Tensor attended = stream.alloc_heads(x.rows, a.heads, a.kv_lora);
  attend(run, x, attended);

  // Out of the latent space, through the output projection.
  const kernels::Weight& uv = run.weight(WeightRole::kUv);
  const kernels::Weight& o = run.weight(WeightRole::kO);
  const Tensor values = stream.alloc_heads(x.rows, a.heads, a.v_head);
  kernels::linear(stream, uv, kernels::prepare(stream, attended, uv), values);
  kernels::linear(stream, o, kernels::prepare(stream, values.flat(), o), y);
}

}  // namespace troupe
