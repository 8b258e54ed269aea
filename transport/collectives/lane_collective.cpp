#include "transport/collectives/lane_collective.h"

#include <algorithm>
#include <string>
#include <utility>

#include "runtime/limits.h"

namespace troupe {

/// The parts leave before this rank waits, so that one that is behind can catch up with it.
void LaneCollective::start(PartsExchange exchange, Done done) {
  std::optional<Complete> ready;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || ended_.contains(exchange.step)) return;
    Step& step = steps_[exchange.step];
    step.index = exchange.index;
    step.waiting = Waiting{std::move(exchange.bytes), std::move(done)};
    ready = complete(step);
  }
  for (std::uint32_t rank = 0; rank < rank_.size; ++rank)
    if (!exchange.to[rank].empty())
      send_(rank, RankPart{replica_, exchange.step, exchange.index, std::move(exchange.to[rank])});
  if (ready) ready->done(std::move(ready->parts));
}

void LaneCollective::arrived(std::uint32_t from, const RankPart& part) {
  std::optional<Complete> ready;
  {
    std::lock_guard lock(mutex_);
    if (closed_ || part.replica != replica_ || from >= rank_.size || ended_.contains(part.step))
      return;
    if (!steps_.contains(part.step) && !make_room()) return;
    Step& step = steps_[part.step];
    if (part.exchange <= step.done || part.exchange - step.done > limits::kExchangesAheadMax)
      return;
    auto& parts = step.parts[part.exchange];
    parts.resize(rank_.size);
    if (parts[from].empty()) parts[from] = part.payload;
    if (part.exchange == step.index) ready = complete(step);
  }
  if (ready) ready->done(std::move(ready->parts));
}

/// What came for the oldest step that nobody waits for goes, if there are too many.
bool LaneCollective::make_room() {
  if (steps_.size() < limits::kStepsInFlightMax) return true;
  const auto unknown = std::find_if(steps_.begin(), steps_.end(),
                                    [](const auto& entry) { return entry.second.index == 0; });
  if (unknown == steps_.end()) return false;
  steps_.erase(unknown);
  return true;
}

std::optional<LaneCollective::Complete> LaneCollective::complete(Step& step) {
  if (!step.waiting) return std::nullopt;
  const auto& bytes = step.waiting->bytes;
  auto& parts = step.parts[step.index];
  parts.resize(rank_.size);
  for (std::uint32_t rank = 0; rank < rank_.size; ++rank)
    if (bytes[rank] > 0 && parts[rank].empty()) return std::nullopt;
  Result<std::vector<Payload>> came = std::move(parts);
  for (std::uint32_t rank = 0; rank < rank_.size; ++rank)
    if (bytes[rank] != PartsExchange::kAny && (*came)[rank].bytes.size() != bytes[rank]) {
      came = corrupt("Tensor-parallel rank " + std::to_string(rank) +
                     " sent a part of a step that does not fit.");
      break;
    }
  step.parts.erase(step.index);
  step.done = step.index;
  return Complete{std::exchange(step.waiting, std::nullopt)->done, std::move(came)};
}

bool LaneCollective::forget(StepId step) {
  std::optional<Waiting> waited;  // goes after the lock
  std::lock_guard lock(mutex_);
  ended_.insert(step);
  if (ended_.size() > 2 * limits::kStepsInFlightMax) ended_.erase(*ended_.begin());
  const auto it = steps_.find(step);
  if (it == steps_.end()) return false;
  waited = std::move(it->second.waiting);
  steps_.erase(it);
  return waited.has_value();
}

void LaneCollective::close() {
  FlatMap<StepId, Step> gone;  // goes after the lock
  std::lock_guard lock(mutex_);
  closed_ = true;
  gone = std::exchange(steps_, {});
}

std::size_t LaneCollective::steps() const {
  std::lock_guard lock(mutex_);
  return steps_.size();
}

}  // namespace troupe
