#include "actors/layer_shard/shard_hands.h"

#include <utility>

#include "actors/layer_shard/rank_mailbox.h"
#include "runtime/limits.h"

namespace troupe {

/// What jobs share, and steps that wait for the device's experts. It goes with the last of them, in
/// the device's queue: the compute first, the life after it.
struct ShardHands::Seat final : ShardNews {
  Seat(Life l, Post& p, const Ref<LayerShardInbox>& s, std::unique_ptr<ShardCompute> c)
      : life(std::move(l)), post(p), self(s), compute(std::move(c)) {}

  Life life;
  Post& post;
  const Ref<LayerShardInbox> self;
  std::unique_ptr<ShardCompute> compute;
  std::shared_ptr<Collective> ranks{};  ///< null: no others

  void cut(StepId step, ExpertCut cut) override { post.tell(self, StepCut{step, std::move(cut)}); }
  void found(StepId step) override { post.tell(self, StepFound{step}); }
  void computed(StepId step, ComputeOutcome outcome) override {
    post.tell(self, StepComputed{step, std::move(outcome)});
  }
};

ShardHands::ShardHands(Host& host, const LayerShardConfig& config, Device& device,
                       std::unique_ptr<ShardCompute> compute, const Life& life,
                       const std::optional<nccl::Carrier>& nccl)
    : rank_devices_(config.rank_devices),
      host_(&host),
      device_(&device),
      seat_(new Seat{life, host.post(), config.self, std::move(compute)}) {
  if (config.rank.alone()) return;
  seat_->ranks = reach_ranks(host.post(), config, nccl);
  seat_->compute->use(seat_->ranks);
  seat_->compute->deal(
      std::make_shared<const ExpertRanks>(expert_ranks(*config.routes, rank_devices_)));
}

ShardHands::~ShardHands() {
  // Jobs in the queue still use the cache and the buffers. A device that takes no job any more has
  // at most earlier ones of this shard: the last of them frees the compute.
  if (!seat_) return;
  seat_->post.detach(rank_address(seat_->self));
  if (seat_->ranks) seat_->ranks->close();  // what waits there keeps the seat
  end_of([seat = std::move(seat_)] { seat->compute->end(); });
}

void ShardHands::carry_out(BeginStep&& begin, const LayerShard&) {
  const StepPlanBody& plan = std::get<StepPlan>(*begin.plan).body;
  const StepId step = plan.step;
  submit(step, [waits = plan.express ? device_->note_express() : nullptr, begin = std::move(begin)](
                   ShardCompute& compute, const std::shared_ptr<ShardNews>& news) mutable {
    waits = nullptr;
    compute.begin(begin, news);
  });
}

void ShardHands::carry_out(ResumeStep&& resume, const LayerShard&) {
  const StepId step = resume.step;
  submit(step, [resume = std::move(resume)](ShardCompute& compute,
                                            const std::shared_ptr<ShardNews>& news) mutable {
    compute.resume(std::move(resume), news);
  });
}

void ShardHands::carry_out(ReleaseStep&& release, const LayerShard&) {
  end_of([seat = seat_, step = release.step] { seat->compute->release(step); });
}

/// The step's blocks may be another sequence's soon.
void ShardHands::carry_out(GiveUpStep&& given_up, const LayerShard&) {
  end_of([seat = seat_, step = given_up.step] { seat->compute->give_up(step); });
}

void ShardHands::carry_out(UseRoutes&& use, const LayerShard&) {
  end_of([seat = seat_, ranks = std::make_shared<const ExpertRanks>(expert_ranks(
                            *use.routes, rank_devices_))] { seat->compute->deal(ranks); });
}

/// At once: the device's queue may be full of work that waits for it.
void ShardHands::carry_out(LoseRank&& lost, const LayerShard&) {
  if (seat_->ranks) seat_->ranks->lost(lost.why);
}

/// A device that stands still says nothing, and the Replica's patience ends.
void ShardHands::carry_out(SayProgress&& say, const LayerShard&) {
  if (device_->makes_progress(host_->now(), limits::kStepSilence / 2) &&
      seat_->compute->hears_ranks(host_->now()))
    seat_->post.send({seat_->self.address, say.replica.address, message_of(say.progress)});
}

/// A device refuses it only when it is being stopped.
void ShardHands::end_of(std::function<void()> job) {
  (void)device_->submit(std::move(job), Device::Room::kAlways);
}

/// The news of a job are dropped if the shard has ended.
template <class Work>
void ShardHands::submit(StepId step, Work work) {
  const Status queued = device_->submit(
      [seat = seat_, work = std::move(work)]() mutable { work(*seat->compute, seat); });
  if (queued.ok()) return;
  ComputeOutcome outcome;
  outcome.error = queued.error();
  seat_->computed(step, std::move(outcome));
}

}  // namespace troupe
