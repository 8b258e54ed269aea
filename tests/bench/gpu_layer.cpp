#include "tests/bench/gpu_layer.h"

#include "kernels/attention.h"
#include "kernels/combine.h"
#include "kernels/copy.h"
#include "kernels/linear.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"

namespace troupe::timing {

using kernels::Codes;
using kernels::Tensor;
using kernels::Weight;

namespace {

constexpr float kEpsilon = 1e-6f;

kernels::GatedMlp mlp_of(Drawn& drawn, const LayerSizes& s) {
  kernels::GatedMlp mlp;
  mlp.gate = drawn.weight(Codes::kFp8, {s.inner, s.hidden});
  mlp.up = drawn.weight(Codes::kFp8, {s.inner, s.hidden});
  mlp.down =
      drawn.weight(Codes::kFp8, {s.hidden, s.inner, {.slices = kernels::sum_slices(s.inner)}});
  return mlp;
}

double bytes_of(const kernels::GatedMlp& mlp) {
  return static_cast<double>(mlp.gate.bytes() + mlp.up.bytes() + mlp.down.bytes());
}

double elements(const Weight& w) { return static_cast<double>(w.groups() * w.n() * w.k()); }

}  // namespace

V3Layer::V3Layer(kernels::Stream& stream, Drawn& drawn, const LayerSizes& sizes)
    : stream_(stream),
      s_(sizes),
      norm_(drawn.ones(s_.hidden)),
      q_norm_(drawn.ones(s_.q_lora)),
      kv_norm_(drawn.ones(s_.kv_lora)),
      q_a_(drawn.weight(Codes::kFp8, {s_.q_lora, s_.hidden})),
      q_b_(drawn.weight(Codes::kFp8, {s_.heads * (s_.nope + s_.rope), s_.q_lora})),
      kv_a_(drawn.weight(Codes::kFp8, {s_.kv_lora + s_.rope, s_.hidden})),
      uk_(drawn.weight(Codes::kBf16, {s_.kv_lora, s_.nope, {}, s_.heads})),
      uv_(drawn.weight(Codes::kBf16, {s_.v_head, s_.kv_lora, {}, s_.heads})),
      o_(drawn.weight(
          Codes::kFp8,
          {s_.hidden, s_.heads * s_.v_head, {.slices = kernels::sum_slices(s_.heads)}})),
      gate_(drawn.weight(Codes::kF32, {s_.experts_all, s_.hidden, {.full_precision = true}})),
      shared_(mlp_of(drawn, s_)),
      cache_(drawn, DType::kBf16, s_.rows, s_.context, s_.kv_lora + s_.rope),
      x_(drawn.rows(DType::kF32, s_.rows, s_.hidden)),
      cos_(drawn.rows(DType::kF32, s_.context, s_.rope / 2)),
      sin_(drawn.rows(DType::kF32, s_.context, s_.rope / 2)),
      pair_rows_(drawn.rows(DType::kBf16, s_.experts_here * s_.rows, s_.hidden)),
      pair_outputs_(drawn.rows(DType::kBf16, s_.experts_here * s_.rows, s_.hidden)),
      correction_(drawn.rows(DType::kF32, 1, s_.experts_all)),
      weights_(drawn.rows(DType::kF32, s_.rows, s_.top_k)),
      ids_(reinterpret_cast<std::int32_t*>(
          drawn.room(static_cast<std::size_t>(s_.rows * s_.top_k) * sizeof(std::int32_t)))),
      pair_ids_(reinterpret_cast<std::int32_t*>(
          drawn.room(static_cast<std::size_t>(pair_rows_.rows) * sizeof(std::int32_t)))),
      experts_read_(reinterpret_cast<std::int32_t*>(drawn.room(sizeof(std::int32_t)))) {
  for (std::int64_t e = 0; e < s_.experts_here; ++e) experts_.push_back(mlp_of(drawn, s_));
  std::vector<const kernels::GatedMlp*> all;
  for (const kernels::GatedMlp& expert : experts_) all.push_back(&expert);
  table_ = kernels::expert_table(stream, all);
  std::vector<std::int32_t> ids;
  for (std::int64_t pair = 0; pair < pair_rows_.rows; ++pair)
    ids.push_back(static_cast<std::int32_t>(pair / s_.rows));
  stream.write(pair_ids_, ids.data(), ids.size() * sizeof(std::int32_t));
}

void V3Layer::run() {
  kernels::Stream::Scope scope(stream_);
  const Tensor normed = stream_.alloc(s_.rows, s_.hidden);
  const Tensor branch = stream_.alloc(s_.rows, s_.hidden);
  kernels::rms_norm(stream_, x_, norm_, kEpsilon, normed);
  attention(normed, branch);
  kernels::residual_add(stream_, branch, x_);
  kernels::rms_norm(stream_, x_, norm_, kEpsilon, normed);
  experts(normed, x_);
}

void V3Layer::attention(const Tensor& x, const Tensor& y) {
  kernels::Stream::Scope scope(stream_);
  const kernels::PagedRows where = cache_.last(1, s_.context);
  const kernels::RopeTable table = {static_cast<const float*>(cos_.data),
                                    static_cast<const float*>(sin_.data), s_.context, s_.rope / 2};
  const auto turn = [&](const Tensor& t) {
    kernels::rope(stream_, table, kernels::RopePairs::kInterleaved, where.positions, t);
  };
  const kernels::Activation in = kernels::prepare(stream_, x, kv_a_);
  const Tensor kv = stream_.alloc(s_.rows, s_.kv_lora + s_.rope);
  kernels::linear(stream_, kv_a_, in, kv);
  const Tensor latent = kv.columns(0, s_.kv_lora);
  kernels::rms_norm(stream_, latent, kv_norm_, kEpsilon, latent);
  turn(kv.columns(s_.kv_lora, s_.rope));
  kernels::store_kv(stream_, cache_.pool, where, kv);

  const Tensor low = stream_.alloc(s_.rows, s_.q_lora);
  kernels::linear(stream_, q_a_, in, low);
  kernels::rms_norm(stream_, low, q_norm_, kEpsilon, low);
  const Tensor q = stream_.alloc_heads(s_.rows, s_.heads, s_.nope + s_.rope);
  kernels::linear(stream_, q_b_, kernels::prepare(stream_, low, q_b_), q.flat());
  const Tensor absorbed = stream_.alloc_heads(s_.rows, s_.heads, s_.kv_lora + s_.rope);
  kernels::linear(stream_, uk_, kernels::prepare(stream_, q.columns(0, s_.nope), uk_),
                  absorbed.columns(0, s_.kv_lora));
  kernels::copy(stream_, q.columns(s_.nope, s_.rope), absorbed.columns(s_.kv_lora, s_.rope));
  turn(absorbed.columns(s_.kv_lora, s_.rope));

  kernels::AttentionInputs inputs;
  inputs.keys = inputs.values = cache_.pool;
  inputs.scale = 0.07f;
  const Tensor attended = stream_.alloc_heads(s_.rows, s_.heads, s_.kv_lora);
  kernels::attention(stream_, inputs, where, absorbed, attended);
  const Tensor values = stream_.alloc_heads(s_.rows, s_.heads, s_.v_head);
  kernels::linear(stream_, uv_, kernels::prepare(stream_, attended, uv_), values);
  kernels::linear(stream_, o_, kernels::prepare(stream_, values.flat(), o_), y);
}

void V3Layer::experts(const Tensor& x, const Tensor& h) {
  kernels::Stream::Scope scope(stream_);
  const Tensor logits = stream_.alloc(s_.rows, s_.experts_all);
  kernels::linear(stream_, gate_, kernels::prepare(stream_, x, gate_), logits);
  kernels::GateConfig config;
  config.experts = static_cast<int>(s_.experts_all);
  config.n_group = static_cast<int>(s_.groups);
  config.topk_group = config.n_group / 2;
  config.top_k = static_cast<int>(s_.top_k);
  config.norm_topk_prob = true;
  kernels::moe_gate(stream_, config, logits, static_cast<const float*>(correction_.data), ids_,
                    static_cast<float*>(weights_.data));
  const Tensor wire = stream_.alloc(s_.rows, s_.hidden, DType::kBf16);
  kernels::to_wire(stream_, x, wire);

  kernels::ChosenRows chosen;
  chosen.rows = static_cast<const std::byte*>(pair_rows_.data);
  chosen.ids = pair_ids_;
  chosen.outputs = static_cast<std::byte*>(pair_outputs_.data);
  chosen.experts_read = experts_read_;
  chosen.count = static_cast<std::int32_t>(pair_rows_.rows);
  kernels::chosen_mlp(stream_, table_, {}, 1, {&chosen, 1});
  const Tensor of_shared = stream_.alloc(s_.rows, s_.hidden);
  kernels::gated_mlp(stream_, shared_, {}, x, of_shared);
  kernels::residual_add(stream_, of_shared, h);
  const Tensor outputs =
      stream_.device_tensor(pair_outputs_.data, pair_outputs_.dtype, s_.rows * s_.top_k, s_.hidden);
  kernels::combine_dense(stream_, outputs, static_cast<const float*>(weights_.data), h);
}

double V3Layer::bytes() const {
  double sum = static_cast<double>(q_a_.bytes() + q_b_.bytes() + kv_a_.bytes() + uk_.bytes() +
                                   uv_.bytes() + o_.bytes() + gate_.bytes());
  sum += bytes_of(shared_);
  for (const kernels::GatedMlp& expert : experts_) sum += bytes_of(expert);
  return sum + static_cast<double>(s_.rows * s_.context * (s_.kv_lora + s_.rope) * 2);
}

double V3Layer::operations() const {
  double products = elements(q_a_) + elements(q_b_) + elements(kv_a_) + elements(uk_) +
                    elements(uv_) + elements(o_) + elements(gate_);
  const double mlp = elements(shared_.gate) + elements(shared_.up) + elements(shared_.down);
  products += mlp * static_cast<double>(1 + experts_.size());
  const double pairs = static_cast<double>(s_.context * s_.heads);
  return 2 * static_cast<double>(s_.rows) *
         (products + pairs * static_cast<double>(2 * s_.kv_lora + s_.rope));
}

}  // namespace troupe::timing
