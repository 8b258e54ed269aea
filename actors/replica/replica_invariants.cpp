// What always holds of a Replica between two turns.
#include <algorithm>
#include <string>
#include <vector>

#include "actors/replica/replica.h"
#include "runtime/limits.h"

namespace troupe {

std::string Replica::violation() const {
  if (!events_.empty()) return "events for the Router were kept back";
  if (auto found = violation_of_sequences(); !found.empty()) return found;
  if (auto found = violation_of_blocks(); !found.empty()) return found;
  return violation_of_steps();
}

std::string Replica::violation_of_sequences() const {
  std::size_t wanted = 0;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& [key, s] : *sequences) {
      const std::string name = "sequence " + std::to_string(s.submit.sequence.value);
      if (key == kCanaryKey && (sequences == &waiting_ || !(canary_ || (s.busy && s.cancelled))))
        return "a canary is kept that nobody waits for";
      if (sequences == &waiting_ && (running_.contains(key) || s.busy || s.computed != 0))
        return name + " waits and runs";
      if (s.computed >= s.length()) return name + " has nothing to compute and has not ended";
      if (s.cancelled) {
        if (!s.busy) return name + " was cancelled, is in no step and did not end";
        continue;
      }
      if (key == kCanaryKey) continue;
      ++wanted;
      const auto known = keys_.find(s.submit.sequence);
      if (known == keys_.end() || known->second != key) return name + " is not found by its id";
    }
  std::size_t queued = 0;
  for (const auto& [owner, queue] : owners_.queues) {
    queued += queue.size();
    for (const std::uint64_t key : queue)
      if (!waiting_.contains(key) || waiting_.at(key).submit.owner != owner)
        return "a queue has a sequence that does not wait in it";
  }
  if (queued != waiting_.size()) return "a sequence waits in no queue";
  if (wanted != keys_.size()) return "an id stands for a sequence that is not here";
  // One more where an express step has begun with it.
  if (static_cast<std::int32_t>(running_.size()) > plan_limits().sequences_running + 1)
    return "more sequences run than may";
  return {};
}

std::string Replica::violation_of_blocks() const {
  std::vector<const KvTable*> tables;
  for (const auto& [key, s] : running_) {
    const std::string name = "sequence " + std::to_string(s.submit.sequence.value);
    const KvTable& table = s.table;
    if (static_cast<std::int32_t>(table.blocks.size()) < blocks_for(s.computed, config_.block_size))
      return name + " has fewer blocks than computed positions";
    if (table.written * config_.block_size > s.computed)
      return name + " would write to a block that is complete";
    if (key == kCanaryKey && table.written > 0) return "a canary shares blocks";
    tables.push_back(&table);
  }
  for (const auto& [key, s] : waiting_)
    if (!s.table.blocks.empty())
      return "sequence " + std::to_string(s.submit.sequence.value) + " waits and has blocks";
  return kv_.violation(tables);
}

std::string Replica::violation_of_steps() const {
  const auto express =
      std::ranges::count_if(steps_, [](const auto& entry) { return entry.second.express; });
  if (express > 1) return "more than one express step is in flight";
  if (static_cast<std::int32_t>(steps_.size()) - express > config_.stages)
    return "more steps are in flight than there are stages";
  std::vector<std::uint64_t> keys;
  for (const auto& [id, step] : steps_) {
    const std::string name = "step " + std::to_string(id.value);
    if (id >= next_.step) return name + " has a number that will be given again";
    if (step.shares.empty()) return name + " computes nothing";
    std::int32_t rows = 0;
    for (const Share& share : step.shares) {
      const auto found = running_.find(share.key);
      if (found == running_.end() || !found->second.busy)
        return name + " computes a sequence that is not in a step";
      const Sequence& s = found->second;
      const std::int32_t end = s.computed + share.rows;
      if (share.rows < 1 || end > s.length()) return name + " computes rows that are not there";
      if (static_cast<std::int32_t>(s.table.blocks.size()) < blocks_for(end, config_.block_size))
        return name + " computes rows that have no block";
      rows += share.rows;
      keys.push_back(share.key);
    }
    if (rows != step.rows || step.prompt_rows > rows) return name + " counts its rows wrongly";
    if (step.express && rows > limits::kExpressRowsMax) return name + " is no express step";
    if (rows > config_.max_num_batched_tokens) return name + " has more rows than a step may";
  }
  std::sort(keys.begin(), keys.end());
  if (std::adjacent_find(keys.begin(), keys.end()) != keys.end())
    return "two steps compute the same sequence";
  const auto busy =
      std::count_if(running_.begin(), running_.end(), [](const auto& s) { return s.second.busy; });
  if (static_cast<std::size_t>(busy) != keys.size()) return "a sequence is in a step that is gone";
  return {};
}

}  // namespace troupe
