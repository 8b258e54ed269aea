// Where sequences run: the part of Router that hands them to replicas and takes them back.
#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "actors/router/pick_replica.h"
#include "actors/router/router.h"

namespace troupe {
namespace {

Error given_up(std::uint32_t strikes, bool always_alone, std::string why) {
  while (!why.empty() && why.back() == '.') why.pop_back();
  const std::string times =
      std::to_string(strikes) + " times in a row (the last time: " + why + ").";
  if (always_alone)
    return internal_error(
        "The request was given up: it was running alone each time a worker died, " + times);
  return internal_error(
      "The request was given up: a worker died before it gave a single new token, " + times);
}

}  // namespace

Router::Request& Router::request_of(SequenceId sequence) {
  return requests_.at(journal_.find(sequence)->request);
}

Router::Choice& Router::choice_of(SequenceId sequence) {
  return request_of(sequence).choices[journal_.find(sequence)->choice];
}

// --- To a replica -------------------------------------------------------------------------------

void Router::wait(const Choice& choice) {
  if (choice.not_before > TimePoint{})
    pausing_.emplace(choice.not_before, choice.sequence);
  else
    waiting_.insert(choice.sequence);
}

void Router::wait_no_more(const Choice& choice) {
  pausing_.erase({choice.not_before, choice.sequence});
  waiting_.erase(choice.sequence);
}

void Router::assign(TimePoint now, RouterActions& actions) {
  for (; !pausing_.empty() && pausing_.begin()->first <= now; pausing_.erase(pausing_.begin()))
    waiting_.insert(pausing_.begin()->second);
  if (replicas_.empty()) return;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    Choice& choice = choice_of(*it);
    if (choice.suspect() && trial_) {
      ++it;
      continue;
    }
    if (!hand_over(request_of(choice.sequence), choice, actions)) return;
    it = waiting_.erase(it);
  }
}

/// None while every replica has enough to begin with.
std::optional<std::uint32_t> Router::pick(const Choice& choice, std::size_t tokens) const {
  std::vector<ReplicaLoad> loads;
  for (const auto& [id, replica] : replicas_) {
    if (replica.unstarted_tokens > 0 && replica.unstarted_tokens + tokens > kUnstartedTokensMax)
      continue;
    // Who stays away from a suspect cannot be taken for its accomplice, nor be held up by it.
    const bool shunned = choice.shunned.contains(id) || (trial_ && trial_->replica == id);
    loads.push_back({id, replica.outstanding_tokens, shunned, replica.slow});
  }
  return pick_replica(loads);
}

/// Sends what the journal holds of a choice to a replica: what follows is the same as ever.
bool Router::hand_over(Request& request, Choice& choice, RouterActions& actions) {
  const Journal::Sequence& sequence = *journal_.find(choice.sequence);
  const PreparedRequest& prepared = *request.prepared;
  const std::size_t tokens = prepared.prompt.size() + sequence.output.size();
  const auto picked = pick(choice, tokens);
  if (!picked) return false;
  Replica& replica = replicas_.at(*picked);
  Submit submit;
  submit.sequence = choice.sequence;
  submit.attempt = sequence.attempt;
  submit.prompt = prepared.prompt;
  submit.output = sequence.output;
  submit.sampling = prepared.sampling;
  submit.sampling.choice = sequence.choice;
  submit.max_tokens = prepared.max_tokens;
  submit.stop_tokens = prepared.stop_tokens;
  // They are the same for every choice, and they come before the first token.
  if (sequence.choice == 0 && sequence.output.empty())
    submit.prompt_logprobs = prepared.prompt_logprobs;
  actions.send(replica.address, std::move(submit));

  choice.replica = picked;
  choice.submitted_tokens = tokens;
  replica.unstarted_tokens += tokens;
  choice.outstanding_tokens = prepared.prompt.size() + prepared.max_tokens;
  replica.outstanding_tokens += choice.outstanding_tokens;
  if (choice.suspect()) trial_ = Trial{choice.sequence, *picked};
  return true;
}

// --- And back -----------------------------------------------------------------------------------

void Router::release(Choice& choice, bool cancel, RouterActions& actions) {
  if (trial_ && trial_->sequence == choice.sequence) trial_.reset();
  if (!choice.replica) return;
  if (const auto found = replicas_.find(*choice.replica); found != replicas_.end()) {
    found->second.outstanding_tokens -= choice.outstanding_tokens;
    if (!choice.started) found->second.unstarted_tokens -= choice.submitted_tokens;
    if (cancel) {
      const std::uint32_t attempt = journal_.find(choice.sequence)->attempt;
      actions.send(found->second.address, Cancel{choice.sequence, attempt});
    }
  }
  choice.outstanding_tokens = 0;
  choice.replica.reset();
}

/// Takes a choice back to run it on from what the journal holds.
void Router::requeue(Request& request, Choice& choice, bool cancel, RouterActions& actions) {
  release(choice, cancel, actions);
  const Journal::Sequence& sequence = *journal_.find(choice.sequence);
  if (sequence.choice == 0 && sequence.output.empty()) request.prompt_logprobs.clear();
  journal_.append(JournalSubmitted{choice.sequence, sequence.attempt + 1});
  choice.started = choice.progressed = false;
  wait(choice);
  ++replayed_;
}

/// When a choice that was refused `refusals` times may be tried again: at once where it was not
/// refused, else after a pause.
TimePoint Router::next_try(Choice& choice, std::uint32_t refusals, TimePoint now) const {
  const bool elsewhere = std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
    return !choice.shunned.contains(replica.first);
  });
  if (elsewhere) return now;
  choice.shunned.clear();
  Duration pause = kRetryPauseMin;
  for (std::uint32_t i = 1; i < refusals && pause < kRetryPauseMax; ++i) pause *= 2;
  return now + std::min(pause, kRetryPauseMax);
}

/// An attempt ended with an error that may pass.
void Router::retry(std::uint64_t id, Choice& choice, const Error& why, TimePoint now,
                   RouterActions& actions) {
  const bool no_room = why.code == ErrorCode::kResourceExhausted &&
                       std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
                         return choice.no_room_at.contains(replica.first);
                       });
  if (no_room || ++choice.failures >= kAttemptsInVainMax) return fail(id, why, now, actions);
  choice.not_before = next_try(choice, choice.failures, now);
  requeue(requests_.at(id), choice, true, actions);
}

/// The replica cannot be reached. Whether it is lost is for others to say: until then the sequence
/// goes elsewhere, or tries again.
void Router::on_undeliverable(const Undeliverable& lost, TimePoint now, RouterActions& actions) {
  const SequenceId id{lost.reference};
  if (lost.kind != Message(Submit{}).index() || !journal_.find(id)) return;
  Choice& choice = choice_of(id);
  const auto replica = choice.replica ? replicas_.find(*choice.replica) : replicas_.end();
  if (replica == replicas_.end() || replica->second.address != lost.to || choice.started) return;
  choice.shunned.insert(*choice.replica);
  choice.not_before = next_try(choice, 1, now);
  requeue(request_of(id), choice, false, actions);
}

// --- Replicas come and go -----------------------------------------------------------------------

std::vector<SequenceId> Router::sequences_on(std::uint32_t replica) const {
  std::vector<SequenceId> held;
  for (const auto& [id, request] : requests_)
    for (const Choice& choice : request.choices)
      if (choice.replica == replica) held.push_back(choice.sequence);
  return held;
}

void Router::on_replicas(PlacementVersion version, const std::vector<ReplicaEndpoint>& replicas,
                         TimePoint now, RouterActions& actions) {
  if (version < version_) return;
  version_ = version;
  std::map<std::uint32_t, Replica> next;
  for (const ReplicaEndpoint& endpoint : replicas)
    next[endpoint.id] = Replica{endpoint.address, 0, 0, endpoint.slow};
  for (const auto& [id, replica] : replicas_) {
    const auto kept = next.find(id);
    // A new one under an old number must not be taken for it.
    if (kept != next.end() && kept->second.address == replica.address) {
      kept->second.outstanding_tokens = replica.outstanding_tokens;
      kept->second.unstarted_tokens = replica.unstarted_tokens;
      continue;
    }
    for (const SequenceId sequence : sequences_on(id))
      requeue(request_of(sequence), choice_of(sequence), true, actions);
  }
  replicas_ = std::move(next);
  close_turn(now, actions);
}

void Router::on_replicas_lost(const std::vector<std::uint32_t>& replicas, const std::string& why,
                              TimePoint now, RouterActions& actions) {
  for (const std::uint32_t replica : replicas) on_replica_lost(replica, why, now, actions);
  close_turn(now, actions);
}

void Router::on_replica_lost(std::uint32_t replica, const std::string& why, TimePoint now,
                             RouterActions& actions) {
  if (replicas_.erase(replica) == 0) return;
  const std::vector<SequenceId> held = sequences_on(replica);
  std::size_t started = 0, suspects = 0;
  for (const SequenceId sequence : held) {
    started += choice_of(sequence).started ? 1 : 0;
    suspects += choice_of(sequence).suspect() ? 1 : 0;
  }
  std::vector<std::pair<std::uint64_t, Error>> guilty;
  for (const SequenceId sequence : held) {
    Choice& choice = choice_of(sequence);
    const bool struck = choice.started && !choice.progressed;
    const bool only_suspect = choice.suspect() && suspects == 1;
    if (struck) {
      ++choice.strikes;
      choice.strikes_alone += started == 1 ? 1 : 0;
    }
    const bool alone = started == 1 && (choice.strikes_alone >= 2 || choice.strikes >= 3);
    const bool convicted = alone || (only_suspect && choice.strikes >= kStrikesInCompanyMax);
    if (struck && convicted)
      guilty.emplace_back(journal_.find(sequence)->request,
                          given_up(choice.strikes, choice.strikes == choice.strikes_alone, why));
    requeue(request_of(sequence), choice, false, actions);
  }
  for (auto& [request, error] : guilty)
    if (requests_.contains(request)) fail(request, std::move(error), now, actions);
}

void Router::set_admission(bool waits, std::string why, TimePoint now, RouterActions& actions) {
  waits_ = waits;
  not_ready_why_ = std::move(why);
  close_turn(now, actions);
}

void Router::stop(const std::string& why, TimePoint now, RouterActions& actions) {
  replicas_.clear();
  set_admission(false, why, now, actions);
  while (!requests_.empty()) fail(requests_.begin()->first, unavailable(why), now, actions);
}

void Router::close_turn(TimePoint now, RouterActions& actions) {
  assign(now, actions);
  if (!deadlines_.empty()) actions.wake_at(deadlines_.begin()->first);
  if (!pausing_.empty()) actions.wake_at(pausing_.begin()->first);
}

}  // namespace troupe
