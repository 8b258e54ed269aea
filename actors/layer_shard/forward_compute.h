#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/layer_shard/expert_counter.h"
#include "actors/layer_shard/shard_compute.h"
#include "model/forward/experts.h"
#include "model/forward/forward.h"
#include "runtime/flat.h"

namespace troupe {

/// The model's ShardCompute: the forward pass of a range of layers.
class ForwardCompute final : public ShardCompute {
 public:
  struct Options {
    std::shared_ptr<const ModelSpec> model;
    Numerics numerics = Numerics::kReference;
    std::shared_ptr<const ShardWeights> weights;
    KvCache cache;
    bool last_stage = true;
    Device::Claim cache_memory;
    std::shared_ptr<ExpertForward> experts;      ///< shared by all on this device
    std::shared_ptr<ExpertCounter> counter{};    ///< of what the gates choose; may be null
    std::shared_ptr<AnswerGrammars> grammars{};  ///< for rules of answers; on the last stage
    /// Shared with other shards of the same layers on this device; may be null.
    std::shared_ptr<const Device::Claim> weight_memory{};
    /// Sees the tokens of every sequence of a step before it is computed; may be empty.
    std::function<void(std::span<const TokenId>)> on_tokens{};
  };
  ForwardCompute(Options options, CpuDevice& device);

  void use(std::shared_ptr<Collective> ranks) override {
    ranks_ = std::move(ranks);
    forward_.stay_on_devices(ranks_ && ranks_->by_reference());
  }
  void deal(std::shared_ptr<const ExpertRanks> ranks) override { forward_.use(std::move(ranks)); }
  bool hears_ranks(TimePoint now) const override;
  void begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) override;
  void resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) override;
  void release(StepId step) override;
  void give_up(StepId step) override;
  void end() override;

 private:
  /// A step in flight, and the message that its plan lies in.
  struct Run final : ExpertWork {
    explicit Run(ForwardCompute& c) : compute(c) { arithmetic = c.options_.experts.get(); }
    void computed(const Status& done) override;
    void go_on() override;

    ForwardCompute& compute;
    StepId id;
    Step step;
    MessagePtr plan;
    ExpertCut cut;                  ///< its memory, while the step is at none
    std::weak_ptr<ShardNews> news;  ///< kept by the pool while it waits there
    bool goes_on = false;           ///< nothing is missing
    bool given_up = false;
  };
  template <class Work>
  void work_on(Run& run, const Work& work);
  Run& run_for(StepId step, bool express);
  Status check(const BeginStep& begin) const;
  struct Answer;
  Status advance(Run& run);
  Result<bool> exchange(Run& run, const std::shared_ptr<ShardNews>& news);
  void go_on(StepId step, const std::shared_ptr<ShardNews>& news,
             std::optional<Result<std::vector<Payload>>> parts = std::nullopt);
  bool stop_waiting(StepId step);
  ComputeOutcome outcome_of(Run& run);

  Options options_;
  CpuDevice& device_;
  Forward forward_;
  std::shared_ptr<Collective> ranks_;  ///< null: no others
  /// Of exchanges: how many wait, and when one began or ended last.
  std::atomic<int> exchanging_{0};
  std::atomic<TimePoint::rep> exchanged_{0};
  FlatMap<StepId, std::unique_ptr<Run>> runs_;
  /// Those of express steps, which are small, stay so.
  std::vector<std::unique_ptr<Run>> spare_, spare_express_;
};

}  // namespace troupe
