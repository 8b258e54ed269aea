#include "actors/supervisor/proofs.h"

#include <algorithm>
#include <iterator>

#include "runtime/limits.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr std::uint64_t kBackgroundBytes = 64u << 20;
constexpr auto kBackgroundEvery = 2s;
/// Tensors of one reading of the head in the background.
constexpr std::size_t kBackgroundTensors = 256;
/// Of what a member says of a copy.
constexpr std::size_t kReasonBytesMax = limits::kNameBytesMax;

}  // namespace

std::string text_of(const TensorProof& proof) { return proof.tensor + " in " + proof.file; }

/// Its reason is a sentence of its own, and names the device.
std::string text_of(const ProofFailed& failed, const Member& member) {
  std::string reason = failed.reason.substr(0, kReasonBytesMax);
  while (reason.ends_with('.') || reason.ends_with(' ')) reason.pop_back();
  return "Tensor " + failed.tensor.substr(0, limits::kNameBytesMax) + " in the memory of " +
         to_string(member.id) + " on " + member.inventory.host + " is not what was loaded" +
         (reason.empty() ? "" : ": " + reason) + "; its last good proof was " +
         std::to_string(failed.last_good_s) + " s ago.";
}

Proofs::Proofs(const std::vector<KnownTensor>& kept, bool head_reads) : head_reads_(head_reads) {
  for (const auto& tensor : kept) {
    known_[tensor.proof.tensor] = {tensor.proof, tensor.confirmed, false, {}};
    if (!tensor.confirmed) unconfirmed_.insert(tensor.proof.tensor);
  }
}

// --- Reports ------------------------------------------------------------------------------------

void Proofs::take(const Member& member, const TensorProofs& proofs, SupervisorTurn& turn) {
  if (!proofs.changed.empty())
    turn.record("files_changed",
                "On " + to_string(member.id) + " (" + member.inventory.host + ") " +
                    proofs.changed +
                    ". It is opened afresh: what is read of it must be what the cluster knows.");
  if (proofs.fresh) return answer(member.id, proofs.tensors, proofs.unread, proofs.reopened, turn);
  std::vector<TensorProof> first;
  KeepTensors keep;
  for (const auto& proof : proofs.tensors) {
    if (known_.contains(proof.tensor))
      compare(member.id, proof, keep);
    else
      first_report(member.id, proof, keep);
    // An earlier life of the head may have known it, and not confirmed it.
    if (alone(member.id, proof)) first.push_back(proof);
  }
  if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
  read_first_reports(member.id, first, turn);
  const auto dispute = disputes_.find(member.id);
  if (dispute != disputes_.end() && dispute->second.asked.empty() &&
      dispute->second.answers.empty())
    begin(member.id, dispute->second, turn);
}

void Proofs::first_report(NodeId node, const TensorProof& proof, KeepTensors& keep) {
  Known& known = known_[proof.tensor];
  known = {proof, false, false, {}};
  known.proof.packed.reset();
  holds(node, known, proof.packed);
  unconfirmed_.insert(proof.tensor);
  keep.tensors.push_back({known.proof, false});
}

void Proofs::holds(NodeId node, Known& known, const std::optional<Digest>& packed) {
  const auto [holder, added] = known.holders.try_emplace(node);
  if (added) held_[node].push_back(&known);
  if (packed || added) holder->second = {packed, false};
}

void Proofs::let_go(NodeId node, const std::vector<std::string>& tensors) {
  for (const auto& tensor : tensors) {
    const auto known = known_.find(tensor);
    if (known == known_.end()) continue;
    const auto holder = known->second.holders.find(node);
    if (holder != known->second.holders.end()) holder->second.let_go = true;
  }
}

/// Nobody but this node has read it so.
bool Proofs::alone(NodeId node, const TensorProof& proof) const {
  const Known& known = known_.at(proof.tensor);
  return !known.confirmed && known.proof.stored == proof.stored && only_held_by(known, {node});
}

bool Proofs::only_held_by(const Known& known, const std::set<NodeId>& nodes) const {
  return std::all_of(known.holders.begin(), known.holders.end(),
                     [&](const auto& holder) { return nodes.contains(holder.first); });
}

void Proofs::compare(NodeId node, const TensorProof& proof, KeepTensors& keep) {
  Known& known = known_.at(proof.tensor);
  if (known.proof.stored != proof.stored) {
    known.holders.erase(node);  // if it was one, it has read again
    disputes_[node].claims.push_back(proof);
    return;
  }
  const bool second = !only_held_by(known, {node});
  holds(node, known, proof.packed);
  if (second) confirm(proof.tensor, keep);
  judge_packing(node, known, keep);
  if (known.doubted) judge(undecided(node, proof));
}

/// What two packed alike is right, and who holds something else goes. One against one: the newcomer
/// does not begin to serve, and both read again what they do not serve with.
void Proofs::judge_packing(NodeId newcomer, Known& known, KeepTensors& keep) {
  std::map<Digest, std::size_t> votes;
  for (const auto& [node, copy] : known.holders)
    if (copy.packed && ++votes[*copy.packed] == 2 && !known.proof.packed) {
      known.proof.packed = copy.packed;
      keep.tensors.push_back({known.proof, known.confirmed});
    }
  Known::Copy& own = known.holders.at(newcomer);
  if (!own.packed) return;
  const std::string what = "tensor " + text_of(known.proof);
  std::set<NodeId> rivals;
  for (const auto& [node, copy] : known.holders) {
    if (!copy.packed || copy.let_go) continue;
    if (!known.proof.packed && copy.packed != own.packed) rivals.insert(node);
    if (known.proof.packed && copy.packed != known.proof.packed)
      judge({node,
             corrupt(to_string(node) + " read " + what +
                     " as others did, but made something else of it in its memory; its memory or "
                     "a processor is bad."),
             false,
             {known.proof.tensor}});
  }
  if (rivals.empty()) return;
  own.let_go = true;
  judge({newcomer,
         corrupt(to_string(newcomer) + " and " + to_string(*rivals.begin()) + " read " + what +
                 " alike but made different things of it in memory, and no third node could "
                 "decide; it is read again, and what serves stays."),
         true,
         {known.proof.tensor},
         rivals});
}

/// The first of a node's is told; one that takes it out counts more.
void Proofs::judge(Verdict verdict) {
  const auto same = std::find_if(verdicts_.begin(), verdicts_.end(),
                                 [&](const auto& other) { return other.node == verdict.node; });
  if (same == verdicts_.end()) {
    verdicts_.push_back(std::move(verdict));
    return;
  }
  if (same->may_serve_on && !verdict.may_serve_on) {
    same->may_serve_on = false;
    same->newly_read = verdict.newly_read;
    same->why = std::move(verdict.why);
  } else if (same->newly_read && !verdict.may_serve_on && !verdict.newly_read) {
    same->newly_read = false;
    same->why = std::move(verdict.why);
  }
  same->tensors.insert(same->tensors.end(), verdict.tensors.begin(), verdict.tensors.end());
  same->rivals.insert(verdict.rivals.begin(), verdict.rivals.end());
}

void Proofs::confirm(const std::string& tensor, KeepTensors& keep) {
  Known& known = known_.at(tensor);
  if (known.confirmed) return;
  known.confirmed = true;
  known.doubted = false;
  unconfirmed_.erase(tensor);
  keep.tensors.push_back({known.proof, true});
}

/// A node reports in portions: what the head reads first is counted over all of them.
void Proofs::read_first_reports(NodeId node, const std::vector<TensorProof>& proofs,
                                SupervisorTurn& turn) {
  if (proofs.empty() || !head_reads_) return;
  std::vector<std::string> names = names_of(proofs);
  const auto under_way =
      std::ranges::find_if(readings_, [&](const auto& entry) { return entry.second.node == node; });
  if (under_way != readings_.end()) {
    std::ranges::move(names, std::back_inserter(under_way->second.waiting));
    return;
  }
  const std::uint64_t left =
      std::exchange(first_left_.try_emplace(node, kFirstBytes).first->second, 0);
  if (left > 0) read_on({node, turn.now + kReadDeadline, left, std::move(names)}, turn);
}

void Proofs::version_loads() {
  first_left_.clear();
  for (auto& [number, reading] : readings_) reading.bytes_left += kFirstBytes;
}

void Proofs::read_on(Reading reading, SupervisorTurn& turn) {
  turn.effects.add(
      ReadTensors{next_reading_, std::exchange(reading.waiting, {}), reading.bytes_left, false});
  readings_.emplace(next_reading_++, std::move(reading));
}

void Proofs::take(const TensorsRead& read, SupervisorTurn& turn) {
  auto reading = readings_.extract(read.reading);
  if (read.reading == 0) background_ = false;
  if (read.fresh) return answer(kHeadNode, read.tensors, read.unread, read.reopened, turn);
  if (read.error) {
    // Who reads nothing confirms nothing; what is claimed stays so.
    turn.record("proofs",
                "The head cannot read the checkpoint to confirm it: " + read.error->message);
    next_background_ = turn.now + limits::kLoadRetryMax;
    return;
  }
  KeepTensors keep;
  for (const auto& proof : read.tensors) {
    const auto known = known_.find(proof.tensor);
    if (known == known_.end()) continue;
    if (known->second.confirmed) {
      // Others have agreed meanwhile.
      if (known->second.proof.stored != proof.stored) tell_head_differs(proof, turn);
      continue;
    }
    if (read.reopened && known->second.proof.stored != proof.stored) {
      tell_head_differs(proof, turn);  // they have changed, and decide nothing
      continue;
    }
    if (known->second.proof.stored == proof.stored)
      confirm(proof.tensor, keep);
    else
      disputes_[kHeadNode].claims.push_back(proof);
  }
  if (reading) {
    Reading& goes_on = reading.mapped();
    goes_on.bytes_left -= std::min(goes_on.bytes_left, read.bytes);
    const bool more = !goes_on.waiting.empty() && goes_on.bytes_left > 0;
    first_left_[goes_on.node] = more ? 0 : goes_on.bytes_left;
    if (more) read_on(std::move(goes_on), turn);
  }
  if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
  const auto dispute = disputes_.find(kHeadNode);
  if (dispute != disputes_.end() && dispute->second.asked.empty() &&
      dispute->second.answers.empty())
    begin(kHeadNode, dispute->second, turn);
}

/// Once.
void Proofs::tell_head_differs(const TensorProof& proof, SupervisorTurn& turn) {
  if (std::exchange(head_differs_, true)) return;
  turn.record("proofs", "Tensor " + text_of(proof) +
                            " in the head's files is not what the cluster serves; give the "
                            "head the same files.");
}

void Proofs::member_gone(NodeId node) {
  if (const auto held = held_.extract(node); !held.empty())
    for (Known* known : held.mapped()) known->holders.erase(node);
  disputes_.erase(node);
  first_left_.erase(node);
  std::erase_if(readings_, [&](const auto& r) { return r.second.node == node; });
  for (auto& [newcomer, dispute] : disputes_) dispute.asked.erase(node);
}

bool Proofs::open_on(const std::set<NodeId>& nodes) const {
  const auto any = [&](const auto& holders) {
    return std::any_of(holders.begin(), holders.end(),
                       [&](const auto& holder) { return nodes.contains(holder.first); });
  };
  for (const auto& [number, reading] : readings_)
    if (nodes.contains(reading.node)) return true;
  for (const auto& [newcomer, dispute] : disputes_)
    if (nodes.contains(newcomer) || any(known_.at(dispute.claims.front().tensor).holders))
      return true;
  return false;
}

// --- Time -------------------------------------------------------------------------------------

void Proofs::on_wake(SupervisorTurn& turn) {
  std::erase_if(readings_, [&](const auto& r) { return turn.now >= r.second.deadline; });
  decide_ready(turn);
  if (!head_reads_ || background_ || unconfirmed_.empty() || turn.now < next_background_ ||
      !readings_.empty())
    return;
  ReadTensors read{0, {}, kBackgroundBytes, false};
  for (const auto& tensor : unconfirmed_)
    if (read.tensors.size() < kBackgroundTensors) read.tensors.push_back(tensor);
  background_ = true;
  next_background_ = turn.now + kBackgroundEvery;
  turn.effects.add(std::move(read));
}

void Proofs::arrange_wake(TimePoint now, SupervisorEffects& effects) const {
  for (const auto& [number, reading] : readings_) effects.wake_at(reading.deadline);
  for (const auto& [node, dispute] : disputes_) effects.wake_at(dispute.deadline);
  if (head_reads_ && !unconfirmed_.empty() && !background_ && readings_.empty())
    effects.wake_at(std::max(now, next_background_));
}

std::string Proofs::violation() const {
  for (const auto& [node, dispute] : disputes_)
    if (dispute.claims.empty()) return "A dispute of " + to_string(node) + " is about nothing.";
  for (const auto& tensor : unconfirmed_)
    if (!known_.contains(tensor)) return "Tensor " + tensor + " is to be confirmed and not known.";
  return {};
}

}  // namespace troupe
