#include "model/shard_forward.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "kernels/combine.h"
#include "kernels/embedding.h"
#include "kernels/linear.h"
#include "kernels/mla_attention.h"
#include "kernels/moe_gate.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/silu_mul.h"
#include "model/layer_weights.h"
#include "model/output_head.h"
#include "model/rope_table.h"
#include "model/step_state.h"
#include "runtime/xxh3.h"

namespace troupe {

using kernels::make_rows;
using kernels::Rows;

namespace {

/// The norms inside attention have the published code's own epsilon, whatever config.json says of
/// the others (modeling_deepseek_v3.py, DeepseekV3RMSNorm's default).
constexpr float kLoraNormEps = 1e-6f;

kernels::GateConfig gate_config(const ModelConfig& c) {
  kernels::GateConfig gate;
  gate.scoring = c.scoring_func == ScoringFunc::kSigmoid ? kernels::GateScoring::kSigmoid
                                                         : kernels::GateScoring::kSoftmax;
  gate.experts = c.num_experts;
  gate.top_k = c.top_k;
  gate.norm_topk_prob = c.norm_topk_prob;
  gate.routed_scaling_factor = static_cast<float>(c.routed_scaling_factor);
  gate.method = kernels::GateMethod::kGreedy;
  if (c.topk_method == TopkMethod::kGreedy) return gate;
  gate.method = c.topk_method == TopkMethod::kNoAuxTc ? kernels::GateMethod::kNoauxTc
                                                      : kernels::GateMethod::kGroupLimitedGreedy;
  gate.n_group = c.num_expert_groups;
  gate.topk_group = c.top_k_groups;
  return gate;
}

}  // namespace

struct ShardForward::Impl {
  Impl(const ModelConfig& c, Numerics n, std::shared_ptr<const ShardWeights> w, KvCache& kv,
       ThreadPool& threads)
      : config(c),
        numerics(n),
        wire(wire_type(n)),
        weights(std::move(w)),
        cache(kv),
        context{n, &threads, &scratch, &threads.fault()},
        gate(gate_config(config)),
        scale(attention_scale(config)),
        positions(static_cast<std::int32_t>(std::min<std::int64_t>(
            config.max_position_embeddings,
            std::int64_t{kv.num_blocks()} * kv.block_size()))),
        rope(config, positions),
        experts(config, n, threads) {
    if (weights->last == config.num_layers)
      head.emplace(config, *weights, cache, threads.threads());
  }

  const LayerWeights& layer(std::int32_t index) const {
    return weights->layers[static_cast<std::size_t>(index - weights->first)];
  }
  Rows rows_of(StepRun::State& s, Grown<float>& buffer) const {
    return make_rows(buffer.data(), s.rows, s.hidden_size);
  }
  float* take(std::size_t count) { return scratch.take<float>(count); }

  Status begin(StepRun::State& s, const StepPlanBody& plan, const float* hidden);
  void list_rows(StepRun::State& s);
  void make_room(StepRun::State& s);

  void attention(StepRun::State& s, const AttentionWeights& w);
  void queries(const AttentionWeights& w, Rows x, kernels::Heads q);
  void mlp(const MlpWeights& w, Rows x, Rows y);
  void route(StepRun::State& s, const LayerWeights& w);
  void shared_expert(StepRun::State& s);
  void gather(StepRun::State& s);
  void note_canary(StepRun::State& s) const;
  void look_for_trouble(StepRun::State& s) {
    s.trouble.look(*context.pool, rows_of(s, s.hidden), s.layer);
  }
  Progress finish(StepRun::State& s);

  const ModelConfig config;
  const Numerics numerics;
  const WireType wire;
  const std::shared_ptr<const ShardWeights> weights;
  KvCache& cache;
  kernels::Scratch scratch;
  const kernels::Context context;
  const kernels::GateConfig gate;
  const float scale;
  const std::int32_t positions;  // that a sequence may have
  const RopeTables rope;
  ExpertForward experts;
  std::optional<OutputHead> head;  // on the last stage
};

ShardForward::ShardForward(const ModelConfig& config, Numerics numerics,
                           std::shared_ptr<const ShardWeights> weights, KvCache& cache,
                           ThreadPool& threads)
    : impl_(std::make_unique<Impl>(config, numerics, std::move(weights), cache, threads)) {}
ShardForward::~ShardForward() = default;

Status ShardForward::begin(StepRun& run, const StepPlanBody& plan, const float* hidden) {
  try {
    return impl_->begin(*run.state_, plan, hidden);
  } catch (const std::bad_alloc&) {
    run.state_->at = StepRun::State::At::kIdle;
    return resource_exhausted("a step ran out of memory; lower --max-num-batched-tokens");
  }
}

/// The layer, as in the paper (arXiv 2412.19437, sec. 2.1):
///   h += attention(norm(h))
///   h += dense(norm(h))  or  h += shared(n) + sum_e w_e expert_e(n), n = norm(h)
Progress ShardForward::advance(StepRun& run) {
  StepRun::State& s = *run.state_;
  Impl& self = *impl_;
  assert(s.at != StepRun::State::At::kIdle);
  if (s.at == StepRun::State::At::kDone) return Progress::kDone;
  if (s.at == StepRun::State::At::kExperts) self.gather(s);
  for (; s.layer < self.weights->last; ++s.layer) {
    const LayerWeights& w = self.layer(s.layer);
    self.attention(s, w.attention);
    self.note_canary(s);
    kernels::rms_norm(self.context, self.rows_of(s, s.hidden), w.post_attention_norm.data(),
                      static_cast<float>(self.config.rms_norm_eps), self.rows_of(s, s.normed));
    if (w.kind == LayerKind::kExperts) {
      self.route(s, w);
      s.at = StepRun::State::At::kExperts;
      return Progress::kNeedExperts;
    }
    self.mlp(w.mlp, self.rows_of(s, s.normed), self.rows_of(s, s.shared));
    kernels::residual_add(self.context, self.rows_of(s, s.shared), self.rows_of(s, s.hidden));
    self.note_canary(s);
    self.look_for_trouble(s);
  }
  return self.finish(s);
}

void ShardForward::run_shared(StepRun& run) {
  assert(run.state_->at == StepRun::State::At::kExperts);
  impl_->shared_expert(*run.state_);
}

void ShardForward::run_local_experts(StepRun& run, const ExpertSet& experts,
                                     std::vector<Missing>& missing) {
  StepRun::State& s = *run.state_;
  assert(s.at == StepRun::State::At::kExperts);
  s.missing.clear();
  impl_->experts.run(experts,
                     {s.layer, s.pair_rows.data(), s.expert_ids, s.pair_outputs.data()}, s.missing);
  missing.clear();
  const auto top_k = static_cast<std::int32_t>(s.top_k);
  for (const std::int32_t pair : s.missing)
    missing.push_back({pair / top_k, pair % top_k, s.expert_ids[static_cast<std::size_t>(pair)]});
}

// --- Beginning and end ------------------------------------------------------------------------

Status ShardForward::Impl::begin(StepRun::State& s, const StepPlanBody& plan,
                                 const float* hidden) {
  s.at = StepRun::State::At::kIdle;
  const StepBounds bounds = {config.vocab_size, positions, cache.num_blocks(), cache.block_size()};
  if (auto status = check_plan(plan, bounds); !status) return status;
  if ((hidden == nullptr) != (weights->first == 0))
    return invalid_argument("step " + std::to_string(plan.step.value) +
                            (hidden ? " brought hidden states to the first stage"
                                    : " came without the hidden states of the stage before"));
  s.plan = plan;
  list_rows(s);
  make_room(s);
  if (hidden)
    std::memcpy(s.hidden.data(), hidden, s.rows * s.hidden_size * sizeof(float));
  else
    kernels::embedding(context, weights->embedding.source, s.tokens.data(), rows_of(s, s.hidden));
  s.layer = weights->first - 1;
  s.trouble.begin(s.rows);
  look_for_trouble(s);
  ++s.layer;
  s.at = StepRun::State::At::kAttention;
  return {};
}

void ShardForward::Impl::list_rows(StepRun::State& s) {
  s.tokens.clear();
  s.positions.clear();
  s.tables.clear();
  s.canary = false;
  s.digests.clear();
  const std::int32_t size = cache.block_size();
  for (const auto& sequence : s.plan.sequences) {
    std::int32_t position = sequence.first_position;
    s.canary |= sequence.canary;
    for (const TokenId token : sequence.tokens) {
      s.tokens.push_back(token);
      s.positions.push_back(position);
      s.tables.push_back(sequence.block_table.data());
      const auto block = static_cast<std::size_t>(
          sequence.block_table[static_cast<std::size_t>(position / size)]);
      cache.tokens()[block * static_cast<std::size_t>(size) +
                     static_cast<std::size_t>(position % size)] = token;
      ++position;
    }
  }
  s.rows = s.tokens.size();
  s.hidden_size = static_cast<std::size_t>(config.hidden_size);
  s.top_k = static_cast<std::size_t>(config.top_k);
  s.wire_row_bytes = s.hidden_size * wire_size(wire);
}

void ShardForward::Impl::make_room(StepRun::State& s) {
  const std::size_t numbers = s.rows * s.hidden_size, pairs = s.rows * s.top_k;
  s.hidden.at_least(numbers);
  s.normed.at_least(numbers);
  s.shared.at_least(numbers);
  s.expert_ids.resize(pairs);
  s.expert_weights.resize(pairs);
  s.combined.resize(pairs);
  s.pair_rows.resize(pairs);
  s.pair_outputs.resize(pairs);
  if (pairs == 0) return;
  s.normed_wire.at_least(s.rows * s.wire_row_bytes);
  s.expert_outputs.at_least(pairs * s.wire_row_bytes);
  for (std::size_t i = 0; i < pairs; ++i) {
    s.pair_rows[i] = s.normed_wire.data() + i / s.top_k * s.wire_row_bytes;
    s.pair_outputs[i] = s.expert_outputs.data() + i * s.wire_row_bytes;
  }
}

Progress ShardForward::Impl::finish(StepRun::State& s) {
  if (head) head->run(context, s.plan, s.hidden.data(), s.trouble, s.results);
  s.at = StepRun::State::At::kDone;
  return Progress::kDone;
}

// --- Attention --------------------------------------------------------------------------------

/// h += o(W_UV mla(q W_UK, cache)). The cache holds norm(c) and the turned key part k_r, where (c,
/// k_r) = kv_a(norm(h)); every head reads the same.
void ShardForward::Impl::attention(StepRun::State& s, const AttentionWeights& w) {
  kernels::Scratch::Scope scope(scratch);
  const auto& c = config;
  const std::size_t rows = s.rows, heads = static_cast<std::size_t>(c.num_heads);
  const auto nope = static_cast<std::size_t>(c.qk_nope_head_dim);
  const auto rope_dim = static_cast<std::size_t>(c.qk_rope_head_dim);
  const auto qk = nope + rope_dim, v = static_cast<std::size_t>(c.v_head_dim);
  const auto lora = static_cast<std::size_t>(c.kv_lora_rank), kv_row = lora + rope_dim;
  const auto turn = [&](kernels::Heads x) {
    kernels::rope(context, rope.table(), kernels::RopePairs::kInterleaved, s.positions.data(), x);
  };

  const Rows x = make_rows(take(rows * s.hidden_size), rows, s.hidden_size);  // [rows, hidden]
  kernels::rms_norm(context, rows_of(s, s.hidden), w.input_norm.data(),
                    static_cast<float>(c.rms_norm_eps), x);

  // The latent and the shared key part of the new positions go into the cache.
  const Rows kv = make_rows(take(rows * kv_row), rows, kv_row);  // [rows, kv_lora + rope]
  kernels::linear(context, w.kv_a, x, kv);
  const Rows latent = {kv.data, rows, lora, kv_row};
  const Rows key = {kv.data + lora, rows, rope_dim, kv_row};
  kernels::rms_norm(context, latent, w.kv_a_norm.data(), kLoraNormEps, latent);
  turn({key.data, rows, 1, rope_dim, kv_row, rope_dim});
  const kernels::LatentCache pool = {cache.pool(s.layer, kMlaPool), wire,
                                     static_cast<std::size_t>(cache.block_size()), lora, rope_dim};
  kernels::store_latent(context, pool, s.where(), latent, key);

  // Queries, with their unturned part carried into the latent space.
  const auto q = kernels::make_heads(take(rows * heads * qk), rows, heads, qk);
  queries(w, x, q);
  const kernels::Heads q_nope = {q.data, rows, heads, nope, q.row_stride, q.head_stride};
  const kernels::Heads q_rope = {q.data + nope, rows, heads, rope_dim, q.row_stride, q.head_stride};
  turn(q_rope);
  const auto q_latent = kernels::make_heads(take(rows * heads * lora), rows, heads, lora);
  kernels::linear_heads(context, w.w_uk, q_nope, q_latent);

  const auto attended = kernels::make_heads(take(rows * heads * lora), rows, heads, lora);
  kernels::mla_attention(context, pool, s.where(), {q_latent, q_rope, scale}, attended);

  // Out of the latent space, through the output projection.
  const auto values = kernels::make_heads(take(rows * heads * v), rows, heads, v);
  kernels::linear_heads(context, w.w_uv, attended, values);
  kernels::linear(context, w.o, make_rows(values.data, rows, heads * v), x);
  kernels::residual_add(context, x, rows_of(s, s.hidden));
}

/// q [rows, heads, nope + rope] = q_b(norm(q_a(x))), or straight from x.
void ShardForward::Impl::queries(const AttentionWeights& w, Rows x, kernels::Heads q) {
  const Rows out = make_rows(q.data, q.rows, q.heads * q.dim);
  if (w.q_a.empty()) return kernels::linear(context, w.q_b, x, out);
  const auto lora = static_cast<std::size_t>(config.q_lora_rank);
  const Rows low = make_rows(take(x.rows * lora), x.rows, lora);  // [rows, q_lora]
  kernels::linear(context, w.q_a, x, low);
  kernels::rms_norm(context, low, w.q_a_norm.data(), kLoraNormEps, low);
  kernels::linear(context, w.q_b, low, out);
}

// --- Feed-forward -----------------------------------------------------------------------------

/// y = down(silu(gate(x)) * up(x)).
void ShardForward::Impl::mlp(const MlpWeights& w, Rows x, Rows y) {
  kernels::Scratch::Scope scope(scratch);
  const auto width = static_cast<std::size_t>(w.gate.n());
  const Rows a = make_rows(take(x.rows * width), x.rows, width);  // [rows, width]
  const Rows b = make_rows(take(x.rows * width), x.rows, width);  // [rows, width]
  kernels::linear(context, w.gate, x, a);
  kernels::linear(context, w.up, x, b);
  kernels::silu_mul(context, a, b, a);
  kernels::linear(context, w.down, a, y);
}

/// Chooses every row's experts and rounds what they will read.
void ShardForward::Impl::route(StepRun::State& s, const LayerWeights& w) {
  kernels::Scratch::Scope scope(scratch);
  const auto count = static_cast<std::size_t>(config.num_experts);
  const Rows logits = make_rows(take(s.rows * count), s.rows, count);  // [rows, experts]
  kernels::linear(context, w.gate, rows_of(s, s.normed), logits);
  kernels::moe_gate(context, gate, logits, w.gate_bias.empty() ? nullptr : w.gate_bias.data(),
                    s.expert_ids.data(), s.expert_weights.data());
  kernels::to_wire(context, wire, rows_of(s, s.normed), s.normed_wire.data());
  s.shared_done = false;
}

void ShardForward::Impl::shared_expert(StepRun::State& s) {
  if (s.shared_done) return;
  s.shared_done = true;
  const LayerWeights& w = layer(s.layer);
  if (w.has_mlp()) mlp(w.mlp, rows_of(s, s.normed), rows_of(s, s.shared));
}

/// h += shared, then += each expert's weighted output by rising expert id; on to the next layer.
void ShardForward::Impl::gather(StepRun::State& s) {
  shared_expert(s);
  const Rows hidden = rows_of(s, s.hidden);
  if (layer(s.layer).has_mlp()) kernels::residual_add(context, rows_of(s, s.shared), hidden);
  for (std::size_t i = 0; i < s.combined.size(); ++i)
    s.combined[i] = {s.pair_outputs[i], s.expert_weights[i]};
  kernels::combine(context, wire, s.combined, s.top_k, hidden);
  note_canary(s);
  look_for_trouble(s);
  ++s.layer;
  s.at = StepRun::State::At::kAttention;
}

/// What the canary's rows have become at a boundary of the layer.
void ShardForward::Impl::note_canary(StepRun::State& s) const {
  if (!s.canary) return;
  std::uint64_t sum = 0;
  std::size_t row = 0;
  for (const StepSequence& sequence : s.plan.sequences) {
    for (std::size_t i = 0; i < sequence.tokens.size() && sequence.canary; ++i)
      sum += xxh3_64(s.hidden.data() + (row + i) * s.hidden_size, s.hidden_size * sizeof(float),
                     static_cast<std::uint64_t>(s.positions[row + i]));
    row += sequence.tokens.size();
  }
  s.digests.push_back(sum);
}

}  // namespace troupe
