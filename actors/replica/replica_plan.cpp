// How a Replica's steps begin: what it decides at the end of every turn.
#include <algorithm>
#include <cassert>
#include <ranges>
#include <tuple>
#include <utility>

#include "actors/replica/replica.h"
#include "runtime/hidden_limits.h"

namespace troupe {
namespace {

template <class Sequence>
PlanSequence view(std::uint64_t key, const Sequence& s, bool busy) {
  return {key,  s.computed,     s.length(),       static_cast<std::int32_t>(s.table.blocks.size()),
          busy, s.submit.owner, s.submit.weight};
}

bool same(const ReplicaReport& a, const ReplicaReport& b) {
  const auto fields = [](const ReplicaReport& r) {
    return std::tie(r.replica, r.running, r.waiting, r.kv_blocks_total, r.kv_blocks_used,
                    r.kv_blocks_cached, r.preemptions);
  };
  return fields(a) == fields(b);
}

}  // namespace

void Replica::end_turn(TimePoint now, Effects& effects) {
  admit_canary();
  suspects_.at.reset();
  while (plan(now, effects)) {
  }
  if (const ReplicaReport newest = report();
      !reported_.newest || !same(*reported_.newest, newest)) {
    reported_.newest = newest;
    effects.add(ReportChanged{newest});
  }
  if (!events_.empty())
    effects.send(config_.router, SequenceEvents{config_.id, std::exchange(events_, {})});
  for (const auto& [id, step] : steps_) effects.wake_at(step.deadline);
  if (canary_) effects.wake_at(canary_->deadline);
  if (suspects_.at) effects.wake_at(*suspects_.at);
  if (pause_.until > now && !(running_.empty() && waiting_.empty())) effects.wake_at(pause_.until);
}

/// Suspects have their turns, so that neither they nor the others starve.
StepChoice Replica::choose(TimePoint now) {
  StepChoice choice;
  if (std::exchange(suspects_.turn, false)) choice = choose_suspect(now);
  if (!choice.rows.empty()) return choice;
  choice = choose_together();
  if (!choice.rows.empty()) {
    suspects_.turn = true;
    return choice;
  }
  StepChoice alone = choose_suspect(now);
  if (alone.rows.empty() && steps_.empty() && others_wait())
    alone = choose_suspect(TimePoint::max());
  return alone.rows.empty() ? choice : alone;
}

/// For blocks that suspects hold, which then do not pause.
bool Replica::others_wait() const {
  const auto other = [](const auto& entry) { return !entry.second.suspect(); };
  return std::ranges::any_of(running_, other) || std::ranges::any_of(waiting_, other);
}

PlanLimits Replica::plan_limits() const {
  PlanLimits limits;
  // Each running sequence gets a row whenever it decodes, so there are no more of them than rows.
  limits.sequences_running = std::min(config_.max_num_seqs, config_.max_num_batched_tokens);
  limits.rows_a_step = config_.max_num_batched_tokens;
  limits.prompt_rows_a_step = chunk_.rows(0, stretch::kAlone);
  limits.block_size = config_.block_size;
  limits.blocks_free = kv_.available();
  return limits;
}

std::size_t Replica::places_left(const PlanLimits& limits) const {
  const auto places = static_cast<std::size_t>(limits.sequences_running);
  return places - std::min(places, running_.size());
}

PlanQuestions Replica::plan_questions() const {
  PlanQuestions ask;
  ask.cached = [this](std::uint64_t key) {
    const Sequence& sequence = waiting_.at(key);
    return kv_.find(sequence.keys, sequence.findable());
  };
  ask.freed = [this](std::span<const std::uint64_t> keys) {
    std::vector<const KvTable*> tables;
    for (const std::uint64_t key : keys) tables.push_back(&running_.at(key).table);
    return kv_.freed_by(tables);
  };
  return ask;
}

/// Whether an earlier sequence is about to compute all full blocks of its prompt, as of several
/// choices of one: then it joins once they are there. That one is in steps that succeed, or is no
/// longer waited for; so this ends.
bool Replica::found_soon(std::uint64_t key, const Sequence& sequence) const {
  const std::int32_t blocks = sequence.findable() / config_.block_size;
  const std::int32_t whole = blocks * config_.block_size;
  if (!kv_.keeps() || whole == 0) return false;
  const auto last = static_cast<std::size_t>(blocks - 1);
  const auto computes = [&](const auto& entry) {
    const Sequence& other = entry.second;
    if (entry.first == kCanaryKey || other.cancelled || other.failures > 0) return false;
    if (other.computed >= whole || other.length() < whole) return false;
    return other.keys[last] == sequence.keys[last];
  };
  // The nearest first: choices of one prompt come one behind the other. Others' owners may wait for
  // long.
  const auto earlier = [&](const auto& of) {
    return std::ranges::subrange(of.begin(), of.lower_bound(key)) | std::views::reverse;
  };
  const auto waits_and_computes = [&](std::uint64_t other) {
    return computes(*waiting_.find(other));
  };
  if (std::ranges::none_of(earlier(owners_.queues.at(sequence.submit.owner)), waits_and_computes) &&
      std::ranges::none_of(earlier(running_), computes))
    return false;
  return kv_.find(sequence.keys, whole).blocks < blocks;
}

/// Everybody who is not suspected of making steps fail.
StepChoice Replica::choose_together() const {
  PlanLimits limits = plan_limits();
  Turns all = turns(limits);
  const std::size_t room = places_left(limits);
  const auto decoding = std::ranges::count_if(all.running, &PlanSequence::decodes);
  const auto streams = static_cast<std::int32_t>(decoding);
  limits.prompt_rows_a_step = chunk_.rows(streams, stretch_for(all, room));
  if (is_burst(all, room))
    limits.prompt_rows_a_step = std::max(limits.prompt_rows_a_step, chunk_.efficient_rows(streams));
  // Beyond the places, only those who may go ahead of one that does not fit.
  const auto first = [](const PlanSequence& s) { return s.begins == 0; };
  const auto firsts = static_cast<std::size_t>(std::ranges::count_if(all.waiting, first));
  all.waiting.resize(std::min(all.waiting.size(), std::max(room, firsts)));
  // A pipeline is full only if its steps share the sequences out.
  const auto sequences =
      static_cast<std::int32_t>(all.running.size() + std::min(room, all.waiting.size()));
  limits.sequences_a_step =
      std::min(limits.sequences_running, (sequences + config_.stages - 1) / config_.stages);
  return plan_step(all.running, all.waiting, limits, plan_questions());
}

/// How long a step of these may take, of whose newcomers there is room for so many.
double Replica::stretch_for(const Turns& all, std::size_t room) const {
  double least_reach = stretch::kAlone, goes_ahead = stretch::kAlone;
  for (const PlanSequence& s : all.running)
    if (s.decodes())
      least_reach = std::min(least_reach, s.reach);
    else if (!s.suspect)
      goes_ahead = std::min(goes_ahead, goes_ahead_of(s));
  for (const PlanSequence& s : std::span(all.waiting).first(std::min(room, all.waiting.size())))
    goes_ahead = std::min(goes_ahead, goes_ahead_of(s));
  const bool some_decode = least_reach < stretch::kAlone;
  if (!some_decode) return owners_.served.several() ? stretch::kAhead : stretch::kAlone;
  return goes_ahead <= least_reach ? stretch::kAhead : stretch::kShared;
}

/// Whether more than one waits for a first token: small steps, for those who stream, would delay
/// them one behind the other, and whoever streams in the end. Where several owners are here, their
/// turns decide.
bool Replica::is_burst(const Turns& all, std::size_t room) const {
  if (owners_.served.several()) return false;
  const auto prompt = [](const PlanSequence& s) { return !s.decodes() && !s.suspect; };
  const auto prompts = static_cast<std::size_t>(std::ranges::count_if(all.running, prompt));
  return prompts + std::min(room, all.waiting.size()) > 1;
}

/// Of those who wait, the first of each owner: as many as there are places, and one more.
Replica::Turns Replica::turns(const PlanLimits& limits) const {
  Turns all;
  for (const auto& [key, s] : running_) {
    all.running.push_back(view(key, s, s.busy || s.suspect()));
    all.running.back().suspect = s.suspect();
  }
  const std::size_t room = places_left(limits);
  for (const auto& [owner, queue] : owners_.queues) {
    std::size_t taken = 0;
    for (auto key = queue.begin(); key != queue.end() && taken <= room; ++key) {
      const Sequence& s = waiting_.at(*key);
      if (s.suspect() || found_soon(*key, s)) continue;
      all.waiting.push_back(view(*key, s, false));
      all.waiting.back().served = owners_.served.of(owner);
      all.waiting.back().backfills = s.backfills;
      ++taken;
    }
  }
  take_turns(all.running, all.waiting, limits.sequences_running, kv_.total(), limits.block_size);
  return all;
}

/// An owner that has more than its share gives way to one that has less. True if somebody did.
bool Replica::make_way() {
  const auto owner = [](const auto& entry) { return entry.second.submit.owner; };
  const auto& queues = owners_.queues;
  const bool one_owner = queues.size() <= 1 && std::ranges::all_of(running_, [&](const auto& s) {
                           return queues.empty() || owner(s) == queues.begin()->first;
                         });
  if (one_owner) return false;
  const PlanLimits limits = plan_limits();
  const Turns all = turns(limits);
  const auto leaving = who_gives_way(all.running, all.waiting, limits, plan_questions());
  if (!leaving.empty() && set_canary_aside()) return true;
  for (const std::uint64_t key : leaving) preempt(key);
  return !leaving.empty();
}

/// One suspect alone: the one with the fewest failures, which is the likeliest to be innocent.
StepChoice Replica::choose_suspect(TimePoint now) {
  std::vector<std::pair<std::uint32_t, std::uint64_t>> suspects;
  for (const Sequences* sequences : {&running_, &waiting_})
    for (const auto& [key, s] : *sequences) {
      if (!s.suspect() || s.busy) continue;
      if (s.not_before <= now)
        suspects.emplace_back(s.failures, key);
      else
        suspects_.at = std::min(suspects_.at.value_or(s.not_before), s.not_before);
    }
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
  StepChoice choice = plan_step(running, waiting, limits, plan_questions());
  if (choice.rows.empty() || choice.rows[0].key != suspect) return {};
  return choice;
}

/// Tables and rules that the shards do not know travel whole, and the tables of many sequences may
/// begin with the same blocks: what does not fit into a plan waits for the next one.
void Replica::keep_travelling(StepChoice& choice) const {
  std::int64_t entries = 0;
  std::size_t rules = 0;
  const auto too_many = [&](const PlannedRows& planned) {
    entries += planned.found.blocks + planned.blocks_new;
    const Sequence& sequence = sequence_at(planned.key);
    if (running_.contains(planned.key))
      entries += static_cast<std::int64_t>(sequence.table.blocks.size()) - sequence.table.told;
    if (sequence.table.told == 0 && sequence.submit.sampling.rules)
      rules += sequence.submit.sampling.rules->bytes();
    return entries > limits::kStepBlocksMax || rules > limits::kStepRulesBytesMax;
  };
  choice.rows.erase(std::find_if(choice.rows.begin(), choice.rows.end(), too_many),
                    choice.rows.end());
}

/// So do hidden states: a sequence whose next ones do not fit gets fewer rows, or none.
void Replica::keep_hidden_travelling(StepChoice& choice) const {
  std::size_t room = limits::kStepHiddenBytesMax;
  for (PlannedRows& planned : choice.rows) {
    const Sequence& sequence = sequence_at(planned.key);
    if (sequence.submit.pooling == Pooling::kNone) continue;
    const std::size_t each = sequence.submit.hidden_width * sizeof(float);
    const std::int32_t first = running_.contains(planned.key)
                                   ? sequence.computed
                                   : planned.found.blocks * config_.block_size;
    const std::int32_t yields = sequence.hidden_rows(first, first + planned.rows);
    const auto fit = static_cast<std::int32_t>(
        std::min<std::size_t>(room / each, static_cast<std::size_t>(yields)));
    planned.rows -= yields - fit;
    room -= static_cast<std::size_t>(fit) * each;
  }
  std::erase_if(choice.rows, [](const PlannedRows& planned) { return planned.rows == 0; });
}

const Replica::Sequence& Replica::sequence_at(std::uint64_t key) const {
  const auto running = running_.find(key);
  return running != running_.end() ? running->second : waiting_.at(key);
}

/// A sequence that waited runs from now on, with the blocks that it found.
void Replica::admit(const PlannedRows& planned) {
  const auto waiting = waiting_.find(planned.key);
  if (waiting == waiting_.end()) return;
  Sequence& sequence = running_.insert(unqueue(waiting)).position->second;
  kv_.share(sequence.keys, planned.found, sequence.table);
  sequence.computed = planned.found.blocks * config_.block_size;
  sequence.backfills = 0;
  owners_.served.note(sequence.submit.owner);
}

bool Replica::plan(TimePoint now, Effects& effects) {
  if (now < pause_.until || (running_.empty() && waiting_.empty())) return false;
  const auto plain = [](const auto& entry) { return !entry.second.express; };
  const bool express = std::ranges::count_if(steps_, plain) >= config_.stages;
  if (express && !express_may_begin()) return false;
  if (!express && (give_place_back() || make_way())) return true;
  StepChoice choice = express ? choose_express() : choose(now);
  if (!choice.preempted.empty() && set_canary_aside()) return true;
  for (const std::uint64_t key : choice.preempted) preempt(key);
  keep_travelling(choice);
  keep_hidden_travelling(choice);
  if (choice.rows.empty()) return false;
  for (const std::uint64_t key : choice.backfilled) ++waiting_.at(key).backfills;
  // What is found is held before anything is taken.
  for (const PlannedRows& planned : choice.rows) admit(planned);

  StepPlan plan{config_.id, config_.version, {}};
  plan.body.step = next_.step;
  plan.body.express = express;
  Step step;
  step.express = express;
  step.began = now;
  step.deadline = now + limits::kStepSilence;
  for (const PlannedRows& planned : choice.rows) {
    Sequence& sequence = running_.at(planned.key);
    kv_.take(planned.blocks_new, sequence.table);
    plan.body.sequences.push_back(rows_of(sequence, planned));
    const StepSequence& rows = plan.body.sequences.back();
    step.shares.push_back({planned.key, planned.rows, rows.sample, rows.hidden_rows});
    step.rows += planned.rows;
    if (sequence.length() - sequence.computed > 1) step.prompt_rows += planned.rows;
    sequence.busy = true;
    if (!std::exchange(sequence.started, true) && planned.key != kCanaryKey) {
      SequenceEvent event;
      event.sequence = sequence.submit.sequence;
      event.attempt = sequence.submit.attempt;
      event.started = true;
      if (kv_.keeps()) event.cached_tokens = sequence.computed;
      event.index = sequence.output();
      events_.push_back(std::move(event));
    }
  }
  const MessagePtr message = message_of(std::move(plan));
  for (const auto& shard : config_.shards) effects.send(shard, message);
  steps_.emplace(next_.step, std::move(step));
  ++next_.step.value;
  return true;
}

void Replica::preempt(std::uint64_t key) {
  const auto found = running_.find(key);
  assert(found != running_.end() && !found->second.busy);
  kv_.give_back(found->second.table);
  found->second.computed = 0;
  owners_.queues[found->second.submit.owner].insert(key);
  waiting_.insert(running_.extract(found));
  ++reported_.preemptions;
}

StepSequence Replica::rows_of(const Sequence& sequence, const PlannedRows& planned) const {
  const std::int32_t first = sequence.computed;
  const std::int32_t end = first + planned.rows;
  StepSequence rows;
  rows.id = sequence.submit.sequence;
  const KvTable& table = sequence.table;
  rows.table_slot = table.slot;
  rows.table_base = table.told;
  rows.block_table.assign(table.blocks.begin() + table.told, table.blocks.end());
  rows.first_position = first;
  rows.tokens.assign(sequence.tokens.begin() + first, sequence.tokens.begin() + end);
  rows.prompt_length = sequence.prompt_length;
  rows.sampling = sequence.submit.sampling;
  if (table.told > 0) rows.sampling.rules = nullptr;
  rows.canary = sequence.submit.sequence == kCanarySequence;
  rows.hidden_rows = sequence.hidden_rows(first, end);
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
