#include "actors/replica/replica.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// A step yields as many log-probabilities a row as the larger of two wishes needs.
void keep_wanted(TokenOutput& output, std::int32_t wanted) {
  if (wanted < 0) output.logprob = 0.0f;
  const auto count = static_cast<std::size_t>(std::max(0, wanted));
  if (output.top.size() > count) output.top.resize(count);
}

template <class Sequence>
PlanSequence view(std::uint64_t key, const Sequence& s, bool busy) {
  return {key, s.computed, s.length(), static_cast<std::int32_t>(s.blocks.size()), busy};
}

const SequenceResult* find_result(const StepResult& result, SequenceId id, std::size_t likely) {
  const auto& all = result.sequences;
  if (likely < all.size() && all[likely].id == id) return &all[likely];
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const SequenceResult& s) { return s.id == id; });
  return found == all.end() ? nullptr : &*found;
}

/// Whether the same step may well succeed a moment later.
bool passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kResourceExhausted;
}

}  // namespace

Replica::Replica(ReplicaConfig config) : config_(std::move(config)), pool_(config_.blocks) {
  assert(!config_.shards.empty() && config_.stages >= 1 && config_.block_size >= 1);
  assert(config_.max_num_seqs >= 1 && config_.max_num_batched_tokens >= 1);
  // Steps of an earlier version of this replica may still send results: their numbers must differ.
  next_step_.value = (config_.version.value << 32) + 1;
}

void Replica::on(const Envelope& envelope, TimePoint now, Actions& actions) {
  const Message& message = *envelope.message;
  const auto from_shard = [&] {
    return std::find(config_.shards.begin(), config_.shards.end(), envelope.from) !=
           config_.shards.end();
  };
  if (const auto* submit = std::get_if<Submit>(&message)) {
    on_submit(*submit);
  } else if (const auto* cancel = std::get_if<Cancel>(&message)) {
    on_cancel(*cancel);
  } else if (const auto* result = std::get_if<StepResult>(&message)) {
    if (from_shard() && result->replica == config_.id) on_result(*result, now, actions);
  } else if (const auto* failed = std::get_if<StepFailed>(&message)) {
    if (from_shard() && failed->replica == config_.id)
      fail_step(failed->step, failed->error, now, actions);
  } else if (const auto* lost = std::get_if<Undeliverable>(&message)) {
    on_undeliverable(*lost, now, actions);
  }
  settle(now, actions);
}

void Replica::on_wake(TimePoint now, Actions& actions) {
  // Steps are planned with one deadline each, in order: the first is the oldest.
  while (!steps_.empty() && steps_.begin()->second.deadline <= now) {
    const StepId id = steps_.begin()->first;
    fail_step(id,
              deadline_exceeded("A step of replica " + std::to_string(config_.id) +
                                " did not come back in time; send the request again."),
              now, actions);
  }
  settle(now, actions);
}

void Replica::on_peer_down(NodeId node, TimePoint now, Actions& actions) {
  const bool ours = std::any_of(config_.shards.begin(), config_.shards.end(),
                                [&](const Address& shard) { return shard.node == node; });
  while (ours && !steps_.empty())
    fail_step(steps_.begin()->first, unavailable(to_string(node) + " cannot be reached any more."),
              now, actions);
  settle(now, actions);
}

ReplicaReport Replica::report() const {
  ReplicaReport report;
  report.replica = config_.id;
  report.running = static_cast<std::uint32_t>(running_.size());
  report.waiting = static_cast<std::uint32_t>(waiting_.size());
  report.kv_blocks_total = pool_.total();
  report.kv_blocks_used = pool_.used();
  report.preemptions = preemptions_;
  return report;
}

// --- Sequences come and go ----------------------------------------------------------------------

void Replica::on_submit(const Submit& submit) {
  if (const auto known = keys_.find(submit.sequence); known != keys_.end()) {
    const Sequences& holder = running_.contains(known->second) ? running_ : waiting_;
    const std::uint32_t attempt = holder.at(known->second).submit.attempt;
    if (submit.attempt <= attempt) return;
    on_cancel({submit.sequence, attempt});
  }
  SequenceEvent event;
  event.sequence = submit.sequence;
  event.attempt = submit.attempt;
  event.index = static_cast<std::uint32_t>(submit.output.size());
  event.error = refusal(submit);
  if (event.error) {
    events_.push_back(std::move(event));
    return;
  }
  Sequence sequence;
  sequence.submit = submit;
  sequence.tokens = std::move(sequence.submit.prompt);
  sequence.prompt_length = sequence.length();
  sequence.tokens.insert(sequence.tokens.end(), submit.output.begin(), submit.output.end());
  sequence.submit.prompt.clear();
  sequence.submit.output.clear();
  // A prompt that is to be scored has something to compute even if no token may follow it.
  const bool scoring = submit.output.empty() && submit.prompt_logprobs >= 0;
  event.finish = scoring ? FinishReason::kNone : finish_of(sequence);
  if (event.finish != FinishReason::kNone) {
    events_.push_back(std::move(event));
    return;
  }
  keys_[submit.sequence] = next_key_;
  waiting_.emplace(next_key_++, std::move(sequence));
}

std::optional<Error> Replica::refusal(const Submit& submit) const {
  const auto tokens = static_cast<std::int64_t>(submit.prompt.size() + submit.output.size());
  if (submit.prompt.empty()) return invalid_argument("prompt: must hold at least one token.");
  if (tokens > config_.max_model_len)
    return invalid_argument("prompt: has " + std::to_string(tokens) +
                            " tokens, but the model's context holds " +
                            std::to_string(config_.max_model_len) + ".");
  if (!fits_alone(tokens)) return too_long(tokens);
  if (running_.size() + waiting_.size() >= limits::kSequencesMax)
    return resource_exhausted("Replica " + std::to_string(config_.id) +
                              " holds as many sequences as it may; try again later.");
  return std::nullopt;
}

bool Replica::fits_alone(std::int64_t tokens) const {
  return tokens <= static_cast<std::int64_t>(pool_.total()) * config_.block_size;
}

Error Replica::too_long(std::int64_t tokens) const {
  const std::int64_t room = static_cast<std::int64_t>(pool_.total()) * config_.block_size;
  return resource_exhausted("A sequence of " + std::to_string(tokens) +
                            " tokens does not fit into the KV cache, which holds " +
                            std::to_string(room) +
                            ": ask for fewer tokens or raise --kv-cache-memory.");
}

void Replica::on_cancel(const Cancel& cancel) {
  const auto known = keys_.find(cancel.sequence);
  if (known == keys_.end()) return;
  const std::uint64_t key = known->second;
  const auto running = running_.find(key);
  Sequence& sequence = running != running_.end() ? running->second : waiting_.at(key);
  if (cancel.attempt < sequence.submit.attempt) return;
  if (sequence.busy) {
    // Shards may be writing to its blocks: they are freed when the step ends.
    sequence.cancelled = true;
    keys_.erase(known);
  } else {
    forget(key);
  }
}

void Replica::forget(std::uint64_t key) {
  Sequences& holder = running_.contains(key) ? running_ : waiting_;
  const auto found = holder.find(key);
  assert(found != holder.end());
  Sequence& sequence = found->second;
  pool_.give_back(sequence.blocks);
  if (!sequence.cancelled) keys_.erase(sequence.submit.sequence);
  holder.erase(found);
}

// --- Steps end ----------------------------------------------------------------------------------

void Replica::on_result(const StepResult& result, TimePoint now, Actions& actions) {
  const auto found = steps_.find(result.step);
  if (found == steps_.end()) return;  // Aborted, or a duplicate.
  if (const auto error = misfit(found->second, result)) {
    fail_step(result.step, *error, now, actions);
    return;
  }
  const Step step = std::move(found->second);
  steps_.erase(found);
  retry_pause_ = {};
  for (std::size_t i = 0; i < step.shares.size(); ++i) {
    const SequenceId id = running_.at(step.shares[i].key).submit.sequence;
    commit(step.shares[i], *find_result(result, id, i));
  }
}

/// Why a result cannot be the one of this step, if so.
std::optional<Error> Replica::misfit(const Step& step, const StepResult& result) const {
  const auto error = [&](SequenceId id) {
    return internal_error("A step of replica " + std::to_string(config_.id) +
                          " came back without what was asked for sequence " +
                          std::to_string(id.value) + "; send the request again.");
  };
  for (std::size_t i = 0; i < step.shares.size(); ++i) {
    const Share& share = step.shares[i];
    const Sequence& sequence = running_.at(share.key);
    const SequenceId id = sequence.submit.sequence;
    const SequenceResult* found = find_result(result, id, i);
    if (!found || found->sampled.has_value() != share.sample) return error(id);
    for (std::int32_t row = 0; row < share.rows; ++row) {
      const auto index = static_cast<std::size_t>(row);
      const bool scored = index < found->prompt.size() && found->prompt[index].has_value();
      if (scored != sequence.scores(sequence.computed + row)) return error(id);
    }
  }
  return std::nullopt;
}

void Replica::commit(const Share& share, const SequenceResult& result) {
  Sequence& sequence = running_.at(share.key);
  sequence.busy = false;
  sequence.failures = 0;
  if (sequence.cancelled) {
    forget(share.key);
    return;
  }
  SequenceEvent event;
  event.sequence = sequence.submit.sequence;
  event.attempt = sequence.submit.attempt;
  event.index = sequence.output();
  event.prompt_index = static_cast<std::uint32_t>(sequence.prompt_scored);
  for (const auto& output : result.prompt) {
    if (!output) continue;
    event.prompt_logprobs.push_back(*output);
    keep_wanted(event.prompt_logprobs.back(), sequence.submit.prompt_logprobs);
  }
  sequence.prompt_scored += static_cast<std::int32_t>(event.prompt_logprobs.size());
  sequence.computed += share.rows;
  if (share.sample) {
    event.tokens.push_back(*result.sampled);
    keep_wanted(event.tokens.back(), sequence.submit.sampling.top_logprobs);
    sequence.tokens.push_back(result.sampled->token);
  }
  if (share.sample || sequence.computed == sequence.length()) event.finish = finish_of(sequence);
  if (event.finish == FinishReason::kNone && !fits_alone(sequence.length()))
    event.error = too_long(sequence.length());
  const bool over = event.finish != FinishReason::kNone || event.error;
  if (over || !event.tokens.empty() || !event.prompt_logprobs.empty())
    events_.push_back(std::move(event));
  if (over) forget(share.key);
}

FinishReason Replica::finish_of(const Sequence& sequence) const {
  const auto& stops = sequence.submit.stop_tokens;
  if (sequence.output() > 0 &&
      std::find(stops.begin(), stops.end(), sequence.tokens.back()) != stops.end())
    return FinishReason::kStop;
  const bool full = sequence.length() >= config_.max_model_len;
  if (full || sequence.output() >= sequence.submit.max_tokens) return FinishReason::kLength;
  return FinishReason::kNone;
}

/// The one place where a step's failure is decided on: nothing of it counts. For a passing reason
/// its sequences are planned again, else they end.
void Replica::fail_step(StepId id, const Error& error, TimePoint now, Actions& actions) {
  const auto found = steps_.find(id);
  if (found == steps_.end()) return;
  const Step step = std::move(found->second);
  steps_.erase(found);
  // Shards get this before any later plan, so nobody writes to the blocks that are freed here.
  for (const Address& shard : config_.shards) actions.send(shard, StepAbort{config_.id, id});
  if (passing(error)) {
    retry_pause_ = std::clamp(2 * retry_pause_, kStepRetryMin, kStepRetryMax);
    plan_after_ = now + retry_pause_;
  }
  for (const Share& share : step.shares) fail_share(share, error);
}

void Replica::fail_share(const Share& share, const Error& error) {
  Sequence& sequence = running_.at(share.key);
  sequence.busy = false;
  if (sequence.cancelled) return forget(share.key);
  ++sequence.failures;
  if (passing(error) && sequence.failures < kStepFailuresMax) return;
  SequenceEvent event;
  event.sequence = sequence.submit.sequence;
  event.attempt = sequence.submit.attempt;
  event.index = sequence.output();
  // A passing reason, whatever it was the last time: another replica may be better off.
  event.error = passing(error) ? unavailable(error.message) : error;
  events_.push_back(std::move(event));
  forget(share.key);
}

void Replica::on_undeliverable(const Undeliverable& lost, TimePoint now, Actions& actions) {
  if (lost.kind != Message(StepPlan{}).index()) return;
  fail_step(StepId{lost.reference}, unavailable(lost.error.message), now, actions);
}

// --- Steps begin --------------------------------------------------------------------------------

void Replica::settle(TimePoint now, Actions& actions) {
  while (plan(now, actions)) {
  }
  if (!events_.empty())
    actions.send(config_.router, SequenceEvents{config_.id, std::exchange(events_, {})});
  if (!steps_.empty()) actions.wake_at(steps_.begin()->second.deadline);
  if (plan_after_ > now && !(running_.empty() && waiting_.empty())) actions.wake_at(plan_after_);
}

/// Suspects have their turns, so that neither they nor the others wait for ever.
StepChoice Replica::choose() {
  StepChoice choice;
  if (std::exchange(suspect_turn_, false)) choice = choose_suspect();
  if (!choice.rows.empty()) return choice;
  choice = choose_together();
  if (!choice.rows.empty()) {
    suspect_turn_ = true;
    return choice;
  }
  StepChoice alone = choose_suspect();
  return alone.rows.empty() ? choice : alone;
}

PlanLimits Replica::plan_limits() const {
  PlanLimits limits;
  // Each running sequence gets a row whenever it decodes, so there are no more of them than rows.
  limits.sequences_running = std::min(config_.max_num_seqs, config_.max_num_batched_tokens);
  limits.rows_a_step = config_.max_num_batched_tokens;
  limits.block_size = config_.block_size;
  limits.blocks_free = pool_.free();
  return limits;
}

/// Everybody who is not suspected of making steps fail.
StepChoice Replica::choose_together() const {
  PlanLimits limits = plan_limits();
  std::vector<PlanSequence> running, waiting;
  for (const auto& [key, s] : running_) running.push_back(view(key, s, s.busy || s.suspect()));
  for (const auto& [key, s] : waiting_) {
    if (s.suspect()) continue;
    if (static_cast<std::int32_t>(running.size() + waiting.size()) >= limits.sequences_running)
      break;
    waiting.push_back(view(key, s, false));
  }
  // A pipeline is full only if its steps share the sequences out.
  const auto sequences = static_cast<std::int32_t>(running.size() + waiting.size());
  limits.sequences_a_step = (sequences + config_.stages - 1) / config_.stages;
  return plan_step(running, waiting, limits);
}

/// One suspect alone: the one with the fewest failures, which is the likeliest to be innocent.
StepChoice Replica::choose_suspect() const {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> suspects;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& [key, s] : *sequences)
      if (s.suspect() && !s.busy) suspects.emplace_back(s.failures, key);
  std::sort(suspects.begin(), suspects.end());
  for (const bool preempting : {false, true})
    for (const auto& [failures, key] : suspects)
      if (StepChoice choice = choose_suspect(key, preempting); !choice.rows.empty()) return choice;
  return {};
}

StepChoice Replica::choose_suspect(std::uint64_t suspect, bool preempting) const {
  PlanLimits limits = plan_limits();
  limits.sequences_a_step = 1;
  std::vector<PlanSequence> running, waiting;
  for (const auto& [key, s] : running_) {
    if (key == suspect) continue;
    running.push_back(view(key, s, s.busy || !preempting));
    // It may have to give its blocks up, but no row is kept for it as for one that decodes.
    if (preempting) running.back().length = s.computed + 2;
  }
  if (const auto found = running_.find(suspect); found != running_.end())
    running.insert(running.begin(), view(suspect, found->second, false));
  else if (!preempting)
    waiting.push_back(view(suspect, waiting_.at(suspect), false));
  StepChoice choice = plan_step(running, waiting, limits);
  if (choice.rows.empty() || choice.rows[0].key != suspect) return {};
  return choice;
}

bool Replica::plan(TimePoint now, Actions& actions) {
  if (static_cast<std::int32_t>(steps_.size()) >= config_.stages) return false;
  if (now < plan_after_ || (running_.empty() && waiting_.empty())) return false;
  const StepChoice choice = choose();
  for (const std::uint64_t key : choice.preempted) preempt(key);
  if (choice.rows.empty()) return false;

  StepPlan plan{config_.id, config_.version, {}};
  plan.body.step = next_step_;
  Step step;
  step.deadline = now + limits::kStepDeadline;
  for (const PlannedRows& planned : choice.rows) {
    if (const auto waiting = waiting_.find(planned.key); waiting != waiting_.end())
      running_.insert(waiting_.extract(waiting));
    Sequence& sequence = running_.at(planned.key);
    pool_.take(planned.blocks_new, sequence.blocks);
    plan.body.sequences.push_back(rows_of(sequence, planned));
    step.shares.push_back({planned.key, planned.rows, plan.body.sequences.back().sample});
    sequence.busy = true;
    if (!std::exchange(sequence.started, true)) {
      SequenceEvent event;
      event.sequence = sequence.submit.sequence;
      event.attempt = sequence.submit.attempt;
      event.started = true;
      event.index = sequence.output();
      events_.push_back(std::move(event));
    }
  }
  const MessagePtr message = message_of(std::move(plan));
  for (const Address& shard : config_.shards) actions.sends.push_back({shard, message});
  steps_.emplace(next_step_, std::move(step));
  ++next_step_.value;
  return true;
}

void Replica::preempt(std::uint64_t key) {
  const auto found = running_.find(key);
  assert(found != running_.end() && !found->second.busy);
  pool_.give_back(found->second.blocks);
  found->second.computed = 0;
  waiting_.insert(running_.extract(found));
  ++preemptions_;
}

StepSequence Replica::rows_of(const Sequence& sequence, const PlannedRows& planned) const {
  const std::int32_t first = sequence.computed;
  const std::int32_t end = first + planned.rows;
  StepSequence rows;
  rows.id = sequence.submit.sequence;
  rows.block_table = sequence.blocks;
  rows.first_position = first;
  rows.tokens.assign(sequence.tokens.begin() + first, sequence.tokens.begin() + end);
  rows.prompt_length = sequence.prompt_length;
  rows.sampling = sequence.submit.sampling;
  rows.sample = end == sequence.length() && finish_of(sequence) == FinishReason::kNone;
  for (std::int32_t position = first; position < end && sequence.submit.prompt_logprobs >= 0;
       ++position) {
    const bool scored = sequence.scores(position);
    rows.targets.push_back(scored ? sequence.tokens[static_cast<std::size_t>(position) + 1] : -1);
    rows.prompt_logprobs |= scored;
  }
  if (rows.prompt_logprobs) {
    rows.sampling.top_logprobs =
        std::max(rows.sampling.top_logprobs, sequence.submit.prompt_logprobs);
  } else {
    rows.targets.clear();
  }
  return rows;
}

}  // namespace troupe
