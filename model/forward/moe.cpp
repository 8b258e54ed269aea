#include "kernels/combine.h"
#include "kernels/gated_mlp.h"
#include "kernels/linear.h"
#include "kernels/moe_gate.h"
#include "kernels/residual.h"
#include "kernels/round_wire.h"
#include "model/forward/layer_run.h"

namespace troupe {

using kernels::Tensor;

namespace {

Tensor own(const Step& step, const Tensor& rows) {
  return rows.part(step.own_first, step.own_rows);
}

}  // namespace

void route(const LayerRun& run) {
  kernels::Stream& stream = run.stream;
  kernels::Stream::Scope scope(stream);
  Step& step = run.step;
  const kernels::GateConfig& gate = run.spec.experts.gate;
  const kernels::Weight& router = run.weight(WeightRole::kRouter);
  const Tensor x = own(step, step.normed);
  const Tensor logits = stream.alloc(x.rows, gate.experts);  // [rows, experts]
  kernels::linear(stream, router, kernels::prepare(stream, x, router), logits,
                  run.vector(WeightRole::kRouterBias));
  kernels::moe_gate(stream, gate, logits, run.vector(WeightRole::kRouterCorrection),
                    step.expert_ids.data(), step.expert_weights.data());
  kernels::to_wire(stream, x, step.wire);
}

void shared_experts(const LayerRun& run) {
  if (run.spec.inner > 0)
    kernels::gated_mlp(run.stream, run.weights.mlp, run.model.act, own(run.step, run.step.normed),
                       own(run.step, run.step.branch));
}

void gather(const LayerRun& run, const Tensor& h) {
  Step& step = run.step;
  if (run.spec.inner > 0) kernels::residual_add(run.stream, own(step, step.branch), h);
  for (std::size_t i = 0; i < step.outputs.size(); ++i)
    step.outputs[i] = {step.pair_outputs[i], step.expert_weights[i]};
  kernels::combine(run.stream, step.outputs, static_cast<std::size_t>(step.top_k), h);
}

}  // namespace troupe
