#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/forward/experts.h"
#include "model/forward/forward.h"
#include "model/weights.h"
#include "runtime/float_mode.h"
#include "tests/model/must.h"

namespace troupe::testing {

/// How a model is spread over shards and expert groups of this process.
struct Spread {
  Numerics numerics = Numerics::kReference;
  CpuFamily family = supported_cpu_families().back();
  std::vector<std::int32_t> cuts;  ///< layers where a new shard begins, beside 0
  std::int32_t block_size = 16;
  std::int32_t positions = 4096;  ///< of all sequences together
  int threads = 1;
  int expert_groups = 1;  ///< the first is local, the others get their rows as bytes
  const kernels::Backend* backend = nullptr;  ///< null: the CPU's
};

struct SilentListener final : ForwardListener {
  void on_routed(std::int32_t, std::span<const std::int32_t>) override {}
  void on_missing(const Step&) override {}
};

/// The pieces of a model in one process, driven as an actor drives them.
class LocalModel {
 public:
  LocalModel(std::shared_ptr<const Checkpoint> checkpoint, const Spread& spread)
      : checkpoint_(std::move(checkpoint)), spread_(spread), pool_(spread.threads) {
    set_float_mode();
    std::vector<std::int32_t> edges = {0};
    edges.insert(edges.end(), spread.cuts.begin(), spread.cuts.end());
    edges.push_back(spec().num_layers());
    for (std::size_t i = 0; i + 1 < edges.size(); ++i) add_shard(edges[i], edges[i + 1] - 1);
    for (int group = 0; group < spread.expert_groups; ++group) add_group(group);
  }

  const ModelSpec& spec() const { return checkpoint_->spec(); }
  std::int32_t num_blocks() const { return spread_.positions / spread_.block_size; }
  std::int32_t block_size() const { return spread_.block_size; }

  std::vector<SequenceResult> step(const StepPlanBody& plan) {
    const float* hidden = nullptr;
    digests_.clear();
    for (auto& shard : shards_) {
      const Status begun = shard->forward.begin(shard->step, plan, hidden);
      if (!begun) FAIL(begun.error().message);
      SilentListener silent;
      while (shard->forward.advance(shard->step, sets_[0], silent) == Cut::kExperts) serve(*shard);
      hidden = static_cast<const float*>(shard->step.hidden.data);
      const auto& digests = shard->step.digests;
      digests_.insert(digests_.end(), digests.begin(), digests.end());
      if (!between_stages || shard == shards_.back()) continue;
      travelling_.assign(hidden, hidden + shard->step.rows * shard->step.width);
      between_stages(plan, travelling_);
      hidden = travelling_.data();
    }
    if (told)
      for (const auto& result : shards_.back()->step.results) told(result);
    return shards_.back()->step.results;
  }

  /// Of the newest step, over all shards.
  const std::vector<std::uint64_t>& digests() const { return digests_; }

  /// What happens to the hidden rows of a step on their way, if anything.
  std::function<void(const StepPlanBody&, std::vector<float>&)> between_stages;

  /// Sees every result.
  std::function<void(const SequenceResult&)> told;

  Forward& first_shard() { return shards_.front()->forward; }

 private:
  struct Shard {
    Shard(const ModelSpec& spec, std::shared_ptr<const ShardWeights> weights, KvCache kv,
          const kernels::Stream::Options& stream)
        : cache(std::move(kv)), forward(spec, std::move(weights), cache, stream) {}
    KvCache cache;
    Forward forward;
    Step step;
  };
  kernels::Stream::Options stream() {
    return {spread_.numerics, spread_.family, &pool_, nullptr, spread_.backend};
  }

  void add_shard(std::int32_t first, std::int32_t last) {
    auto cache = must(
        KvCache::create(spec(), spread_.numerics, {first, last, num_blocks(), spread_.block_size}));
    auto weights = must(load_shard(*checkpoint_, spread_.numerics, first, last));
    shards_.push_back(
        std::make_unique<Shard>(spec(), std::move(weights), std::move(cache), stream()));
  }

  void add_group(int group) {
    ExpertSet::Map experts;
    for (std::int32_t layer = 0; layer < spec().num_layers(); ++layer) {
      if (!spec().layers[static_cast<std::size_t>(layer)].has_experts()) continue;
      for (std::int32_t e = group; e < spec().num_experts(); e += spread_.expert_groups)
        experts[{layer, e}] = must(load_expert(*checkpoint_, spread_.numerics, layer, e));
    }
    sets_.emplace_back(PlacementVersion{1}, std::move(experts));
    groups_.push_back(std::make_unique<ExpertForward>(spec(), stream()));
  }

  /// The cut: what is here, then what is missing by way of copied bytes, last group first.
  void serve(Shard& shard) {
    Step& step = shard.step;
    groups_[0]->run(sets_[0], step.pairs());
    for (std::size_t group = sets_.size() - 1; group > 0; --group) {
      std::vector<std::vector<std::byte>> rows, outputs;
      std::vector<std::int32_t> experts;
      std::vector<const MissingExpert*> wanted;
      for (const auto& m : step.missing) {
        if (!sets_[group].has({step.layer, m.expert})) continue;
        wanted.push_back(&m);
        const auto* from = step.wire_row(m.row);
        rows.emplace_back(from, from + step.wire_row_bytes);
        outputs.emplace_back(step.wire_row_bytes);
        experts.push_back(m.expert);
      }
      std::vector<const std::byte*> inputs;
      std::vector<std::byte*> targets;
      for (auto& row : rows) inputs.push_back(row.data());
      for (auto& output : outputs) targets.push_back(output.data());
      groups_[group]->run(sets_[group], {step.layer, inputs, experts, targets});
      for (std::size_t i = 0; i < wanted.size(); ++i)
        std::memcpy(step.expert_output(wanted[i]->row, wanted[i]->slot), outputs[i].data(),
                    step.wire_row_bytes);
    }
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  Spread spread_;
  ThreadPool pool_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<ExpertSet> sets_;
  std::vector<std::unique_ptr<ExpertForward>> groups_;
  std::vector<std::uint64_t> digests_;
  std::vector<float> travelling_;  // [rows, hidden]
};

struct Request {
  std::vector<TokenId> prompt;
  int new_tokens = 0;
  SamplingParams sampling;
  bool prompt_logprobs = true;
};

struct Answer {
  std::vector<std::optional<TokenOutput>> prompt;  ///< one a prompt token; the first is none
  std::vector<TokenOutput> tokens;
  bool operator==(const Answer&) const = default;
};

/// Runs requests together, `chunk` prompt tokens of each a step. Blocks are handed out backwards
/// and mixed between the sequences.
inline std::vector<Answer> generate(LocalModel& model, const std::vector<Request>& requests,
                                    std::int32_t chunk) {
  struct Running {
    std::vector<TokenId> tokens;
    std::vector<std::int32_t> blocks;
    std::int32_t done = 0;  // positions in the cache
  };
  std::vector<Running> running(requests.size());
  std::vector<Answer> answers(requests.size());
  std::int32_t next_block = model.num_blocks();
  for (std::size_t i = 0; i < requests.size(); ++i) {
    running[i].tokens = requests[i].prompt;
    answers[i].prompt.resize(requests[i].prompt.size());
  }
  for (std::uint64_t step = 1;; ++step) {
    StepPlanBody plan;
    plan.step = StepId{step};
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const auto& request = requests[i];
      auto& run = running[i];
      const auto prompt = static_cast<std::int32_t>(request.prompt.size());
      const auto known = static_cast<std::int32_t>(run.tokens.size());
      if (known - prompt >= request.new_tokens && run.done >= prompt) continue;
      if (run.done == known) continue;
      StepSequence s;
      s.id = SequenceId{i};
      s.first_position = run.done;
      const std::int32_t end = std::min(known, run.done + chunk);
      s.tokens.assign(run.tokens.begin() + run.done, run.tokens.begin() + end);
      s.prompt_length = prompt;
      s.sampling = request.sampling;
      s.sample = end == known && request.new_tokens > 0;
      s.prompt_logprobs = request.prompt_logprobs && run.done < prompt;
      for (std::int32_t p = run.done; s.prompt_logprobs && p < end; ++p)
        s.targets.push_back(p + 1 < prompt ? request.prompt[static_cast<std::size_t>(p + 1)] : -1);
      while (static_cast<std::int32_t>(run.blocks.size()) * model.block_size() < end) {
        REQUIRE(next_block > 0);
        run.blocks.push_back(--next_block);
      }
      s.block_table = run.blocks;
      run.done = end;
      plan.sequences.push_back(std::move(s));
    }
    if (plan.sequences.empty()) return answers;
    for (auto& result : model.step(plan)) {
      const auto i = static_cast<std::size_t>(result.id.value);
      const auto& sequence = *std::find_if(plan.sequences.begin(), plan.sequences.end(),
                                           [&](const auto& s) { return s.id == result.id; });
      for (std::size_t r = 0; r < result.prompt.size(); ++r)
        if (result.prompt[r])
          answers[i].prompt[static_cast<std::size_t>(sequence.first_position) + r + 1] =
              result.prompt[r];
      if (!result.sampled) continue;
      answers[i].tokens.push_back(*result.sampled);
      running[i].tokens.push_back(result.sampled->token);
    }
  }
}

}  // namespace troupe::testing
