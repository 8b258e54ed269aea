#include "model/spec/architectures.h"
#include "model/spec/rope_config.h"
#include "runtime/limits.h"

// Published as modeling_gpt_oss.py.
namespace troupe {
namespace {

using limits::kDimensionMax;

/// All experts of a layer lie in one tensor each; the rows of gate and up alternate.
void add_experts(SpecBuilder& b, LayerSpec& layer, const std::string& p) {
  const std::int32_t experts = layer.experts.gate.experts;
  const std::int64_t inner = layer.experts.inner, hidden = b.spec.hidden;
  const MatrixOptions outputs = {.split = SplitAxis::kOutputs, .kind = ModuleKind::kStackedExperts};
  const MatrixOptions inputs = {.split = SplitAxis::kInputs, .kind = ModuleKind::kStackedExperts};
  const auto halves = [](WeightSpec& weight, std::int64_t first) {
    weight.first_row = first;
    weight.row_step = 2;
  };
  WeightList out(b, layer.expert);
  halves(out.matrix(WeightRole::kExpertGate, p + "gate_up_proj", inner, hidden, outputs), 0);
  halves(out.matrix(WeightRole::kExpertUp, p + "gate_up_proj", inner, hidden, outputs), 1);
  halves(out.vector(WeightRole::kExpertGateBias, p + "gate_up_proj_bias", inner), 0);
  halves(out.vector(WeightRole::kExpertUpBias, p + "gate_up_proj_bias", inner), 1);
  out.matrix(WeightRole::kExpertDown, p + "down_proj", hidden, inner, inputs);
  out.vector(WeightRole::kExpertDownBias, p + "down_proj_bias", hidden);
  for (WeightSpec& weight : layer.expert) {
    weight.stacked = experts;
    if (weight.precision != Precision::kVector && weight.format != StoredFormat::kMxfp4)
      b.in.fail("quantization_config",
                "of the method \"mxfp4\", which converts the experts: plain ones are stored in an "
                "order that is not supported");
  }
}

}  // namespace

Status read_gpt_oss(SpecBuilder& b) {
  JsonReader& in = b.in;
  check_activation(in);
  read_common(b);
  GroupedConfig heads = read_heads(b, 64);
  heads.qkv_bias = heads.o_bias = in.boolean_or("attention_bias", true);
  heads.sinks = true;
  const auto windows = read_windows(
      b, [](std::int32_t layer, std::int32_t) { return layer % 2 == 0; });
  GateKeys keys;
  keys.experts = "num_local_experts";
  keys.defaults.scoring = kernels::GateScoring::kSoftmaxChosen;
  keys.defaults.method = kernels::GateMethod::kGreedy;
  const kernels::GateConfig gate = read_gate(in, keys);
  const auto inner = in.int32("intermediate_size", 1, kDimensionMax);
  b.spec.act = {kernels::GatedAct::Kind::kClampedSwiglu,
                static_cast<float>(in.number_or("swiglu_limit", 7.0, 1e-6, 1e6))};
  if (!in.has("rope_scaling") && !in.has("rope_parameters"))
    in.fail("rope_scaling", "the YaRN of the published checkpoints");
  if (!in.ok()) return in.status();
  const auto turned =
      read_rope(b, heads.head_dim, kernels::RopePairs::kHalves, {.theta = 150000.0});
  if (!turned) return turned.error();

  for (std::int32_t i = 0; i < b.spec.num_layers(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    LayerSpec& layer = b.spec.layers[at];
    add_grouped_attention(b, layer, i, heads, windows[at]);
    layer.feed_forward = FeedForwardKind::kExperts;
    layer.experts = {inner, gate};
    const std::string mlp = layer_prefix(i) + "mlp.";
    WeightList out(b, layer.weights);
    out.plain(WeightRole::kRouter, mlp + "router.weight", gate.experts, b.spec.hidden,
              {.precision = Precision::kFull});
    out.vector(WeightRole::kRouterBias, mlp + "router.bias", gate.experts);
    add_experts(b, layer, mlp + "experts.");
  }
  add_ends(b);
  return in.status();
}

}  // namespace troupe
