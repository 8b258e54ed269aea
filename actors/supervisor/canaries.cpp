#include "actors/supervisor/canaries.h"

#include <algorithm>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// Of the canary: the prompt, and what is generated after it.
constexpr std::uint32_t kPromptTokens = 60;
constexpr std::uint32_t kGenerated = 4;
constexpr auto kEvery = 60s;
/// However often what they compute with changes.
constexpr auto kSoonest = 5s;
/// A run that has not come back by then is begun again: the replica has given it up before.
constexpr auto kDeadline = limits::kCanaryDeadline + 5s;
/// After a run that failed, or differed.
constexpr Duration kAgainAfter = 200ms;
constexpr Duration kAgainWhenWrong = 5s;
/// After so many runs that failed in a row, it is asked less often, and an event says why it does
/// not serve.
constexpr std::uint32_t kFailures = 10;
/// So many nodes must have given what is known before who gives something else is wrong.
constexpr std::size_t kDecide = 2;
/// Meanwhile every core is asked all its questions.
constexpr auto kStubborn = limits::kKnownAnswersEvery + kAgainWhenWrong;

std::uint32_t room_for(const SupervisorOptions& options) {
  return static_cast<std::uint32_t>(std::max<std::int64_t>(2, options.engine.max_model_len));
}

std::uint32_t generated(const SupervisorOptions& options) {
  return std::min(kGenerated, room_for(options) - 1);
}

std::uint32_t prompt_length(const SupervisorOptions& options) {
  return std::min(kPromptTokens, room_for(options) - generated(options));
}

/// Any tokens will do, if they are always the same.
std::vector<TokenId> prompt_of(const SupervisorOptions& options) {
  std::vector<TokenId> prompt;
  std::uint32_t state = 1;
  for (std::uint32_t i = 0; i < prompt_length(options); ++i) {
    state = state * 1664525u + 1013904223u;
    prompt.push_back(static_cast<TokenId>(
        (state >> 8) % static_cast<std::uint32_t>(std::max(1, options.vocab_size))));
  }
  return prompt;
}

/// Where they differ first: twice the layer, and one more after its feed-forward part; `boundaries`
/// (twice the layers): a token was chosen otherwise. Later rows differ because of it.
std::size_t first_difference(const KnownCanary& a, const KnownCanary& b, std::size_t boundaries) {
  const auto differ =
      std::mismatch(a.digests.begin(), a.digests.end(), b.digests.begin(), b.digests.end());
  const auto token =
      std::mismatch(a.tokens.begin(), a.tokens.end(), b.tokens.begin(), b.tokens.end());
  const auto at = static_cast<std::size_t>(differ.first - a.digests.begin());
  const auto chosen = static_cast<std::size_t>(token.first - a.tokens.begin());
  const bool inside = differ.first != a.digests.end() && differ.second != b.digests.end();
  return inside && at / boundaries <= chosen ? at % boundaries : boundaries;
}

std::size_t boundaries_of(const Placement& placement, std::uint32_t replica) {
  std::int32_t layers = 0;
  for (const auto& shard : placement.shards)
    if (shard.replica == replica) layers = std::max(layers, shard.last_layer + 1);
  return 2 * static_cast<std::size_t>(std::max(1, layers));
}

}  // namespace

Canaries::Canaries(std::optional<KnownCanary> kept, const SupervisorOptions& options)
    : known_(std::move(kept)), known_since_(options.started) {
  if (known_ &&
      (known_->prompt != prompt_length(options) || known_->tokens.size() != generated(options)))
    known_.reset();
}

void Canaries::follow(const Placement& active, TimePoint now) {
  std::erase_if(watched_, [&](const auto& w) {
    return std::none_of(active.replicas.begin(), active.replicas.end(),
                        [&](const auto& r) { return r.id == w.first && r.node == w.second.node; });
  });
  for (const auto& replica : active.replicas) {
    const auto [at, added] = watched_.try_emplace(replica.id);
    if (added) at->second = {replica.node, false, std::nullopt, 0, now, now};
  }
}

void Canaries::soon(TimePoint now) {
  waits_ = false;
  for (auto& [id, watched] : watched_)
    if (watched.run == 0 && watched.proven)
      watched.at = std::min(watched.at, std::max<TimePoint>(now, watched.last_good + kSoonest));
}

bool Canaries::proven(std::uint32_t replica) const {
  const auto found = watched_.find(replica);
  return found != watched_.end() && found->second.proven;
}

bool Canaries::any_proven() const {
  return std::any_of(watched_.begin(), watched_.end(),
                     [](const auto& w) { return w.second.proven; });
}

void Canaries::on_wake(SupervisorTurn& turn) {
  if (waits_) return;
  for (auto& [id, watched] : watched_) {
    if (watched.run != 0 && turn.now >= watched.at + kDeadline) {
      watched.run = 0;
      watched.at = turn.now;
    }
    const Member* member = turn.members.find(watched.node);
    if (watched.run != 0 || turn.now < watched.at || !member) continue;
    watched.run = next_run_++;
    watched.at = turn.now;
    const Ref<ReplicaInbox> to(watched.node, member->incarnation, id);
    turn.effects.send(to,
                      RunCanary{id, watched.run, prompt_of(turn.options), generated(turn.options)});
  }
}

bool Canaries::take(const CanaryResult& result, NodeId from, const Placement& active,
                    SupervisorTurn& turn) {
  const auto found = watched_.find(result.replica);
  if (found == watched_.end() || found->second.node != from || found->second.run != result.run)
    return false;
  Watched& watched = found->second;
  const bool before = watched.proven;
  watched.run = 0;
  if (result.error) {
    take_error(result.replica, watched, result, turn);
    return watched.proven != before;
  }
  watched.failed = 0;
  const KnownCanary given = {result.tokens, result.digests, false, prompt_length(turn.options)};
  if (!known_) know(given, {from}, turn);
  if (known_ && given.says(*known_)) {
    watched.proven = true;
    watched.differs_since.reset();
    watched.last_good = turn.now;
    watched.at = turn.now + kEvery;
    doubted_ = false;
    givers_.insert(from);
    rivals_.erase(from);
    settle(turn);
  } else {
    differ(result.replica, watched, given, active, turn);
  }
  return watched.proven != before;
}

/// Nothing of it says who computes what: not even bytes that do not fit, which are a peer's.
void Canaries::take_error(std::uint32_t id, Watched& watched, const CanaryResult& result,
                          SupervisorTurn& turn) {
  const std::string name = "Replica " + std::to_string(id);
  if (result.no_room) {
    if (!watched.proven)
      turn.record("proofs", name + " serves without a canary: " + result.error->message);
    watched.proven = true;
    watched.at = turn.now + kEvery;
    return;
  }
  ++watched.failed;
  watched.at = turn.now + (watched.failed < kFailures ? kAgainAfter : kAgainWhenWrong);
  if (watched.failed == kFailures)
    turn.record("proofs", name + (watched.proven ? " has not been proven lately"
                                                 : " does not serve yet") +
                              ": the steps of its canary fail: " + result.error->message);
}

void Canaries::differ(std::uint32_t id, Watched& watched, const KnownCanary& result,
                      const Placement& active, SupervisorTurn& turn) {
  if (!watched.differs_since) {
    watched.differs_since = turn.now;
    watched.at = turn.now;  // once more
    return;
  }
  watched.at = turn.now + kAgainWhenWrong;
  givers_.erase(watched.node);
  KnownCanary& before = rivals_[watched.node];
  if (!before.says(result)) watched.differs_since = turn.now;
  before = result;
  const std::set<NodeId> agree = rivals_with(result);
  const bool stubborn = turn.now >= *watched.differs_since + kStubborn && !any_proven();
  if (!result.tokens.empty() &&
      (stubborn || (agree.size() > givers_.size() && (agree.size() >= kDecide || doubted_)))) {
    // It is what was known that is wrong. Whoever gave it is found when its turn comes, at once.
    know(result, agree, turn);
    watched.proven = true;
    watched.differs_since.reset();
    watched.last_good = turn.now;
    for (auto& [other, its] : watched_)
      if (its.run == 0) its.at = turn.now;
    return;
  }
  const bool decided = known_ && known_->settled && !givers_.empty();
  const KnownCanary known = known_.value_or(KnownCanary{});
  const std::size_t boundaries = boundaries_of(active, id);
  const std::size_t at = first_difference(known, result, boundaries);
  const auto layer = static_cast<std::int32_t>(at / 2);
  const bool feed_forward = at % 2 == 1;
  Verdict verdict{id, {}, {}};
  const bool experts = feed_forward && std::any_of(active.experts.begin(), active.experts.end(),
                                                   [&](const auto& l) { return l.layer == layer; });
  const bool last_part = at == boundaries;
  std::string devices;
  for (const auto& shard : active.shards) {
    const bool here = last_part ? shard.last_layer + 1 == layer
                                : shard.first_layer <= layer && layer <= shard.last_layer;
    if (shard.replica != id || !here) continue;
    if (!experts && decided) verdict.nodes.insert(shard.device.node);
    devices += (devices.empty() ? "" : ", ") + to_string(shard.device);
  }
  const std::string place = last_part ? "its last part"
                                      : std::string(experts        ? "the experts"
                                                    : feed_forward ? "the feed-forward part"
                                                                   : "the attention") +
                                            " of layer " + std::to_string(layer) + " (asked by " +
                                            devices + ")";
  const auto age = std::chrono::duration_cast<std::chrono::seconds>(turn.now - watched.last_good);
  verdict.why = corrupt(
      "Replica " + std::to_string(id) + " on " + to_string(watched.node) +
      " computes otherwise than the cluster, from " + place + " on; its last good proof was " +
      (watched.proven ? std::to_string(age.count()) + " s ago." : "never given.") +
      (decided ? "" : " Nobody else could decide which of them is right; it does not serve."));
  watched.proven = false;
  verdicts_.push_back(std::move(verdict));
}

void Canaries::know(const KnownCanary& canary, std::set<NodeId> givers, SupervisorTurn& turn) {
  known_ = canary;
  known_->settled = doubted_ = false;
  givers_ = std::move(givers);
  known_since_ = turn.now;
  rivals_.clear();
  if (givers_.size() < kDecide) turn.effects.add(KeepCanary{*known_});
  settle(turn);
}

void Canaries::settle(SupervisorTurn& turn) {
  if (known_->settled || givers_.size() < kDecide) return;
  known_->settled = true;
  turn.effects.add(KeepCanary{*known_});
}

void Canaries::member_gone(NodeId node) {
  givers_.erase(node);
  rivals_.erase(node);
}

std::set<NodeId> Canaries::rivals_with(const KnownCanary& canary) const {
  std::set<NodeId> nodes;
  for (const auto& [node, rival] : rivals_)
    if (rival.says(canary)) nodes.insert(node);
  return nodes;
}

void Canaries::doubt(TimePoint since, SupervisorTurn& turn) {
  rivals_.clear();
  if (!known_ || known_since_ < since) return;
  givers_.clear();
  known_->settled = false;
  doubted_ = true;
  known_since_ = turn.now;
  turn.effects.add(KeepCanary{*known_});
  for (auto& [id, watched] : watched_) {
    watched.run = 0;  // it may have been computed with what was wrong
    watched.differs_since.reset();
    watched.at = turn.now;
  }
}

void Canaries::arrange_wake(SupervisorEffects& effects) const {
  if (waits_) return;
  for (const auto& [id, watched] : watched_)
    effects.wake_at(watched.run != 0 ? watched.at + kDeadline : watched.at);
}

std::string Canaries::violation(const Placement* active) const {
  if (!active) return watched_.empty() ? "" : "A canary is watched and nothing serves.";
  for (const auto& replica : active->replicas)
    if (!watched_.contains(replica.id))
      return "Replica " + std::to_string(replica.id) + " is in force without a canary.";
  return {};
}

}  // namespace troupe
