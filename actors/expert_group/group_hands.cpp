#include "actors/expert_group/group_hands.h"

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/limits.h"

namespace troupe {

/// It goes with the last job, in the device's queue: the pass first, the life after it.
struct GroupHands::Seat {
  Life life;
  Post& post;
  const Ref<ExpertGroupInbox> self;
  std::unique_ptr<ExpertPass> pass;

  std::mutex mutex{};
  std::vector<Envelope> waiting{};  // guarded by mutex
  bool scheduled = false;           // guarded by mutex: a job will take them

  /// Whether a job is to be scheduled for it.
  bool put(Envelope question) {
    std::lock_guard lock(mutex);
    waiting.push_back(std::move(question));
    return !std::exchange(scheduled, true);
  }
  std::vector<Envelope> take() {
    std::lock_guard lock(mutex);
    scheduled = false;
    return std::exchange(waiting, {});
  }
};

GroupHands::GroupHands(Host& host, const Ref<ExpertGroupInbox>& self, Device& device,
                       std::unique_ptr<ExpertPass> pass, const Life& life)
    : host_(&host), device_(&device), seat_(new Seat{life, host.post(), self, std::move(pass)}) {}

GroupHands::~GroupHands() {
  // A device that takes no job any more has at most one of this group: it frees the pass.
  if (seat_) (void)device_->submit([seat = std::move(seat_)] {});
}

/// Answers are dropped once the group has ended.
void GroupHands::carry_out(AskPass&& ask, const ExpertGroup&) {
  if (!seat_->put(std::move(ask.question))) return;
  const Status queued = device_->submit(
      [seat = seat_] { seat->post.tell(seat->self, PassEnded{seat->pass->run(seat->take())}); });
  if (queued.ok()) return;
  PassEnded ended;
  for (const auto& question : seat_->take())
    ended.answers.push_back(not_here(question, {}, queued.error().message));
  seat_->post.tell(seat_->self, std::move(ended));
}

void GroupHands::carry_out(SayAtWork&& say, const ExpertGroup&) {
  if (!device_->makes_progress(host_->now(), limits::kExpertSilence / 2)) return;
  for (const auto& asker : say.askers)
    seat_->post.send(
        {seat_->self.address, asker.shard, message_of(ExpertProgress{asker.progress})});
}

}  // namespace troupe
