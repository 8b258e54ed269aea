#include "model/forward/forward.h"

#include <algorithm>
#include <cassert>
#include <cstring>
#include <new>
#include <optional>
#include <utility>

#include "kernels/embedding.h"
#include "kernels/gated_mlp.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "model/forward/head.h"
#include "model/forward/layer_run.h"
#include "model/rope_table.h"
#include "runtime/xxh3.h"

namespace troupe {

struct Forward::Impl {
  Impl(const ModelSpec& m, std::shared_ptr<const ShardWeights> w, KvCache& kv,
       const kernels::Stream::Options& options)
      : spec(m),
        weights(std::move(w)),
        cache(kv),
        stream(options),
        positions(static_cast<std::int32_t>(std::min<std::int64_t>(
            spec.positions_max, std::int64_t{kv.num_blocks()} * kv.block_size()))),
        rope(spec.rope, positions),
        rope_table(rope.table()) {
    if (last_stage()) head.emplace(spec, *weights, cache, options.pool->threads());
  }

  bool first_stage() const { return weights->first == 0; }
  bool last_stage() const { return weights->last + 1 == spec.num_layers(); }
  LayerRun run_of(Step& step) {
    const auto index = static_cast<std::size_t>(step.layer);
    return {stream,
            spec,
            spec.layers[index],
            weights->layers[index - static_cast<std::size_t>(weights->first)],
            rope_table,
            cache,
            step.layer,
            step};
  }

  Status begin(Step& step, const StepPlanBody& plan, const float* hidden);
  void list_rows(Step& step);
  void make_room(Step& step);
  void choose_experts(const LayerRun& run, const ExpertSet& set, ForwardListener& listener);
  void end_layer(Step& step);
  void note_canary(Step& step) const;
  void look_for_trouble(Step& step) { step.trouble.look(*stream.pool(), step.hidden, step.layer); }

  const ModelSpec& spec;
  const std::shared_ptr<const ShardWeights> weights;
  KvCache& cache;
  kernels::Stream stream;
  const std::int32_t positions;  // that a sequence may have
  const RopeTables rope;
  const kernels::RopeTable rope_table;
  std::optional<OutputHead> head;  // on the last stage
};

Forward::Forward(const ModelSpec& spec, std::shared_ptr<const ShardWeights> weights, KvCache& cache,
                 const kernels::Stream::Options& stream)
    : impl_(std::make_unique<Impl>(spec, std::move(weights), cache, stream)) {}
Forward::~Forward() = default;

std::size_t Forward::scratch_bytes() const { return impl_->stream.scratch().bytes(); }

Status Forward::begin(Step& step, const StepPlanBody& plan, const float* hidden) {
  try {
    return impl_->begin(step, plan, hidden);
  } catch (const std::bad_alloc&) {
    step.at = Step::At::kIdle;
    return resource_exhausted("a step ran out of memory; lower --max-num-batched-tokens");
  }
}

/// The layer, as in the paper (arXiv 2412.19437, sec. 2.1):
///   h += attention(norm(h))
///   h += dense(norm(h))  or  h += shared(n) + sum_e w_e expert_e(n), n = norm(h)
Cut Forward::advance(Step& step, const ExpertSet& experts, ForwardListener& listener) {
  Impl& self = *impl_;
  assert(step.at != Step::At::kIdle);
  if (step.at == Step::At::kExperts) {
    gather(self.run_of(step));
    self.end_layer(step);
  }
  while (step.at == Step::At::kLayer && step.layer <= self.weights->last) {
    const LayerRun run = self.run_of(step);
    kernels::rms_norm(self.stream, step.hidden, run.weight(WeightRole::kInputNorm),
                      self.spec.norm_eps, step.normed);
    if (run.spec.attention.kind == AttentionKind::kMla)
      mla(run, step.normed, step.branch);
    else
      grouped_attention(run, step.normed, step.branch);
    kernels::residual_add(self.stream, step.branch, step.hidden);
    self.note_canary(step);

    kernels::rms_norm(self.stream, step.hidden, run.weight(WeightRole::kPostNorm),
                      self.spec.norm_eps, step.normed);
    if (run.spec.has_experts()) {
      self.choose_experts(run, experts, listener);
      shared_experts(run);
      step.at = Step::At::kExperts;
      return Cut::kExperts;
    }
    kernels::gated_mlp(self.stream, run.weights.mlp, self.spec.act, step.normed, step.branch);
    kernels::residual_add(self.stream, step.branch, step.hidden);
    self.end_layer(step);
  }
  if (step.at == Step::At::kDone) return Cut::kDone;
  if (self.head) self.head->run(self.stream, step);
  step.at = Step::At::kDone;
  return Cut::kDone;
}

void Forward::Impl::choose_experts(const LayerRun& run, const ExpertSet& set,
                                   ForwardListener& listener) {
  Step& step = run.step;
  route(run);
  listener.on_routed(step.layer, step.expert_ids);
  step.missing.clear();
  for (std::size_t i = 0; i < step.expert_ids.size(); ++i) {
    const auto pair = static_cast<std::int64_t>(i);
    if (!set.has({step.layer, step.expert_ids[i]}))
      step.missing.push_back({static_cast<std::int32_t>(pair / step.top_k),
                              static_cast<std::int32_t>(pair % step.top_k), step.expert_ids[i]});
  }
  if (!step.missing.empty()) listener.on_missing(step);
}

void Forward::Impl::end_layer(Step& step) {
  note_canary(step);
  look_for_trouble(step);
  ++step.layer;
  step.at = Step::At::kLayer;
}

// --- Beginning --------------------------------------------------------------------------------

Status Forward::Impl::begin(Step& step, const StepPlanBody& plan, const float* hidden) {
  step.at = Step::At::kIdle;
  const StepBounds bounds = {spec.vocab, positions, cache.num_blocks(), cache.block_size()};
  if (auto status = check_plan(plan, bounds); !status) return status;
  if ((hidden == nullptr) != first_stage())
    return invalid_argument("step " + std::to_string(plan.step.value) +
                            (hidden ? " brought hidden states to the first stage"
                                    : " came without the hidden states of the stage before"));
  step.plan = &plan;
  list_rows(step);
  make_room(step);
  if (hidden)
    std::memcpy(step.hidden.data, hidden,
                static_cast<std::size_t>(step.rows * step.width) * sizeof(float));
  else
    kernels::embedding(stream, weights->embedding, step.tokens.data(), step.hidden);
  step.trouble.begin(static_cast<std::size_t>(step.rows));
  step.layer = weights->first - 1;
  look_for_trouble(step);
  ++step.layer;
  step.at = Step::At::kLayer;
  return {};
}

void Forward::Impl::list_rows(Step& step) {
  step.tokens.clear();
  step.positions.clear();
  step.tables.clear();
  step.canary = false;
  step.digests.clear();
  const std::int32_t size = cache.block_size();
  for (const auto& sequence : step.plan->sequences) {
    std::int32_t position = sequence.first_position;
    step.canary |= sequence.canary;
    for (const TokenId token : sequence.tokens) {
      step.tokens.push_back(token);
      step.positions.push_back(position);
      step.tables.push_back(sequence.block_table.data());
      const auto block =
          static_cast<std::size_t>(sequence.block_table[static_cast<std::size_t>(position / size)]);
      cache.tokens()[block * static_cast<std::size_t>(size) +
                     static_cast<std::size_t>(position % size)] = token;
      ++position;
    }
  }
  step.rows = static_cast<std::int64_t>(step.tokens.size());
  step.width = spec.hidden;
  step.top_k = spec.top_k();
  step.wire_row_bytes =
      static_cast<std::size_t>(step.width) * dtype_size(wire_type(stream.numerics()));
}

void Forward::Impl::make_room(Step& step) {
  const auto rows = static_cast<std::size_t>(step.rows);
  const auto numbers = rows * static_cast<std::size_t>(step.width);
  const auto pairs = rows * static_cast<std::size_t>(step.top_k);
  const auto room = [&](Grown<float>& buffer) {
    return kernels::host_tensor(buffer.at_least(numbers), DType::kF32, step.rows, step.width);
  };
  step.hidden = room(step.hidden_room);
  step.normed = room(step.normed_room);
  step.branch = room(step.branch_room);
  step.expert_ids.resize(pairs);
  step.expert_weights.resize(pairs);
  step.outputs.resize(pairs);
  step.pair_rows.resize(pairs);
  step.pair_outputs.resize(pairs);
  if (pairs == 0) return;
  step.wire = kernels::host_tensor(step.wire_room.at_least(rows * step.wire_row_bytes),
                                   wire_type(stream.numerics()), step.rows, step.width);
  std::byte* outputs = step.outputs_room.at_least(pairs * step.wire_row_bytes);
  for (std::size_t i = 0; i < pairs; ++i) {
    step.pair_rows[i] =
        step.wire_row(static_cast<std::int32_t>(i) / static_cast<std::int32_t>(step.top_k));
    step.pair_outputs[i] = outputs + i * step.wire_row_bytes;
  }
}

/// What the canary's rows have become at a boundary of the layer.
void Forward::Impl::note_canary(Step& step) const {
  if (!step.canary) return;
  const auto* hidden = static_cast<const float*>(step.hidden.data);
  const auto width = static_cast<std::size_t>(step.width);
  std::uint64_t sum = 0;
  std::size_t row = 0;
  for (const StepSequence& sequence : step.plan->sequences) {
    for (std::size_t i = 0; i < sequence.tokens.size() && sequence.canary; ++i)
      sum += xxh3_64(hidden + (row + i) * width, width * sizeof(float),
                     static_cast<std::uint64_t>(step.positions[row + i]));
    row += sequence.tokens.size();
  }
  step.digests.push_back(sum);
}

}  // namespace troupe
