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

const SequenceResult* find_result(const StepResult& result, SequenceId id, std::size_t likely) {
  const auto& all = result.sequences;
  if (likely < all.size() && all[likely].id == id) return &all[likely];
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const SequenceResult& s) { return s.id == id; });
  return found == all.end() ? nullptr : &*found;
}

/// Whether the step may well succeed elsewhere, or again. Bytes that do not fit are the sender's.
bool worth_another_try(ErrorCode code) { return passing(code) || code == ErrorCode::kCorrupt; }

/// What lacks is not the sequence's fault; but the steps were its own.
Error given_back(const Error& error) {
  if (error.code != ErrorCode::kResourceExhausted) return unavailable(error.message);
  return unavailable("Steps of this request alone fail where it is: " + error.message);
}

/// What a step of it may hold, so that each of its messages can travel.
ReplicaConfig bounded(ReplicaConfig config) {
  const std::uint64_t rows = limits::kBulkPayloadBytesMax / config.row_bytes;
  assert(rows > 0);
  config.max_num_batched_tokens = static_cast<std::int32_t>(
      std::min<std::uint64_t>(rows, std::min(config.max_num_batched_tokens, limits::kStepRowsMax)));
  // One more may run for a while, and each has a slot.
  config.max_num_seqs = std::min(config.max_num_seqs, limits::kStepSequencesMax - 1);
  config.blocks = std::min(config.blocks, limits::kStepBlocksMax);
  return config;
}

}  // namespace

Replica::Replica(ReplicaConfig config)
    : config_(bounded(std::move(config))),
      kv_({config_.blocks, config_.block_size, config_.prefix_caching, config_.rows_identity}),
      chunk_(config_.max_num_batched_tokens) {
  assert(!config_.shards.empty() && config_.stages >= 1 && config_.block_size >= 1);
  assert(config_.max_num_seqs >= 1 && config_.max_num_batched_tokens >= 1);
  // Steps of an earlier version of this replica may still send results: their numbers must differ.
  next_.step.value = (config_.version.value << 32) + 1;
}

bool Replica::own_shard(const Address& from) const {
  return std::any_of(config_.shards.begin(), config_.shards.end(),
                     [&](const auto& shard) { return shard.address == from; });
}

bool Replica::from_supervisor(const Address& from) const {
  const Address& router = config_.router.address;
  return from == Ref<SupervisorInbox>(router.node, router.incarnation).address;
}

ReplicaReport Replica::report() const {
  ReplicaReport report;
  report.replica = config_.id;
  report.running = static_cast<std::uint32_t>(running_.size() - running_.count(kCanaryKey));
  report.waiting = static_cast<std::uint32_t>(waiting_.size());
  report.kv_blocks_total = kv_.total();
  report.kv_blocks_used = kv_.used();
  report.kv_blocks_cached = kv_.cached();
  report.preemptions = reported_.preemptions;
  return report;
}

// --- Sequences come and go ----------------------------------------------------------------------

/// An order of a Router that is not its head's comes from an older head, or one that is gone.
bool Replica::obeys(const Envelope& order, Effects& effects) const {
  if (order.from == config_.router.address) return true;
  effects.refuse(order, "it is of another head than the one that this replica serves.");
  return false;
}

void Replica::on(const Submit& submit, const Envelope& envelope, TimePoint, Effects& effects) {
  if (!obeys(envelope, effects)) return;
  if (const auto known = keys_.find(submit.sequence); known != keys_.end()) {
    const Sequences& holder = running_.contains(known->second) ? running_ : waiting_;
    const std::uint32_t attempt = holder.at(known->second).submit.attempt;
    if (submit.attempt <= attempt) return;
    cancel(submit.sequence, attempt);
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
  // A prompt of which something is asked has to be computed even if no token may follow it.
  const bool asked = submit.prompt_logprobs >= 0 || submit.pooling != Pooling::kNone;
  event.finish = submit.output.empty() && asked ? FinishReason::kNone : finish_of(sequence);
  if (event.finish != FinishReason::kNone) {
    events_.push_back(std::move(event));
    return;
  }
  kv_.extend(sequence.tokens, sequence.keys);
  const std::uint64_t key = queue_key(!submit.output.empty(), submit.priority, next_.arrival++);
  keys_[submit.sequence] = key;
  owners_.queues[submit.owner].insert(key);
  waiting_.emplace(key, std::move(sequence));
  express_.owners[submit.owner] = submit.weight;
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
  return tokens <= static_cast<std::int64_t>(kv_.total()) * config_.block_size;
}

Error Replica::too_long(std::int64_t tokens) const {
  const std::int64_t room = static_cast<std::int64_t>(kv_.total()) * config_.block_size;
  return resource_exhausted("A sequence of " + std::to_string(tokens) +
                            " tokens does not fit into the KV cache, which holds " +
                            std::to_string(room) +
                            ": ask for fewer tokens or raise --kv-cache-memory.");
}

void Replica::on(const Cancel& wish, const Envelope& envelope, TimePoint, Effects& effects) {
  if (obeys(envelope, effects)) cancel(wish.sequence, wish.attempt);
}

void Replica::cancel(SequenceId id, std::uint32_t attempt) {
  const auto known = keys_.find(id);
  if (known == keys_.end()) return;
  const std::uint64_t key = known->second;
  const auto running = running_.find(key);
  Sequence& sequence = running != running_.end() ? running->second : waiting_.at(key);
  if (attempt < sequence.submit.attempt) return;
  if (sequence.busy) {
    // Shards may be writing to its blocks: they are freed when the step ends.
    sequence.cancelled = true;
    keys_.erase(known);
  } else {
    forget(key);
  }
}

void Replica::on(const ForgetPrefixes& order, const Envelope& envelope, TimePoint, Effects&) {
  // Also of a head that this replica has not heard of yet: to forget is never wrong.
  const Address& from = envelope.from;
  const bool of_a_head = from.node == kHeadNode && from.actor.kind == ActorKind::kSupervisor;
  if (order.replica == config_.id && of_a_head) kv_.forget();
}

void Replica::on(HeadChanged changed, TimePoint, Effects&) {
  config_.router = changed.head ? Ref<RouterInbox>(kHeadNode, *changed.head) : Ref<RouterInbox>();
  canary_.reset();
  events_.clear();
  keys_.clear();
  std::vector<std::uint64_t> idle;
  for (Sequences* sequences : {&running_, &waiting_})
    for (auto& [key, sequence] : *sequences) {
      sequence.cancelled = true;
      if (!sequence.busy) idle.push_back(key);
    }
  for (const std::uint64_t key : idle) forget(key);
}

void Replica::forget(std::uint64_t key) {
  auto node = running_.extract(key);
  if (!node) node = unqueue(waiting_.find(key));
  Sequence& sequence = node.mapped();
  kv_.give_back(sequence.table);
  if (!sequence.cancelled) keys_.erase(sequence.submit.sequence);
}

Replica::Sequences::node_type Replica::unqueue(Sequences::iterator waiting) {
  assert(waiting != waiting_.end());
  const auto queue = owners_.queues.find(waiting->second.submit.owner);
  queue->second.erase(waiting->first);
  if (queue->second.empty()) owners_.queues.erase(queue);
  return waiting_.extract(waiting);
}

// --- Steps end ----------------------------------------------------------------------------------

void Replica::on(const StepResult& result, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (result.replica != config_.id || !own_shard(envelope.from)) return;
  const auto found = steps_.find(result.step);
  if (found == steps_.end()) return;  // Aborted, or a duplicate.
  if (const auto error = misfit(found->second, result)) {
    fail_step(result.step, *error, now, effects);
    return;
  }
  const Step step = std::move(found->second);
  steps_.erase(found);
  pause_.length = {};
  note_time(step, now);
  for (std::size_t i = 0; i < step.shares.size(); ++i) {
    const SequenceId id = running_.at(step.shares[i].key).submit.sequence;
    const SequenceResult& found_result = *find_result(result, id, i);
    if (step.shares[i].key == kCanaryKey)
      commit_canary(step.shares[i], result, found_result, effects);
    else
      commit(step.shares[i], found_result);
  }
}

void Replica::on(const StepProgress& progress, const Envelope& envelope, TimePoint now, Effects&) {
  if (progress.replica != config_.id || !own_shard(envelope.from)) return;
  const auto found = steps_.find(progress.step);
  if (found == steps_.end()) return;
  Step& step = found->second;
  step.deadline =
      std::min<TimePoint>(now + limits::kStepSilence, step.began + limits::kStepTimeMax);
}

void Replica::on(const StepFailed& failed, const Envelope& envelope, TimePoint now,
                 Effects& effects) {
  if (failed.replica == config_.id && own_shard(envelope.from))
    fail_step(failed.step, failed.error, now, effects);
}

void Replica::on(const Undeliverable& lost, const Envelope&, TimePoint now, Effects& effects) {
  if (lost.kind == Message(StepPlan{}).index())
    fail_step(StepId{lost.reference}, unavailable(lost.error.message), now, effects);
}

void Replica::on(PeerDown down, TimePoint now, Effects& effects) {
  const bool ours = std::any_of(config_.shards.begin(), config_.shards.end(),
                                [&](const auto& s) { return s.address.node == down.node; });
  while (ours && !steps_.empty())
    fail_step(steps_.begin()->first,
              unavailable(to_string(down.node) + " cannot be reached any more."), now, effects);
}

void Replica::on_wake(TimePoint now, Effects& effects) {
  if (canary_ && canary_->deadline <= now)
    end_canary(deadline_exceeded("A canary did not come to its end in time."), effects);
  std::vector<StepId> late;
  for (const auto& [id, step] : steps_)
    if (step.deadline <= now) late.push_back(id);
  for (const StepId id : late) {
    fail_step(id,
              deadline_exceeded("A step of replica " + std::to_string(config_.id) +
                                " did not come back in time; send the request again."),
              now, effects);
  }
}

/// Why a result cannot be the one of this step, if so.
std::optional<Error> Replica::misfit(const Step& step, const StepResult& result) const {
  const auto error = [&](SequenceId id) {
    return corrupt("A step of replica " + std::to_string(config_.id) +
                   " came back without what was asked for sequence " + std::to_string(id.value) +
                   "; send the request again.");
  };
  for (std::size_t i = 0; i < step.shares.size(); ++i) {
    const Share& share = step.shares[i];
    const Sequence& sequence = running_.at(share.key);
    const SequenceId id = sequence.submit.sequence;
    const SequenceResult* found = find_result(result, id, i);
    if (found && !found->trouble.empty()) continue;
    if (!found || found->sampled.has_value() != (share.sample && !found->waits)) return error(id);
    const auto hidden = static_cast<std::size_t>(share.hidden) * sequence.submit.hidden_width;
    if (found->hidden.size() != hidden) return error(id);
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
  if (!result.trouble.empty()) {
    event.error = result.unanswerable ? invalid_argument(result.trouble)
                                      : internal_error(result.trouble);
    events_.push_back(std::move(event));
    return forget(share.key);
  }
  event.prompt_index = static_cast<std::uint32_t>(sequence.prompt_scored);
  for (const auto& output : result.prompt) {
    if (!output) continue;
    event.prompt_logprobs.push_back(*output);
    keep_wanted(event.prompt_logprobs.back(), sequence.submit.prompt_logprobs);
  }
  sequence.prompt_scored += static_cast<std::int32_t>(event.prompt_logprobs.size());
  event.hidden_index =
      static_cast<std::uint32_t>(sequence.hidden_given) * sequence.submit.hidden_width;
  event.hidden = result.hidden;
  sequence.hidden_given += share.hidden;
  // A token that is not known yet is asked for again, with the row that it follows.
  const bool sampled = share.sample && !result.waits;
  sequence.computed += share.rows - (share.sample && result.waits ? 1 : 0);
  sequence.table.told = static_cast<std::int32_t>(sequence.table.blocks.size());
  kv_.commit(sequence.keys, sequence.computed, sequence.table);
  if (sampled) {
    event.tokens.push_back(*result.sampled);
    keep_wanted(event.tokens.back(), sequence.submit.sampling.top_logprobs);
    sequence.tokens.push_back(result.sampled->token);
    kv_.extend(sequence.tokens, sequence.keys);
  }
  if (sampled || sequence.computed == sequence.length()) event.finish = finish_of(sequence);
  if (event.finish == FinishReason::kNone && !fits_alone(sequence.length()))
    event.error = too_long(sequence.length());
  const bool over = event.finish != FinishReason::kNone || event.error;
  if (over || !event.tokens.empty() || !event.prompt_logprobs.empty() || !event.hidden.empty())
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

/// The one place where a step's failure is decided on: nothing of it counts, and its sequences are
/// planned again. Only of one that was alone in it is the reason known to be its own.
void Replica::fail_step(StepId id, const Error& error, TimePoint now, Effects& effects) {
  const auto found = steps_.find(id);
  if (found == steps_.end()) return;
  const Step step = std::move(found->second);
  steps_.erase(found);
  // Shards get this before any later plan, so nobody writes to the blocks that are freed here.
  for (const auto& shard : config_.shards) effects.send(shard, StepAbort{config_.id, id});
  const bool too_large =
      error.code == ErrorCode::kDeadlineExceeded || error.code == ErrorCode::kResourceExhausted;
  if (too_large && step.prompt_rows > 0) chunk_.on_failure();
  const bool own = step.shares.size() == 1 && !worth_another_try(error.code);
  if (!own) {
    pause_.length = std::clamp(2 * pause_.length, kStepRetryMin, kStepRetryMax);
    pause_.until = now + pause_.length;
  }
  for (const Share& share : step.shares) {
    if (share.key == kCanaryKey) {
      running_.at(kCanaryKey).busy = false;
      end_canary(error, effects);
    } else {
      fail_share(share, error, own, now);
    }
  }
}

/// `own`: the error is that sequence's, and no other place will do better.
void Replica::fail_share(const Share& share, const Error& error, bool own, TimePoint now) {
  Sequence& sequence = running_.at(share.key);
  sequence.busy = false;
  if (sequence.cancelled) return forget(share.key);
  sequence.table.told = 0;  // the plan may be lost
  ++sequence.failures;
  if (!worth_another_try(error.code))
    sequence.failures = std::max(sequence.failures, kStepFailuresSuspect);
  Duration pause = kStepRetryMin;
  for (std::uint32_t i = 1; i < sequence.failures && pause < kStepRetryMax; ++i) pause *= 2;
  sequence.not_before = now + std::min(pause, kStepRetryMax);
  if (!own && sequence.failures < kStepFailuresMax) return;
  SequenceEvent event;
  event.sequence = sequence.submit.sequence;
  event.attempt = sequence.submit.attempt;
  event.index = sequence.output();
  // A passing reason, whatever it was the last time: another replica may be better off.
  event.error = own ? error : given_back(error);
  events_.push_back(std::move(event));
  forget(share.key);
}

}  // namespace troupe
