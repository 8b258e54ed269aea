// How a sequence of the Supervisor's comes, runs beside the others of a Replica, and ends.
#include <algorithm>
#include <string>
#include <utility>

#include "actors/replica/replica.h"
#include "runtime/limits.h"

namespace troupe {

void Replica::on(const RunCanary& order, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (order.replica != config_.id || !from_supervisor(envelope.from)) return;
  if (canary_ && canary_->order.run == order.run) return;  // a duplicate
  const auto refuse = [&](Error error, bool no_room) {
    tell_canary({order.replica, order.run, {}, {}, std::move(error), no_room}, effects);
  };
  const auto tokens = static_cast<std::int64_t>(order.prompt.size()) + order.generate;
  if (canary_ || running_.contains(kCanaryKey))
    return refuse(unavailable("An earlier canary of this replica has not ended yet."), false);
  if (order.prompt.empty() || order.generate == 0 || tokens > config_.max_model_len)
    return refuse(invalid_argument("A canary of " + std::to_string(tokens) +
                                   " tokens does not fit into the model's context."),
                  true);
  if (!fits_alone(tokens)) return refuse(too_long(tokens), true);
  canary_ = Canary{order, now + limits::kCanaryDeadline, {}};
}

/// It takes the blocks for all of its tokens at once, out of what nobody here needs yet. All of its
/// rows are computed, and none of them is found by others.
void Replica::admit_canary() {
  if (!canary_ || running_.contains(kCanaryKey)) return;
  if (static_cast<std::int32_t>(running_.size()) >= plan_limits().sequences_running) return;
  const RunCanary& order = canary_->order;
  const auto blocks =
      blocks_for(static_cast<std::int32_t>(order.prompt.size() + order.generate),
                 config_.block_size);
  std::int32_t free = kv_.available();
  for (const auto& [key, s] : running_)
    free -= std::max(0, blocks_for(s.length(), config_.block_size) -
                            static_cast<std::int32_t>(s.table.blocks.size()));
  if (free < blocks) return;
  Sequence sequence;
  sequence.submit.sequence = kCanarySequence;
  sequence.submit.max_tokens = order.generate;
  sequence.submit.sampling.temperature = 0;
  sequence.tokens = order.prompt;
  sequence.prompt_length = sequence.length();
  kv_.take(blocks, sequence.table);
  running_.emplace(kCanaryKey, std::move(sequence));
}

/// Gives its blocks back before anybody is preempted; it begins again when there is room.
bool Replica::set_canary_aside() {
  const auto found = running_.find(kCanaryKey);
  if (found == running_.end() || found->second.busy) return false;
  forget(kCanaryKey);
  canary_->digests.clear();
  return true;
}

void Replica::commit_canary(const Share& share, const StepResult& step,
                            const SequenceResult& result, Effects& effects) {
  Sequence& sequence = running_.at(kCanaryKey);
  sequence.busy = false;
  if (sequence.cancelled) return forget(kCanaryKey);
  // A model whose own numbers fail here gives this much, on every good node.
  if (!result.trouble.empty()) return end_canary(std::nullopt, effects);
  std::vector<std::uint64_t>& digests = canary_->digests;
  const std::size_t each = step.digests.size();
  if (each == 0 || digests.size() % each != 0)
    return end_canary(internal_error("A step came back without the canary's digests."), effects);
  const bool first = sequence.computed == 0;
  if (first || sequence.computed >= sequence.prompt_length) digests.resize(digests.size() + each);
  for (std::size_t i = 0; i < each; ++i) digests[digests.size() - each + i] += step.digests[i];
  sequence.computed += share.rows;
  sequence.table.told = static_cast<std::int32_t>(sequence.table.blocks.size());
  if (share.sample) sequence.tokens.push_back(result.sampled->token);
  if (sequence.output() == canary_->order.generate) end_canary(std::nullopt, effects);
}

/// Tells what came of it. While a step computes it, its blocks are kept.
void Replica::end_canary(std::optional<Error> error, Effects& effects) {
  const auto found = running_.find(kCanaryKey);
  if (canary_) {
    CanaryResult result{config_.id, canary_->order.run, {}, {}, std::move(error)};
    if (!result.error) {
      const Sequence& sequence = found->second;
      result.tokens.assign(sequence.tokens.begin() + sequence.prompt_length,
                           sequence.tokens.end());
      result.digests = std::move(canary_->digests);
    }
    tell_canary(std::move(result), effects);
    canary_.reset();
  }
  if (found == running_.end()) return;
  found->second.cancelled = true;
  if (!found->second.busy) forget(kCanaryKey);
}

void Replica::tell_canary(CanaryResult result, Effects& effects) const {
  const Address& router = config_.router.address;
  effects.send(Ref<SupervisorInbox>(router.node, router.incarnation), std::move(result));
}

}  // namespace troupe
