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
  std::byte* const chosen = step.gate_room.at_least(stream, ids_bytes + weights_bytes);
  kernels::moe_gate(stream, gate, logits, run.vector(WeightRole::kRouterCorrection),
                    reinterpret_cast<std::int32_t*>(chosen),
                    reinterpret_cast<float*>(chosen + ids_bytes));
  kernels::to_wire(stream, step.normed, step.wire);
  const std::byte* const here = stream.read(chosen, ids_bytes + weights_bytes);
  std::memcpy(step.expert_ids.data(), here, ids_bytes);
  std::memcpy(step.expert_weights.data(), here + ids_bytes, weights_bytes);
}

void gather(const LayerRun& run, const Tensor& h, std::int64_t first) {
  Step& step = run.step;
  if (run.spec.inner > 0) kernels::residual_add(run.stream, step.branch.part(first, h.rows), h);
  const auto top_k = static_cast<std::size_t>(step.top_k);
  const std::size_t from = static_cast<std::size_t>(first) * top_k;
  step.outputs.resize(static_cast<std::size_t>(h.rows) * top_k);
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    step.outputs[i] = {step.pair_outputs[from + i], step.expert_weights[from + i]};
  kernels::combine(run.stream, step.outputs, top_k, h);
}

}  // namespace troupe
