#include "model/forward/forward.h"

#include <algorithm>
#include <cassert>
#include <new>
#include <optional>
#include <utility>

#include "kernels/copy.h"
#include "kernels/embedding.h"
#include "kernels/gated_mlp.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "model/forward/head.h"
#include "model/forward/layer_run.h"
#include "model/forward/rank_cuts.h"
#include "model/forward/rank_experts.h"
#include "model/rope_table.h"

namespace troupe {
namespace {

std::size_t hidden_bytes(const Step& step) {
  return static_cast<std::size_t>(step.rows * step.width) * sizeof(float);
}

}  // namespace

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
        cos(stream.place(std::as_bytes(std::span(rope.cos())))),
        sin(stream.place(std::as_bytes(std::span(rope.sin())))),
        rope_table{reinterpret_cast<const float*>(cos.get()),
                   reinterpret_cast<const float*>(sin.get()), positions, spec.rope.dim / 2},
        ranks(spec),
        rank_experts(spec, ranks) {
    if (last_stage()) head.emplace(spec, *weights, cache, options.pool->threads());
  }

  bool first_stage() const { return weights->first == 0; }
  bool keeps_choices() const { return stream.accelerator() != nullptr && ranks.alone(); }
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

  Status begin(Step& step, const StepPlanBody& plan, const Payload& hidden);
  void list_rows(Step& step);
  void make_room(Step& step);

  /// The parts of a step. Each does what it can, and says what the step goes on with.
  enum class Next { kGoesOn, kExperts, kAnswers, kRanks, kCorrupt };
  Next part(Step& step, const ExpertSet& experts, ForwardListener& listener);
  /// Another step may come between: before a layer, or before some rows' logits.
  static bool between_parts(const Step& step) {
    return step.at == Step::At::kLayer || step.at == Step::At::kHead;
  }
  Next embed(Step& step);
  Next attend(const LayerRun& run);
  Next feed_forward(const LayerRun& run, const ExpertSet& experts, ForwardListener& listener);
  Next shared_experts(const LayerRun& run);
  Next take_outputs(const LayerRun& run, ForwardListener& listener);
  Next ask_late(Step& step, ForwardListener& listener);
  Next add_up_own(const LayerRun& run);
  Next logits(Step& step);
  void end_embedding(Step& step);
  Next add_sum(Step& step, std::uint32_t ways, const float* bias, Step::At rows_heard);
  Next tell_rows(Step& step, Step::At heard);
  void choose_experts(const LayerRun& run, const ExpertSet& set, ForwardListener& listener);
  Next to_ranks(Step& step, Step::At at) {
    step.at = at;
    return Next::kRanks;
  }
  void tell_missing(Step& step, ForwardListener& listener);
  void note_canary(Step& step);
  void look_for_trouble(Step& step) { step.trouble.look(stream, step.hidden, step.layer); }

  const ModelSpec& spec;
  const std::shared_ptr<const ShardWeights> weights;
  KvCache& cache;
  kernels::Stream stream;
  const std::int32_t positions;  // that a sequence may have
  const RopeTables rope;
  const std::shared_ptr<const std::byte> cos, sin;  // where ops reach them
  const kernels::RopeTable rope_table;
  RankCuts ranks;
  RankExperts rank_experts;
  std::shared_ptr<const ExpertRanks> expert_ranks;  // may be null
  std::optional<OutputHead> head;                   // on the last stage
};

Forward::Forward(const ModelSpec& spec, std::shared_ptr<const ShardWeights> weights, KvCache& cache,
                 const kernels::Stream::Options& stream)
    : impl_(std::make_unique<Impl>(spec, std::move(weights), cache, stream)) {}
Forward::~Forward() = default;

std::size_t Forward::scratch_bytes() const { return impl_->stream.scratch().bytes(); }

void Forward::use(std::shared_ptr<const ExpertRanks> ranks) {
  impl_->expert_ranks = std::move(ranks);
}

void Forward::use(std::shared_ptr<AnswerGrammars> grammars) {
  if (impl_->head) impl_->head->use(std::move(grammars));
}

void Forward::stay_on_devices(bool stay) {
  impl_->ranks.stay_on_devices(stay && impl_->stream.accelerator() != nullptr);
}

Status Forward::begin(Step& step, const StepPlanBody& plan, const Payload& hidden) {
  try {
    return impl_->begin(step, plan, hidden);
  } catch (const std::bad_alloc&) {
    step.at = Step::At::kIdle;
    return resource_exhausted("a step ran out of memory; lower --max-num-batched-tokens");
  }
}

void Forward::answer(Step& step, const MissingExpert& of, const Payload& output) {
  if (step.among_ranks && RankExperts::is_covered(step, of)) return;
  impl_->stream.write(step.expert_output(of.row, of.slot), output);
}

Payload Forward::hidden_of(const Step& step) {
  auto buffer = impl_->stream.host_buffer(hidden_bytes(step));
  impl_->stream.fetch(buffer, step.hidden.data, buffer->size());
  impl_->stream.wait();
  return Payload::of(std::move(buffer));
}

Cut Forward::advance(Step& step, const ExpertSet& experts, ForwardListener& listener) {
  assert(step.at != Step::At::kIdle);
  while (step.at != Step::At::kDone) switch (impl_->part(step, experts, listener)) {
      case Impl::Next::kGoesOn:
        if (impl_->between_parts(step) && listener.yields()) return Cut::kYield;
        break;
      case Impl::Next::kExperts:
        return Cut::kExperts;
      case Impl::Next::kAnswers:
        return Cut::kAnswers;
      case Impl::Next::kRanks:
        return Cut::kRanks;
      case Impl::Next::kCorrupt:
        return Cut::kCorrupt;
    }
  return Cut::kDone;
}

/// The layer, as in the paper (arXiv 2412.19437, sec. 2.1):
///   h += attention(norm(h))
///   h += dense(norm(h))  or  h += shared(n) + sum_e w_e expert_e(n), n = norm(h)
/// Where ranks have parts of a sum, they are joined before it is added.
Forward::Impl::Next Forward::Impl::part(Step& step, const ExpertSet& experts,
                                        ForwardListener& listener) {
  using At = Step::At;
  switch (step.at) {
    case At::kTokens:
      return embed(step);
    case At::kEmbedded:
      ranks.take_embedded(stream, step, step.hidden);
      end_embedding(step);
      return Next::kGoesOn;
    case At::kLayer:
      if (step.layer <= weights->last) return attend(run_of(step));
      step.chosen_layers.tell(stream, listener);
      if (head) head->begin(stream, step);
      step.at = head ? At::kHead : At::kDone;
      return Next::kGoesOn;
    case At::kAttended: {
      const LayerRun run = run_of(step);
      step.at = At::kFeedForward;
      return add_sum(step, run.spec.attention.ways, run.vector(WeightRole::kOBias),
                     At::kAttendedRows);
    }
    case At::kAttendedRows:
      ranks.take_rows(stream, step, step.hidden);
      step.at = At::kFeedForward;
      return Next::kGoesOn;
    case At::kFeedForward:
      return feed_forward(run_of(step), experts, listener);
    case At::kMlp:
      step.at = At::kEndOfLayer;
      return add_sum(step, run_of(step).spec.inner_ways, nullptr, At::kGathered);
    case At::kExperts:
      if (!ranks.alone()) {
        rank_experts.send(stream, step, run_of(step).spec);
        return to_ranks(step, At::kOutputs);
      }
      gather(run_of(step), step.hidden, 0);
      step.at = At::kEndOfLayer;
      return Next::kGoesOn;
    case At::kOutputs:
      return take_outputs(run_of(step), listener);
    case At::kAnswers:
      return step.late.empty() ? add_up_own(run_of(step)) : ask_late(step, listener);
    case At::kGathered:
      ranks.take_rows(stream, step, step.hidden);
      step.at = At::kEndOfLayer;
      return Next::kGoesOn;
    case At::kEndOfLayer:
      note_canary(step);
      look_for_trouble(step);
      ++step.layer;
      step.at = At::kLayer;
      if (auto* d = stream.accelerator(); d && step.rows >= limits::kRowsByLayer) d->flush();
      return Next::kGoesOn;
    case At::kHead:
      return logits(step);
    case At::kLogits:
      if (ranks.leads()) {
        kernels::Stream::Scope scope(stream);
        const kernels::Tensor all = stream.alloc(step.logit_rows, spec.vocab);
        ranks.take_logits(stream, step, all);
        head->read(stream, step, all);
      }
      step.wanted_done += static_cast<std::size_t>(step.logit_rows);
      step.at = At::kHead;
      return Next::kGoesOn;
    case At::kTogether:
      step.at = At::kDone;
      return Next::kGoesOn;
    case At::kIdle:
    case At::kDone:
      break;
  }
  return Next::kGoesOn;
}

Forward::Impl::Next Forward::Impl::embed(Step& step) {
  if (ranks.alone()) {
    kernels::embedding(stream, weights->embedding, step.tokens.data(), step.hidden);
    end_embedding(step);
    return Next::kGoesOn;
  }
  step.part_tokens.clear();
  for (const TokenId token : step.tokens)
    if (ranks.has_token(token)) step.part_tokens.push_back(token - ranks.first_token());
  const auto rows = static_cast<std::int64_t>(step.part_tokens.size());
  const kernels::Tensor out = ranks.outgoing(stream, step, rows, step.width);
  if (rows > 0) kernels::embedding(stream, weights->embedding, step.part_tokens.data(), out);
  ranks.send_embedded(stream, step);
  return to_ranks(step, Step::At::kEmbedded);
}

void Forward::Impl::end_embedding(Step& step) {
  step.trouble.look(stream, step.hidden, step.layer - 1);
  step.at = Step::At::kLayer;
}

Forward::Impl::Next Forward::Impl::attend(const LayerRun& run) {
  Step& step = run.step;
  const bool whole = run.spec.attention.ways == 1;
  const kernels::Tensor out =
      whole ? step.branch : ranks.outgoing(stream, step, step.rows, step.width);
  kernels::rms_norm(stream, step.hidden, run.weight(WeightRole::kInputNorm), spec.norm_eps,
                    step.normed);
  if (run.spec.attention.kind == AttentionKind::kMla)
    mla(run, step.normed, out);
  else
    grouped_attention(run, step.normed, out);
  if (whole) {
    kernels::residual_add(stream, out, step.hidden);
    step.at = Step::At::kFeedForward;
    return Next::kGoesOn;
  }
  ranks.send_sum(stream, step, run.spec.attention.ways, ranks.scatters(step.rows));
  return to_ranks(step, Step::At::kAttended);
}

/// h += what the ranks' parts add up to. Where a rank has added up its own rows only, it tells the
/// others next.
Forward::Impl::Next Forward::Impl::add_sum(Step& step, std::uint32_t ways, const float* bias,
                                           Step::At rows_heard) {
  const bool own = ranks.scatters(step.rows);
  const std::int64_t first = own ? step.own_first : 0;
  const std::int64_t rows = own ? step.own_rows : step.rows;
  const kernels::Tensor sum = step.branch.part(first, rows);
  ranks.take_sum(stream, step, ways, bias, sum, first);
  kernels::residual_add(stream, sum, step.hidden.part(first, rows));
  return own ? tell_rows(step, rows_heard) : Next::kGoesOn;
}

/// All ranks get this rank's rows of h.
Forward::Impl::Next Forward::Impl::tell_rows(Step& step, Step::At heard) {
  const kernels::Tensor own = step.hidden.part(step.own_first, step.own_rows);
  const kernels::Tensor out = ranks.outgoing(stream, step, step.own_rows, step.width);
  if (step.own_rows > 0) kernels::copy(stream, own, out);
  ranks.send_rows(stream, step);
  return to_ranks(step, heard);
}

Forward::Impl::Next Forward::Impl::feed_forward(const LayerRun& run, const ExpertSet& experts,
                                                ForwardListener& listener) {
  Step& step = run.step;
  note_canary(step);
  kernels::rms_norm(stream, step.hidden, run.weight(WeightRole::kPostNorm), spec.norm_eps,
                    step.normed);
  if (run.spec.has_experts()) {
    choose_experts(run, experts, listener);
    return shared_experts(run);
  }
  if (run.spec.inner_ways > 1) {
    const kernels::Tensor out = ranks.outgoing(stream, step, step.rows, step.width);
    kernels::gated_mlp(stream, run.weights.mlp, spec.act, step.normed, out);
    ranks.send_sum(stream, step, run.spec.inner_ways, ranks.scatters(step.rows));
    return to_ranks(step, Step::At::kMlp);
  }
  kernels::gated_mlp(stream, run.weights.mlp, spec.act, step.normed, step.branch);
  kernels::residual_add(stream, step.branch, step.hidden);
  step.at = Step::At::kEndOfLayer;
  return Next::kGoesOn;
}

/// Before the routed ones, whose questions travel meanwhile.
Forward::Impl::Next Forward::Impl::shared_experts(const LayerRun& run) {
  Step& step = run.step;
  const kernels::Tensor out =
      ranks.alone() ? step.branch : rank_experts.outgoing(stream, step, run.spec);
  if (run.spec.inner > 0) kernels::gated_mlp(stream, run.weights.mlp, spec.act, step.normed, out);
  step.at = Step::At::kExperts;
  return ranks.alone() || step.any_here() ? Next::kExperts : Next::kGoesOn;
}

/// All ranks add up all rows where they have all outputs; else each its own.
Forward::Impl::Next Forward::Impl::take_outputs(const LayerRun& run, ForwardListener& listener) {
  using Found = RankExperts::Found;
  Step& step = run.step;
  const bool asked = !step.missing.empty();
  const Found found = rank_experts.take(stream, step, run.spec);
  if (found == Found::kCorrupt) return Next::kCorrupt;
  if (asked && step.missing.empty()) listener.on_found(step);
  const bool all = found == Found::kAll;
  if (run.spec.inner_ways > 1)
    rank_experts.join_shared(stream, step, run.spec,
                             all ? step.branch : step.branch.part(step.own_first, step.own_rows));
  if (all) {
    gather(run, step.hidden, 0);
    step.at = Step::At::kEndOfLayer;
    return Next::kGoesOn;
  }
  if (found == Found::kOwn) return add_up_own(run);
  if (step.missing.empty()) return ask_late(step, listener);
  step.at = Step::At::kAnswers;
  return Next::kAnswers;
}

/// What another rank was expected to compute and did not.
Forward::Impl::Next Forward::Impl::ask_late(Step& step, ForwardListener& listener) {
  step.missing = std::exchange(step.late, {});
  tell_missing(step, listener);
  step.at = Step::At::kAnswers;
  return Next::kAnswers;
}

Forward::Impl::Next Forward::Impl::add_up_own(const LayerRun& run) {
  Step& step = run.step;
  gather(run, step.hidden.part(step.own_first, step.own_rows), step.own_first);
  step.at = Step::At::kEndOfLayer;
  return tell_rows(step, Step::At::kGathered);
}

Forward::Impl::Next Forward::Impl::logits(Step& step) {
  if (!head->more(step)) {
    if (ranks.leads()) head->end(step);
    if (ranks.in_step()) {
      step.at = Step::At::kDone;
      return Next::kGoesOn;
    }
    ranks.send_done(step);
    return to_ranks(step, Step::At::kTogether);
  }
  head->choose_next(step);
  if (ranks.alone()) {
    kernels::Stream::Scope scope(stream);
    const kernels::Tensor all = stream.alloc(step.logit_rows, spec.vocab);  // [rows, vocab]
    head->compute(stream, step, all);
    head->read(stream, step, all);
    step.wanted_done += static_cast<std::size_t>(step.logit_rows);
    return Next::kGoesOn;
  }
  head->compute(stream, step, ranks.outgoing(stream, step, step.logit_rows, ranks.own_tokens()));
  ranks.send_logits(stream, step);
  return to_ranks(step, Step::At::kLogits);
}

void Forward::Impl::choose_experts(const LayerRun& run, const ExpertSet& set,
                                   ForwardListener& listener) {
  Step& step = run.step;
  step.chosen = {};
  if (keeps_choices() && set.count(step.layer) == run.spec.experts.gate.experts)
    step.chosen = step.chosen_layers.next(step);
  route(run);
  if (step.chosen.count > 0) return step.missing.clear();
  const auto top_k = static_cast<std::size_t>(step.top_k);
  listener.on_routed(step.layer, std::span<const std::int32_t>(step.expert_ids)
                                     .subspan(static_cast<std::size_t>(step.own_first) * top_k,
                                              static_cast<std::size_t>(step.own_rows) * top_k));
  if (!ranks.alone()) {
    rank_experts.deal(step, set, expert_ranks.get());
  } else {
    step.missing.clear();
    for (std::size_t i = 0; i < step.expert_ids.size(); ++i)
      if (!set.has({step.layer, step.expert_ids[i]}))
        step.missing.push_back({static_cast<std::int32_t>(i / top_k),
                                static_cast<std::int32_t>(i % top_k), step.expert_ids[i]});
  }
  if (!step.missing.empty()) tell_missing(step, listener);
}

void Forward::Impl::tell_missing(Step& step, ForwardListener& listener) {
  step.wire_host = stream.read<std::byte>(step.wire);
  listener.on_missing(step);
  step.wire_host = nullptr;
}

// --- Beginning --------------------------------------------------------------------------------

Status Forward::Impl::begin(Step& step, const StepPlanBody& plan, const Payload& hidden) {
  step.at = Step::At::kIdle;
  const StepBounds bounds = {spec.vocab, positions, cache.num_blocks(), cache.block_size()};
  if (auto status = check_plan(plan, bounds); !status) return status;
  if (head) head->expect(plan);
  if (hidden.empty() != first_stage())
    return invalid_argument(first_stage() ? "hidden states came to the first stage"
                                          : "no hidden states of the stage before came");
  step.plan = &plan;
  list_rows(step);
  make_room(step);
  if (!hidden.empty()) stream.write(step.hidden.data, hidden);
  step.trouble.begin(stream, static_cast<std::size_t>(step.rows));
  step.exchange.index = 0;
  step.layer = weights->first;
  step.at = Step::At::kTokens;
  if (!hidden.empty()) end_embedding(step);
  return {};
}

void Forward::Impl::list_rows(Step& step) {
  list_tokens(step, cache);
  step.rows = static_cast<std::int64_t>(step.tokens.size());
  step.among_ranks = !ranks.alone();
  step.own_first = ranks.first_row(step.rows);
  step.own_rows = ranks.own_rows(step.rows);
  step.width = spec.hidden;
  step.top_k = spec.top_k();
  step.wire_row_bytes =
      static_cast<std::size_t>(step.width) * dtype_size(wire_type(stream.numerics()));
}

void Forward::Impl::make_room(Step& step) {
  const auto rows = static_cast<std::size_t>(step.rows);
  const auto pairs = rows * static_cast<std::size_t>(step.top_k);
  const auto room = [&](kernels::Stream::Room& of) {
    return stream.device_tensor(of.at_least(stream, hidden_bytes(step)), DType::kF32, step.rows,
                                step.width);
  };
  step.hidden = room(step.hidden_room);
  step.normed = room(step.normed_room);
  step.branch = room(step.branch_room);
  step.expert_ids.resize(pairs);
  step.expert_weights.resize(pairs);
  step.outputs.resize(pairs);
  step.pair_rows.resize(pairs);
  step.pair_outputs.resize(pairs);
  if (keeps_choices()) step.chosen_layers.begin(stream, weights->layers.size(), pairs);
  if (pairs == 0) return;
  step.wire = stream.device_tensor(step.wire_room.at_least(stream, rows * step.wire_row_bytes),
                                   wire_type(stream.numerics()), step.rows, step.width);
  const std::size_t own_pairs = pairs / rows * static_cast<std::size_t>(step.own_rows);
  std::byte* outputs = step.outputs_room.at_least(stream, own_pairs * step.wire_row_bytes);
  for (std::size_t i = 0; i < pairs; ++i) {
    step.pair_rows[i] = step.wire_row_there(static_cast<std::int64_t>(i) / step.top_k);
    if (ranks.alone()) step.pair_outputs[i] = outputs + i * step.wire_row_bytes;
  }
}

void Forward::Impl::note_canary(Step& step) {
  if (step.canary) step.digests.push_back(canary_digest(step, stream.read<float>(step.hidden)));
}

}  // namespace troupe
