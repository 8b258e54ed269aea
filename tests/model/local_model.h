#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "kernels/backend.h"
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
  int expert_groups = 1;    ///< the first is local, the others get their rows as bytes
  std::uint32_t ranks = 1;  ///< that share each shard's layers
  /// What ranks know of which one computes the experts that are here.
  enum class Known { kNothing, kAll, kWrong } known = Known::kNothing;
  const kernels::Backend* backend = nullptr;  ///< null: the CPU's
  /// On a device of the back-end's, with so much memory of its own; 0: what it computes with is the
  /// host's.
  std::uint64_t device_memory = 0;
  std::uint32_t devices = 1;  ///< of these, which ranks are dealt out over
  bool stay = false;          ///< ranks read each other's numbers in the devices' memory
  std::uint64_t seed = 0;     ///< of a twin
  std::size_t staging_bytes = kernels::Accelerator::kStagingBytes;
};

struct SilentListener final : ForwardListener {
  void on_routed(std::int32_t layer, std::span<const std::int32_t> experts) override {
    if (routed) routed->emplace(layer, std::vector(experts.begin(), experts.end()));
  }
  void on_experts_read(std::uint64_t experts) override { experts_read += experts; }
  void on_found(const Step&) override {}
  void on_missing(const Step& step) override {
    rows.assign(step.wire_row(0), step.wire_row(static_cast<std::int32_t>(step.rows)));
  }
  std::map<std::int32_t, std::vector<std::int32_t>>* routed = nullptr;  ///< of steps, by layer
  std::uint64_t experts_read = 0;
  std::vector<std::byte> rows;  ///< of a step's wire rows, when some were asked for last
};

/// The pieces of a model in one process, driven as an actor drives them.
class LocalModel {
 public:
  LocalModel(std::shared_ptr<const Checkpoint> checkpoint, const Spread& spread)
      : checkpoint_(std::move(checkpoint)), spread_(spread), pool_(spread.threads) {
    set_float_mode();
    for (std::uint32_t d = 0; d < spread.devices && spread.device_memory > 0; ++d)
      devices_.push_back(must(spread.backend->accelerator(
          {0, spread.device_memory, &pool_, spread.seed + d, spread.staging_bytes})));
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
    Payload hidden;
    digests_.clear();
    routed_.clear();
    for (auto& stage : stages_) {
      for (auto& shard : stage) {
        const Status begun = shard->forward.begin(shard->step, plan, hidden);
        if (!begun) FAIL(begun.error().message);
      }
      while (advance(stage)) exchange(stage);
      const Step& step = stage.front()->step;
      const auto hidden_of = [](Shard& shard) {
        const Payload payload = shard.forward.hidden_of(shard.step);
        const auto numbers = payload.bytes;
        return std::vector<float>(reinterpret_cast<const float*>(numbers.data()),
                                  reinterpret_cast<const float*>(numbers.data() + numbers.size()));
      };
      travelling_ = hidden_of(*stage.front());
      for (auto& shard : stage) {
        CHECK(shard->step.digests == step.digests);
        CHECK(std::memcmp(hidden_of(*shard).data(), travelling_.data(), travelling_.size() * 4) ==
              0);
      }
      digests_.insert(digests_.end(), step.digests.begin(), step.digests.end());
      if (between_stages && &stage != &stages_.back()) between_stages(plan, travelling_);
      auto rows = std::make_shared<Buffer>(travelling_.size() * sizeof(float));
      std::memcpy(rows->data(), travelling_.data(), rows->size());
      hidden = Payload::of(std::move(rows));
    }
    const auto& results = stages_.back().front()->step.results;
    if (told)
      for (const auto& result : results) told(result);
    return results;
  }

  /// Of the newest step, over all shards.
  const std::vector<std::uint64_t>& digests() const { return digests_; }

  /// What happens to the hidden rows of a step on their way, if anything.
  std::function<void(const StepPlanBody&, std::vector<float>&)> between_stages;

  /// Sees every result.
  std::function<void(const SequenceResult&)> told;

  /// What the gates of the newest step chose for the rows of the first rank, by layer.
  const std::map<std::int32_t, std::vector<std::int32_t>>& routed() const { return routed_; }

  /// How often an expert's weights were read.
  std::uint64_t experts_read() const {
    std::uint64_t sum = experts_read_;
    for (const Stage& stage : stages_) sum += stage.front()->silent.experts_read;
    return sum;
  }

  /// What it computes on; null: the host.
  const kernels::Accelerator* device() const { return device_of(0).get(); }

  Forward& first_shard() { return stages_.front().front()->forward; }

 private:
  struct Shard {
    Shard(const ModelSpec& whole, TensorRank rank, std::shared_ptr<const ShardWeights> weights,
          const Spread& spread, const kernels::Stream::Options& stream)
        : spec(split_model(whole, rank)),
          cache(must(KvCache::create(spec, spread.numerics,
                                     {weights->first, weights->last,
                                      spread.positions / spread.block_size, spread.block_size},
                                     stream.accelerator))),
          forward(spec, std::move(weights), cache, stream) {}
    const ModelSpec spec;
    KvCache cache;
    Forward forward;
    Step step;
    SilentListener silent;
  };
  std::shared_ptr<kernels::Accelerator> device_of(std::uint32_t rank) const {
    return devices_.empty() ? nullptr : devices_[rank % devices_.size()];
  }
  kernels::Stream::Options stream(std::uint32_t rank = 0) {
    return {spread_.numerics, spread_.family, &pool_,
            spread_.backend,  spread_.seed,   device_of(rank).get()};
  }

  using Stage = std::vector<std::unique_ptr<Shard>>;  ///< of all ranks

  void add_shard(std::int32_t first, std::int32_t last) {
    Stage& stage = stages_.emplace_back();
    for (std::uint32_t rank = 0; rank < spread_.ranks; ++rank) {
      const TensorRank of = {rank, spread_.ranks};
      auto weights = must(
          load_shard(*checkpoint_, spread_.numerics, first, last, {.device = device_of(rank)}, of));
      stage.push_back(
          std::make_unique<Shard>(spec(), of, std::move(weights), spread_, stream(rank)));
      stage.back()->forward.use(expert_ranks(rank));
      stage.back()->forward.stay_on_devices(spread_.stay);
      if (rank == 0) stage.back()->silent.routed = &routed_;
    }
  }

  /// Wrong: each rank knows of another rank than the others do, or none.
  std::shared_ptr<const ExpertRanks> expert_ranks(std::uint32_t rank) const {
    if (spread_.known == Spread::Known::kNothing || spec().num_experts() == 0) return nullptr;
    auto known = std::make_shared<ExpertRanks>(spec().num_layers(), spec().num_experts());
    for (std::int32_t layer = 0; layer < spec().num_layers(); ++layer)
      for (std::int32_t e = 0; e < spec().num_experts(); e += spread_.expert_groups) {
        const auto right = static_cast<std::uint32_t>(e / spread_.expert_groups);
        const bool wrong = spread_.known == Spread::Known::kWrong && (right + rank) % 3 == 0;
        if (!wrong || right % 2 == 0)
          known->set(layer, e, (wrong ? right + rank : right) % spread_.ranks);
      }
    return known;
  }

  /// All ranks until they need each other; false: they are done.
  bool advance(Stage& stage) {
    std::size_t done = 0;
    for (auto& shard : stage) {
      Cut cut = Cut::kExperts;
      const Local& local = local_of(*shard);
      while ((cut = shard->forward.advance(shard->step, local.set, shard->silent)) ==
                 Cut::kExperts ||
             cut == Cut::kAnswers)
        serve(*shard, cut == Cut::kAnswers);
      REQUIRE(cut != Cut::kCorrupt);
      done += cut == Cut::kDone ? 1 : 0;
    }
    CHECK((done == 0 || done == stage.size()));
    return done == 0;
  }

  /// What each sends is what the others wait for.
  void exchange(Stage& stage) {
    for (std::size_t to = 0; to < stage.size(); ++to)
      for (std::size_t from = 0; from < stage.size(); ++from) {
        RankExchange& other = stage[from]->step.exchange;
        RankExchange& own = stage[to]->step.exchange;
        REQUIRE(other.index == own.index);
        if (own.bytes[from] != RankExchange::kAnyBytes)
          REQUIRE(other.to[to].bytes.size() == own.bytes[from]);
        own.from[from] = other.to[to];
      }
  }

  ExpertSet load_group(int group, const std::shared_ptr<kernels::Accelerator>& device) const {
    ExpertSet::Map experts;
    for (std::int32_t layer = 0; layer < spec().num_layers(); ++layer) {
      if (!spec().layers[static_cast<std::size_t>(layer)].has_experts()) continue;
      for (std::int32_t e = group; e < spec().num_experts(); e += spread_.expert_groups)
        experts[{layer, e}] =
            must(load_expert(*checkpoint_, spread_.numerics, layer, e, {.device = device}));
    }
    return {PlacementVersion{1}, std::move(experts)};
  }

  void add_group(int group) {
    sets_.push_back(load_group(group, device_of(0)));
    groups_.push_back(std::make_unique<ExpertForward>(spec(), stream()));
    for (std::uint32_t d = 0; d < std::max<std::size_t>(1, devices_.size()) && group == 0; ++d)
      local_.push_back(
          {load_group(0, device_of(d)), std::make_unique<ExpertForward>(spec(), stream(d))});
  }

  /// The first group, on the device of a shard.
  struct Local {
    ExpertSet set;
    std::unique_ptr<ExpertForward> forward;
  };
  const Local& local_of(const Shard& shard) const {
    return local_[shard.spec.rank.rank % local_.size()];
  }

  /// The cut: what is here, then what is missing by way of copied bytes, last group first.
  /// `answers`: only what is missing, which may be here after all.
  void serve(Shard& shard, bool answers) {
    Step& step = shard.step;
    const Local& local = local_of(shard);
    if (!answers) experts_read_ += local.forward->run(local.set, step.pairs());
    if (step.among_ranks && !answers) return;
    for (std::size_t left = sets_.size(); left > (answers ? 0 : 1); --left) {
      const std::size_t group = left - 1;
      std::vector<std::byte> rows;
      std::vector<std::int32_t> experts;
      std::vector<const MissingExpert*> wanted;
      for (const auto& m : step.missing) {
        if (!sets_[group].has({step.layer, m.expert})) continue;
        wanted.push_back(&m);
        const auto from =
            shard.silent.rows.begin() + m.row * static_cast<std::ptrdiff_t>(step.wire_row_bytes);
        rows.insert(rows.end(), from, from + static_cast<std::ptrdiff_t>(step.wire_row_bytes));
        experts.push_back(m.expert);
      }
      kernels::Stream& stream = groups_[group]->stream();
      const auto question = stream.host_buffer(rows.size());
      std::ranges::copy(rows, question->data());
      const auto outputs = stream.host_buffer(rows.size());
      kernels::Stream::Room rows_room, outputs_room;
      const std::byte* const from = stream.reach(Payload::of(question), rows_room);
      std::byte* const to = stream.target(*outputs, outputs_room);
      std::vector<const std::byte*> inputs;
      std::vector<std::byte*> targets;
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        inputs.push_back(from + i * step.wire_row_bytes);
        targets.push_back(to + i * step.wire_row_bytes);
      }
      groups_[group]->run(sets_[group], {step.layer, inputs, experts, targets});
      stream.fetch(outputs, to, outputs->size());
      stream.wait();
      for (std::size_t i = 0; i < wanted.size(); ++i)
        shard.forward.answer(step, *wanted[i],
                             Payload::of(outputs, i * step.wire_row_bytes, step.wire_row_bytes));
    }
  }

  std::shared_ptr<const Checkpoint> checkpoint_;
  Spread spread_;
  ThreadPool pool_;
  std::vector<std::shared_ptr<kernels::Accelerator>> devices_;  // none: the host
  std::vector<Stage> stages_;
  std::vector<ExpertSet> sets_;
  std::vector<std::unique_ptr<ExpertForward>> groups_;
  std::vector<Local> local_;  // by device
  std::vector<std::uint64_t> digests_;
  std::map<std::int32_t, std::vector<std::int32_t>> routed_;
  std::uint64_t experts_read_ = 0;
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
