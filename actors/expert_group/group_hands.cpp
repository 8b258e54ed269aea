#include "actors/expert_group/group_hands.h"

#include <mutex>
#include <utility>
#include <vector>

#include "runtime/limits.h"

namespace troupe {

/// It goes with the last job or question, in the device's queue: the pass first, the life after it.
struct GroupHands::Seat final : PassNews {
  Seat(Life l, Post& p, const Ref<ExpertGroupInbox>& s, std::unique_ptr<ExpertPass> e)
      : life(std::move(l)), post(p), self(s), pass(std::move(e)) {}

  Life life;
  Post& post;
  const Ref<ExpertGroupInbox> self;
  std::unique_ptr<ExpertPass> pass;

  std::mutex mutex{};
  std::vector<Envelope> waiting{};  // guarded by mutex
  bool scheduled = false;           // guarded by mutex: a job will take them
  std::vector<Envelope> taken{};    // the job's

  void answered(std::vector<PassAnswer> answers) override {
    post.tell(self, PassEnded{std::move(answers)});
  }

  /// Whether a job is to be scheduled for it.
  bool put(Envelope question) {
    std::lock_guard lock(mutex);
    waiting.push_back(std::move(question));
    return !std::exchange(scheduled, true);
  }
  void take(std::vector<Envelope>& questions) {
    std::lock_guard lock(mutex);
    scheduled = false;
    questions.swap(waiting);
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
  const Status queued = device_->submit([seat = seat_] {
    seat->take(seat->taken);
    seat->pass->run(seat->taken, seat);
    seat->taken.clear();
  });
  if (queued.ok()) return;
  std::vector<Envelope> questions;
  seat_->take(questions);
  std::vector<PassAnswer> refused;
  for (const auto& question : questions)
    refused.push_back(not_here(question, {}, queued.error().message));
  seat_->answered(std::move(refused));
}

void GroupHands::carry_out(SayAtWork&& say, const ExpertGroup&) {
  if (!device_->makes_progress(host_->now(), limits::kExpertSilence / 2)) return;
  for (const auto& asker : say.askers)
    seat_->post.send(
        {seat_->self.address, asker.shard, message_of(ExpertProgress{asker.progress})});
}

}  // namespace troupe
