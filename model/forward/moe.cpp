#include <cstring>

#include "kernels/combine.h"
#include "kernels/gated_mlp.h"
#include "kernels/linear.h"
#include "kernels/moe_gate.h"
#include "kernels/residual.h"
#include "kernels/round_wire.h"
#include "model/forward/layer_run.h"

namespace troupe {

using kernels::Tensor;

void route(const LayerRun& run) {
  kernels::Stream& stream = run.stream;
  kernels::Stream::Scope scope(stream);
  Step& step = run.step;
  const kernels::GateConfig& gate = run.spec.experts.gate;
  const kernels::Weight& router = run.weight(WeightRole::kRouter);
  const Tensor logits = stream.alloc(step.rows, gate.experts);  // [rows, experts]
  kernels::linear(stream, router, kernels::prepare(stream, step.normed, router), logits,
                  run.vector(WeightRole::kRouterBias));
  const std::size_t ids_bytes = step.expert_ids.size() * sizeof(std::int32_t);
  const std::size_t weights_bytes = step.expert_weights.size() * sizeof(float);
  std::byte* const weights = step.gate_room.at_least(stream, weights_bytes + ids_bytes);
  const bool there = step.chosen.count > 0;
  kernels::moe_gate(
      stream, gate, logits, run.vector(WeightRole::kRouterCorrection),
      there ? step.chosen.ids : reinterpret_cast<std::int32_t*>(weights + weights_bytes),
      reinterpret_cast<float*>(weights));
  kernels::to_wire(stream, step.normed, step.wire);
  if (there) return;
  const std::byte* const here = stream.read(weights, weights_bytes + ids_bytes);
  std::memcpy(step.expert_weights.data(), here, weights_bytes);
  std::memcpy(step.expert_ids.data(), here + weights_bytes, ids_bytes);
}

void gather(const LayerRun& run, const Tensor& h, std::int64_t first) {
  kernels::Stream& stream = run.stream;
  Step& step = run.step;
  if (run.spec.inner > 0) kernels::residual_add(stream, step.branch.part(first, h.rows), h);
  if (!step.among_ranks) {
    const Tensor outputs = stream.device_tensor(step.outputs_room.data(), step.wire.dtype,
                                                step.rows * step.top_k, step.width);
    kernels::combine_dense(stream, outputs, reinterpret_cast<float*>(step.gate_room.data()), h);
    return;
  }
  const auto top_k = static_cast<std::size_t>(step.top_k);
  const std::size_t from = static_cast<std::size_t>(first) * top_k;
  step.outputs.resize(static_cast<std::size_t>(h.rows) * top_k);
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    step.outputs[i] = {step.pair_outputs[from + i], step.expert_weights[from + i]};
  kernels::combine(stream, step.outputs, top_k, h);
}

}  // namespace troupe
