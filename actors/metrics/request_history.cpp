#include "actors/metrics/request_history.h"

#include <algorithm>

namespace troupe {

RequestHistory::Slot& RequestHistory::at(TimePoint now) {
  const std::int64_t number = number_of(now);
  if (known_.empty() || known_.back().number < number) {
    Known next{number, {}};
    if (!known_.empty()) {
      measure(known_.back().slot);
      next.slot.running = next.running = known_.back().running;
      next.slot.waiting = next.waiting = known_.back().waiting;
    }
    known_.push_back(std::move(next));
    first_token_ = inter_token_ = {};
    while (known_.size() > kSlots + 1) known_.pop_front();
  }
  return known_.back().slot;
}

void RequestHistory::measure(Slot& slot) const {
  slot.first_token_ms = first_token_.quantiles_ms();
  slot.inter_token_ms = inter_token_.quantiles_ms();
}

void RequestHistory::set_running(std::uint64_t count, TimePoint now) {
  if (known_.empty() ? count == 0 : count == known_.back().running) return;
  Slot& slot = at(now);
  slot.running = std::max(slot.running, count);
  known_.back().running = count;
}

void RequestHistory::set_waiting(std::uint64_t count, TimePoint now) {
  if (known_.empty() ? count == 0 : count == known_.back().waiting) return;
  Slot& slot = at(now);
  slot.waiting = std::max(slot.waiting, count);
  known_.back().waiting = count;
}

std::vector<RequestHistory::Slot> RequestHistory::slots(TimePoint now) const {
  const std::int64_t end = number_of(now);
  const std::int64_t begin = std::max(first_, end - static_cast<std::int64_t>(kSlots));
  std::vector<Slot> slots;
  auto next = known_.begin();
  std::uint64_t running = 0, waiting = 0;  // as they were left
  for (; next != known_.end() && next->number < begin; ++next) {
    running = next->running;
    waiting = next->waiting;
  }
  for (std::int64_t number = begin; number < end; ++number) {
    if (next == known_.end() || next->number > number) {
      Slot& still = slots.emplace_back();
      still.running = running;
      still.waiting = waiting;
      continue;
    }
    slots.push_back(next->slot);
    if (&*next == &known_.back()) measure(slots.back());
    running = next->running;
    waiting = next->waiting;
    ++next;
  }
  return slots;
}

}  // namespace troupe
