#include "actors/router/placing.h"

#include <algorithm>
#include <string>
#include <utility>

#include "actors/router/pick_replica.h"
#include "runtime/in_hand.h"

namespace troupe {
namespace {

Ref<ReplicaInbox> replica_at(const Address& address) {
  return {address.node, address.incarnation, address.actor.index};
}

/// What the rules of its answer take on their way, in tokens.
std::size_t rules_tokens(const PreparedRequest& request) {
  const auto& rules = request.sampling.rules;
  return rules ? rules->bytes() / sizeof(TokenId) : 0;
}

}  // namespace

bool Placing::runs_at(const Choice& choice, const Address& address) const {
  const auto replica = choice.run.replica ? replicas_.find(*choice.run.replica) : replicas_.end();
  return replica != replicas_.end() && replica->second.address == address;
}

// --- To a replica -------------------------------------------------------------------------------

void Placing::wait(const Choice& choice) {
  if (choice.run.not_before > TimePoint{})
    pausing_.emplace(choice.run.not_before, choice.sequence);
  else
    owners_[choice.owner].waiting.insert(turn_of(choice));
}

void Placing::wait_no_more(const Choice& choice) {
  pausing_.erase({choice.run.not_before, choice.sequence});
  if (const auto owner = owners_.find(choice.owner); owner != owners_.end())
    owner->second.waiting.erase(turn_of(choice));
  forget_idle(choice.owner);
  parked_.erase(choice.sequence);
}

void Placing::forget_idle(std::uint64_t id) {
  const auto owner = owners_.find(id);
  if (owner == owners_.end()) return;
  if (owner->second.waiting.empty() && owner->second.placed.empty()) owners_.erase(owner);
}

void Placing::assign(RequestBook& book, TimePoint now, RouterEffects& effects) {
  for (; !pausing_.empty() && pausing_.begin()->first <= now; pausing_.erase(pausing_.begin())) {
    const Choice& choice = book.choice_of(pausing_.begin()->second);
    owners_[choice.owner].waiting.insert(turn_of(choice));
  }
  if (replicas_.empty()) return;
  // Before all others come those of whom nobody has anything to begin with. What comes free is kept
  // for them: or a long prompt, or a replay, would never find enough beside a flood.
  bool kept = false;
  for (const auto& [id, owner] : owners_)
    if (!has_unstarted(id)) kept = !assign(id, 1, book, effects) || kept;
  if (kept) return;
  for (const auto& [id, owner] : owners_) assign(id, limits::kSequencesMax, book, effects);
}

bool Placing::has_unstarted(std::uint64_t owner) const {
  return std::ranges::any_of(
      replicas_, [&](const auto& replica) { return replica.second.unstarted_of.contains(owner); });
}

/// Hands over the next of an owner, `most` of them. False: there is no room for one.
bool Placing::assign(std::uint64_t id, std::size_t most, RequestBook& book,
                     RouterEffects& effects) {
  Owner& owner = owners_.at(id);
  const KeyShare share = shares_.of(id);
  for (auto it = owner.waiting.begin(); it != owner.waiting.end() && most > 0;) {
    Choice& choice = book.choice_of(std::get<SequenceId>(*it));
    if (choice.run.suspect() && trial_) {
      ++it;
      continue;
    }
    if (share.running_max > 0 && owner.placed.size() >= share.running_max &&
        !owner.placed.contains(choice.request))
      break;
    if (!hand_over(book, choice, effects)) return false;
    ++owner.placed[choice.request];
    it = owner.waiting.erase(it);
    --most;
  }
  return true;
}

std::optional<TimePoint> Placing::next_pause_end() const {
  if (pausing_.empty()) return std::nullopt;
  return pausing_.begin()->first;
}

/// None while every replica has enough to begin with.
std::optional<std::uint32_t> Placing::pick(const Choice& choice, std::size_t tokens,
                                           const PrefixChain& chain) const {
  std::vector<ReplicaLoad> loads;
  for (const auto& [id, replica] : replicas_) {
    const auto own = replica.unstarted_of.find(choice.owner);
    const std::size_t held = own == replica.unstarted_of.end() ? 0 : own->second;
    if (replica.unstarted_tokens > 0 && !shares_.may_have(choice.owner, held, tokens,
                                                          replica.unstarted_tokens,
                                                          kUnstartedTokensMax))
      continue;
    // What stays away from a suspect cannot be taken for its accomplice, nor be held up by it.
    const bool shunned = choice.run.shunned.contains(id) || (trial_ && trial_->replica == id);
    loads.push_back(
        {id, replica.outstanding_tokens, shunned, replica.slow, replica.sent.tokens_of(chain)});
  }
  return pick_replica(loads);
}

/// Sends what the journal holds of a choice to a replica: what follows is the same as ever.
bool Placing::hand_over(const RequestBook& book, Choice& choice, RouterEffects& effects) {
  const Journal::Sequence& sequence = *book.journal().find(choice.sequence);
  const PreparedRequest& prepared = *sequence.prepared;
  const InHand hand(prepared.id());
  const std::size_t tokens =
      prepared.prompt.size() + sequence.output.size() + rules_tokens(prepared);
  PrefixChain chain;
  if (by_prefix_) chain = prefix_chain(prepared.prompt, sequence.output);
  const auto picked = pick(choice, tokens, chain);
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
  submit.owner = choice.owner;
  submit.weight = shares_.of(choice.owner).weight;
  submit.priority = choice.priority;
  // They are the same for every choice, and they come before the first token.
  if (sequence.choice == 0 && sequence.output.empty())
    submit.prompt_logprobs = prepared.prompt_logprobs;
  submit.pooling = prepared.pooling;
  submit.hidden_width = prepared.hidden_width;
  effects.send(replica_at(replica.address), std::move(submit));

  replica.sent.add(chain);
  choice.run.replica = picked;
  choice.run.submitted_tokens = tokens;
  choice.run.forgotten = replica.forgotten;
  replica.unstarted_tokens += tokens;
  replica.unstarted_of[choice.owner] += tokens;
  choice.run.outstanding_tokens = prepared.prompt.size() + prepared.max_tokens;
  replica.outstanding_tokens += choice.run.outstanding_tokens;
  if (choice.run.suspect()) trial_ = Trial{choice.sequence, *picked};
  return true;
}

void Placing::note_start(Choice& choice) {
  if (std::exchange(choice.run.started, true) || !choice.run.replica) return;
  started(replicas_.at(*choice.run.replica), choice);
  ++computing_[choice.request];
}

/// It does not count any more among those with which the replica has not begun.
void Placing::started(Replica& replica, const Choice& choice) {
  replica.unstarted_tokens -= choice.run.submitted_tokens;
  const auto own = replica.unstarted_of.find(choice.owner);
  own->second -= choice.run.submitted_tokens;
  if (own->second == 0) replica.unstarted_of.erase(own);
}

/// Whatever made it fail before, it is not what it was suspected of.
void Placing::note_progress(Choice& choice) {
  choice.run.progressed = true;
  choice.run.failures = choice.run.strikes = choice.run.strikes_alone = 0;
  choice.run.shunned.clear();
  choice.run.no_room_at.clear();
  if (trial_ && trial_->sequence == choice.sequence) trial_.reset();
}

// --- And back -----------------------------------------------------------------------------------

void Placing::release(const Journal& journal, Choice& choice, bool cancel, RouterEffects& effects) {
  if (trial_ && trial_->sequence == choice.sequence) trial_.reset();
  if (!choice.run.replica) return;
  if (const auto found = replicas_.find(*choice.run.replica); found != replicas_.end()) {
    found->second.outstanding_tokens -= choice.run.outstanding_tokens;
    if (!choice.run.started) started(found->second, choice);
    // What it held when it was told to forget is not found again, whenever it ends.
    const bool kept = choice.run.progressed && choice.run.forgotten == found->second.forgotten;
    if (const auto* sequence = journal.find(choice.sequence); by_prefix_ && kept)
      found->second.sent.add(prefix_chain(sequence->prepared->prompt, sequence->output));
    if (cancel) {
      const std::uint32_t attempt = journal.find(choice.sequence)->attempt;
      effects.send(replica_at(found->second.address), Cancel{choice.sequence, attempt});
    }
  }
  if (choice.run.started)
    if (const auto request = computing_.find(choice.request); --request->second == 0)
      computing_.erase(request);
  choice.run.outstanding_tokens = 0;
  choice.run.replica.reset();
  auto& placed = owners_.at(choice.owner).placed;
  if (const auto request = placed.find(choice.request); --request->second == 0)
    placed.erase(request);
  forget_idle(choice.owner);
}

/// Takes a choice back to run it on from what the journal holds.
void Placing::requeue(RequestBook& book, Choice& choice, bool cancel, RouterEffects& effects) {
  release(book.journal(), choice, cancel, effects);
  book.begin_attempt(choice);
  wait(choice);
}

/// When a choice that was refused `refusals` times may be tried again: at once where it was not
/// refused, else after a pause.
TimePoint Placing::next_try(Choice& choice, std::uint32_t refusals, TimePoint now) const {
  const bool elsewhere = std::any_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
    return !choice.run.shunned.contains(replica.first);
  });
  if (elsewhere) return now;
  choice.run.shunned.clear();
  Duration pause = kRetryPauseMin;
  for (std::uint32_t i = 1; i < refusals && pause < kRetryPauseMax; ++i) pause *= 2;
  return now + std::min(pause, kRetryPauseMax);
}

bool Placing::retry(RequestBook& book, Choice& choice, const Error& why, TimePoint now,
                    RouterEffects& effects) {
  const bool no_room = why.code == ErrorCode::kResourceExhausted &&
                       std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& replica) {
                         return choice.run.no_room_at.contains(replica.first);
                       });
  if (no_room || ++choice.run.failures >= kFailedAttemptsMax) return false;
  choice.run.not_before = next_try(choice, choice.run.failures, now);
  requeue(book, choice, true, effects);
  return true;
}

/// The replica cannot be reached. Whether it is lost is for others to say: until then the sequence
/// goes elsewhere, or tries again.
void Placing::on_undeliverable(RequestBook& book, const Undeliverable& lost, TimePoint now,
                               RouterEffects& effects) {
  if (lost.kind != Message(Submit{}).index()) return;
  Choice* choice = book.find(SequenceId{lost.reference});
  if (!choice || !runs_at(*choice, lost.to) || choice->run.started) return;
  choice->run.shunned.insert(*choice->run.replica);
  choice->run.not_before = next_try(*choice, 1, now);
  requeue(book, *choice, false, effects);
}

// --- Replicas come and go -----------------------------------------------------------------------

std::vector<SequenceId> Placing::sequences_on(const RequestBook& book, std::uint32_t replica) {
  std::vector<SequenceId> held;
  for (const auto& [id, request] : book.all())
    for (const Choice& choice : request.choices)
      if (choice.run.replica == replica) held.push_back(choice.sequence);
  return held;
}

void Placing::serve(RequestBook& book, const ReplicasChanged& changed, RouterEffects& effects) {
  if (changed.version < version_) return;
  version_ = changed.version;
  std::map<std::uint32_t, Replica> next;
  for (const ReplicaEndpoint& endpoint : changed.replicas)
    next[endpoint.id] =
        Replica{endpoint.address, 0, 0, endpoint.slow, SentPrefixes(endpoint.cache_tokens)};
  for (auto& [id, replica] : replicas_) {
    const auto kept = next.find(id);
    // A new one under an old number must not be taken for it.
    if (kept != next.end() && kept->second.address == replica.address) {
      kept->second.outstanding_tokens = replica.outstanding_tokens;
      kept->second.unstarted_tokens = replica.unstarted_tokens;
      kept->second.unstarted_of = std::move(replica.unstarted_of);
      kept->second.sent = std::move(replica.sent);
      kept->second.forgotten = replica.forgotten;
      continue;
    }
    for (const SequenceId sequence : sequences_on(book, id))
      requeue(book, book.choice_of(sequence), true, effects);
  }
  replicas_ = std::move(next);
}

void Placing::lose(RequestBook& book, std::uint32_t replica, RouterEffects& effects) {
  if (replicas_.erase(replica) == 0) return;
  for (const SequenceId sequence : sequences_on(book, replica))
    requeue(book, book.choice_of(sequence), false, effects);
}

void Placing::forget_prefixes(std::uint32_t replica) {
  const auto found = replicas_.find(replica);
  if (found == replicas_.end()) return;
  found->second.sent.clear();
  ++found->second.forgotten;
}

// --- Suspects, and those for whom there is no room ----------------------------------------------

void Placing::suspect(RequestBook& book, Choice& choice, RouterEffects& effects) {
  // Not where it is: what is taken back beside it may still be in a step there, and crash it.
  if (choice.run.replica && !(trial_ && trial_->sequence == choice.sequence))
    requeue(book, choice, true, effects);
}

void Placing::park(RequestBook& book, Choice& choice, RouterEffects& effects) {
  if (choice.run.replica) requeue(book, choice, true, effects);
  wait_no_more(choice);
  parked_.insert(choice.sequence);
}

void Placing::unpark(const Choice& choice) {
  parked_.erase(choice.sequence);
  wait(choice);
}

// --- Invariants ---------------------------------------------------------------------------------

std::string Placing::violation(const RequestBook& book) const {
  std::map<std::uint32_t, Replica> sums;
  std::map<std::uint64_t, std::map<std::uint64_t, std::uint32_t>> placed;
  std::map<std::uint64_t, std::uint32_t> computing;
  std::size_t waiting = 0, pausing = 0, parked = 0;
  for (const auto& [id, request] : book.all()) {
    for (const Choice& choice : request.choices) {
      const RequestBook::Run& run = choice.run;
      const auto owner = owners_.find(choice.owner);
      const bool waits =
          owner != owners_.end() && owner->second.waiting.contains(turn_of(choice));
      const bool pauses = pausing_.contains({run.not_before, choice.sequence});
      const bool parks = parked_.contains(choice.sequence);
      const int places =
          (waits ? 1 : 0) + (pauses ? 1 : 0) + (parks ? 1 : 0) + (run.replica ? 1 : 0);
      if (places != (choice.finished ? 0 : 1))
        return "sequence " + std::to_string(choice.sequence.value) + " is in " +
               std::to_string(places) + " places";
      waiting += waits ? 1 : 0;
      pausing += pauses ? 1 : 0;
      parked += parks ? 1 : 0;
      if (!run.replica) continue;
      ++placed[choice.owner][choice.request];
      if (run.started) ++computing[choice.request];
      Replica& sum = sums[*run.replica];
      sum.outstanding_tokens += run.outstanding_tokens;
      if (run.started) continue;
      sum.unstarted_tokens += run.submitted_tokens;
      sum.unstarted_of[choice.owner] += run.submitted_tokens;
    }
  }
  std::size_t in_queues = 0;
  for (const auto& [id, owner] : owners_) {
    in_queues += owner.waiting.size();
    if (owner.placed != placed[id]) return "the requests of an owner at replicas are miscounted";
    if (owner.placed.empty() && owner.waiting.empty()) return "an owner is kept who has nothing";
  }
  if (computing != computing_) return "the requests that replicas compute are miscounted";
  if (waiting != in_queues || pausing != pausing_.size() || parked != parked_.size())
    return "a sequence waits that no request has";
  for (const auto& [id, sum] : sums)
    if (!replicas_.contains(id))
      return "sequences are at replica " + std::to_string(id) + ", which does not serve";
  for (const auto& [id, replica] : replicas_) {
    const Replica& sum = sums[id];
    if (replica.outstanding_tokens != sum.outstanding_tokens ||
        replica.unstarted_tokens != sum.unstarted_tokens ||
        replica.unstarted_of != sum.unstarted_of)
      return "the tokens of replica " + std::to_string(id) + " are not those of its sequences";
  }
  if (!trial_) return "";
  const Journal::Sequence* tried = book.journal().find(trial_->sequence);
  if (!tried || !book.contains(tried->request) ||
      book.all().at(tried->request).choices[tried->choice].run.replica != trial_->replica)
    return "the suspect is not where it is tried";
  return "";
}

}  // namespace troupe
