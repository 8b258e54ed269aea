#include "actors/layer_shard/shard_hands.h"

#include <utility>

#include "runtime/limits.h"

namespace troupe {

/// What jobs share. It goes with the last of them, in the device's queue: the compute first, the
/// life after it.
struct ShardHands::Seat {
  Life life;
  Post& post;
  const Ref<LayerShardInbox> self;
  std::unique_ptr<ShardCompute> compute;

  void computed(StepId step, ComputeOutcome outcome) {
    post.tell(self, StepComputed{step, std::move(outcome)});
  }
};

ShardHands::ShardHands(Host& host, const Ref<LayerShardInbox>& self, Device& device,
                       std::unique_ptr<ShardCompute> compute, const Life& life)
    : host_(&host),
      device_(&device),
      seat_(new Seat{life, host.post(), self, std::move(compute)}) {}

ShardHands::~ShardHands() {
  // Jobs in the queue still use the cache and the buffers. A device that takes no job any more has
  // at most earlier ones of this shard: the last of them frees the compute.
  if (seat_) (void)device_->submit([seat = std::move(seat_)] {});
}

void ShardHands::carry_out(BeginStep&& begin, const LayerShard&) {
  const StepId step = std::get<StepPlan>(*begin.plan).body.step;
  submit(step,
         [begin = std::move(begin)](ShardCompute& compute, const ShardCompute::OnCut& on_cut) {
           return compute.begin(begin, on_cut);
         });
}

void ShardHands::carry_out(ResumeStep&& resume, const LayerShard&) {
  const StepId step = resume.step;
  submit(step,
         [resume = std::move(resume)](ShardCompute& compute, const ShardCompute::OnCut& on_cut) {
           return compute.resume(resume, on_cut);
         });
}

void ShardHands::carry_out(ReleaseStep&& release, const LayerShard&) {
  (void)device_->submit([seat = seat_, step = release.step] { seat->compute->release(step); });
}

/// A device that stands still says nothing, and the Replica's patience ends.
void ShardHands::carry_out(SayProgress&& say, const LayerShard&) {
  if (device_->makes_progress(host_->now(), limits::kStepSilence / 2))
    seat_->post.send({seat_->self.address, say.replica.address, message_of(say.progress)});
}

/// The news of a job are dropped if the shard has ended.
template <class Work>
void ShardHands::submit(StepId step, Work work) {
  const Status queued = device_->submit([seat = seat_, step, work = std::move(work)] {
    const auto on_cut = [&](ExpertCut cut) {
      seat->post.tell(seat->self, StepCut{step, std::move(cut)});
    };
    seat->computed(step, work(*seat->compute, on_cut));
  });
  if (queued.ok()) return;
  ComputeOutcome outcome;
  outcome.error = queued.error();
  seat_->computed(step, std::move(outcome));
}

}  // namespace troupe
