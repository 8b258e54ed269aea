#include "actors/device/expert_pool.h"

#include <algorithm>
#include <utility>

#include "actors/device/guarded.h"

namespace troupe {

void ExpertPool::join(ExpertWork& work, std::shared_ptr<const void> keep) {
  waiting_.push_back({&work, std::move(keep)});
  if (!passing_ && !scheduled_) schedule();
}

bool ExpertPool::leave(ExpertWork& work) {
  work.set.reset();
  return std::erase_if(waiting_, [&](const Waiting& w) { return w.work == &work; }) > 0;
}

void ExpertPool::schedule() {
  while (!waiting_.empty()) {
    scheduled_ = device_.submit([this] { pass(); }).ok();
    if (scheduled_) return;
    take_next();
  }
}

void ExpertPool::pass() {
  scheduled_ = false;
  take_next();
  schedule();
}

void ExpertPool::take_next() {
  if (waiting_.empty()) return;  // it was cleared
  passing_ = true;
  const auto next =
      std::min_element(waiting_.begin(), waiting_.end(), [](const Waiting& a, const Waiting& b) {
        const std::uint32_t late_a = a.passed_over < kPassedOverMax ? 0 : a.passed_over;
        const std::uint32_t late_b = b.passed_over < kPassedOverMax ? 0 : b.passed_over;
        if (late_a != late_b) return late_a > late_b;
        if (a.work->express != b.work->express) return a.work->express;
        return a.work->pairs.layer < b.work->pairs.layer;
      });
  const ExpertWork& first = *next->work;
  const auto stays = [&](const Waiting& other) {
    return other.work->pairs.layer != first.pairs.layer || other.work->set != first.set ||
           other.work->arithmetic != first.arithmetic || other.work->express != first.express ||
           other.work->pairs.chosen.empty() != first.pairs.chosen.empty();
  };
  for (Waiting& waiting : waiting_) {
    if (!stays(waiting))
      taken_.push_back(std::move(waiting));
    else
      ++waiting.passed_over;
  }
  std::erase_if(waiting_, [](const Waiting& waiting) { return waiting.keep == nullptr; });

  const Status done = guarded(device_, "A pass over experts", [this] { return compute(); });
  for (Waiting& taken : taken_) {
    taken.work->set.reset();
    taken.work->computed(done);
  }
  for (Waiting& taken : taken_) taken.work->go_on();
  taken_.clear();
  passing_ = false;
}

/// One grouped pass over what was taken.
Status ExpertPool::compute() {
  rows_.clear();
  experts_.clear();
  outputs_.clear();
  chosen_.clear();
  for (const Waiting& taken : taken_) {
    const ExpertPairs& pairs = taken.work->pairs;
    rows_.insert(rows_.end(), pairs.rows.begin(), pairs.rows.end());
    experts_.insert(experts_.end(), pairs.experts.begin(), pairs.experts.end());
    outputs_.insert(outputs_.end(), pairs.outputs.begin(), pairs.outputs.end());
    chosen_.insert(chosen_.end(), pairs.chosen.begin(), pairs.chosen.end());
  }
  const ExpertWork& first = *taken_.front().work;
  const ExpertPairs all = {first.pairs.layer, rows_, experts_, outputs_, chosen_};
  device_.count_experts_read(first.arithmetic->run(*first.set, all));
  return {};
}

}  // namespace troupe
