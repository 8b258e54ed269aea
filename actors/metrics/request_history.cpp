#include "actors/metrics/request_history.h"

#include <algorithm>

namespace troupe {
namespace {

std::optional<Quantiles> quantiles_of(std::vector<float> values) {
  if (values.empty()) return std::nullopt;
  std::ranges::sort(values);
  const auto at = [&](double part) {
    return static_cast<double>(
        values[static_cast<std::size_t>(part * static_cast<double>(values.size() - 1))]);
  };
  return Quantiles{at(0.5), at(0.99)};
}

}  // namespace

RequestHistory::Slot& RequestHistory::at(TimePoint now) {
  const std::int64_t number = number_of(now);
  if (known_.empty() || known_.back().number < number) {
    Known next{number, {}};
    if (!known_.empty()) {
      known_.back().slot.first_token_ms = quantiles_of(first_tokens_);
      next.slot.running = next.running = known_.back().running;
      next.slot.waiting = next.waiting = known_.back().waiting;
    }
    known_.push_back(std::move(next));
    first_tokens_.clear();
    while (known_.size() > kSlots + 1) known_.pop_front();
  }
  return known_.back().slot;
}

void RequestHistory::add_first_token(double seconds, TimePoint now) {
  (void)at(now);
  if (first_tokens_.size() < kFirstTokensMax)
    first_tokens_.push_back(static_cast<float>(seconds * 1e3));
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
      slots.push_back({.running = running, .waiting = waiting, .first_token_ms = {}});
      continue;
    }
    slots.push_back(next->slot);
    if (&*next == &known_.back()) slots.back().first_token_ms = quantiles_of(first_tokens_);
    running = next->running;
    waiting = next->waiting;
    ++next;
  }
  return slots;
}

}  // namespace troupe
