#include "actors/supervisor/proofs.h"

#include <algorithm>

#include "runtime/limits.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// What the head reads of a node's first reports before they serve, and each time meanwhile.
constexpr std::uint64_t kFirstBytes = 256u << 20;
constexpr std::uint64_t kBackgroundBytes = 64u << 20;
constexpr auto kBackgroundEvery = 2s;
/// How long anyone has to read a few tensors again.
constexpr auto kReadDeadline = 10s;
/// Tensors that are read again for a dispute, of all that differ.
constexpr std::size_t kReadAgainMax = 4;
/// Tensors of one reading of the head in the background.
constexpr std::size_t kBackgroundTensors = 256;
/// Members asked beside the two sides and the head.
constexpr std::size_t kWitnesses = 1;

std::string name_of(NodeId node) { return node == kHeadNode ? "the head" : to_string(node); }

std::string text_of(const TensorProof& proof) { return proof.tensor + " in " + proof.file; }

/// Who holds it may serve on; it must not begin to on its word alone.
Verdict undecided(NodeId node, const TensorProof& proof) {
  return {node,
          corrupt("Tensor " + text_of(proof) + " on " + to_string(node) +
                  " is not the head's, and no other node could decide; give both the same files."),
          true};
}

}  // namespace

Proofs::Proofs(const std::vector<KnownTensor>& kept) {
  for (const auto& tensor : kept) {
    known_[tensor.proof.tensor] = {tensor.proof, tensor.confirmed, false, {}};
    if (!tensor.confirmed) unconfirmed_.insert(tensor.proof.tensor);
  }
}

// --- Reports ------------------------------------------------------------------------------------

void Proofs::take(const Member& member, const TensorProofs& proofs, SupervisorTurn& turn) {
  if (proofs.fresh) return answer(member.id, proofs.tensors, proofs.error, turn);
  std::vector<TensorProof> first;
  KeepTensors keep;
  for (const auto& proof : proofs.tensors) {
    if (known_.contains(proof.tensor)) {
      compare(member.id, proof, keep);
      continue;
    }
    first_report(member.id, proof);
    first.push_back(proof);
    keep.tensors.push_back({proof, false});
  }
  if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
  read_first_reports(member.id, first, turn);
  const auto dispute = disputes_.find(member.id);
  if (dispute != disputes_.end() && dispute->second.asked.empty() &&
      dispute->second.answers.empty())
    begin(member.id, dispute->second, turn);
}

void Proofs::first_report(NodeId node, const TensorProof& proof) {
  Known& known = known_[proof.tensor];
  known.proof = proof;
  holds(node, known);
  unconfirmed_.insert(proof.tensor);
}

void Proofs::holds(NodeId node, Known& known) {
  if (known.holders.insert(node).second) held_[node].push_back(&known);
}

void Proofs::compare(NodeId node, const TensorProof& proof, KeepTensors& keep) {
  Known& known = known_.at(proof.tensor);
  if (known.proof.stored != proof.stored) {
    disputes_[node].claims.push_back(proof);
    return;
  }
  if (!known.proof.packed) known.proof.packed = proof.packed;
  if (proof.packed && known.proof.packed != proof.packed) {
    verdicts_.push_back(
        {node, corrupt(to_string(node) + " read tensor " + text_of(proof) +
                       " as others did, but made something else of it in its memory; its memory "
                       "or a processor is bad.")});
    return;
  }
  const bool second = !known.holders.empty() && !known.holders.contains(node);
  holds(node, known);
  if (second) confirm(proof.tensor, keep);
  if (known.doubted) verdicts_.push_back(undecided(node, proof));
}

void Proofs::confirm(const std::string& tensor, KeepTensors& keep) {
  Known& known = known_.at(tensor);
  if (known.confirmed) return;
  known.confirmed = true;
  known.doubted = false;
  unconfirmed_.erase(tensor);
  keep.tensors.push_back({known.proof, true});
}

void Proofs::read_first_reports(NodeId node, const std::vector<TensorProof>& proofs,
                                SupervisorTurn& turn) {
  if (proofs.empty()) return;
  ReadTensors read{next_reading_++, {}, kFirstBytes, false};
  for (const auto& proof : proofs) read.tensors.push_back(proof.tensor);
  readings_[read.reading] = {node, turn.now + kReadDeadline};
  turn.effects.add(std::move(read));
}

void Proofs::take(const TensorsRead& read, SupervisorTurn& turn) {
  readings_.erase(read.reading);
  if (read.reading == 0) background_ = false;
  if (read.fresh) return answer(kHeadNode, read.tensors, read.error, turn);
  if (read.error) {
    // Who reads nothing confirms nothing; what is claimed stays so.
    turn.record("proofs", "The head cannot read the checkpoint to confirm it: " +
                              read.error->message);
    next_background_ = turn.now + limits::kLoadRetryMax;
    return;
  }
  KeepTensors keep;
  for (const auto& proof : read.tensors) {
    const auto known = known_.find(proof.tensor);
    if (known == known_.end() || known->second.confirmed) continue;
    if (known->second.proof.stored == proof.stored)
      confirm(proof.tensor, keep);
    else
      disputes_[kHeadNode].claims.push_back(proof);
  }
  if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
  const auto dispute = disputes_.find(kHeadNode);
  if (dispute != disputes_.end() && dispute->second.asked.empty() &&
      dispute->second.answers.empty())
    begin(kHeadNode, dispute->second, turn);
}

void Proofs::member_gone(NodeId node) {
  if (const auto held = held_.extract(node); !held.empty())
    for (Known* known : held.mapped()) known->holders.erase(node);
  disputes_.erase(node);
  std::erase_if(readings_, [&](const auto& r) { return r.second.node == node; });
  for (auto& [newcomer, dispute] : disputes_) dispute.asked.erase(node);
}

bool Proofs::open_on(const std::set<NodeId>& nodes) const {
  const auto any = [&](const std::set<NodeId>& some) {
    return std::any_of(some.begin(), some.end(), [&](NodeId n) { return nodes.contains(n); });
  };
  for (const auto& [number, reading] : readings_)
    if (nodes.contains(reading.node)) return true;
  for (const auto& [newcomer, dispute] : disputes_)
    if (nodes.contains(newcomer) || any(known_.at(dispute.claims.front().tensor).holders))
      return true;
  return false;
}

// --- Disputes -----------------------------------------------------------------------------------

/// Both sides read again past the page cache, and so do the head and a witness. Against what is
/// confirmed only the newcomer does, to learn what is wrong with it.
void Proofs::begin(NodeId newcomer, Dispute& dispute, SupervisorTurn& turn) {
  const Known& known = known_.at(dispute.claims.front().tensor);
  dispute.deadline = turn.now + kReadDeadline;
  dispute.asked = {newcomer};
  if (!known.confirmed) {
    dispute.asked.insert(kHeadNode);
    if (!known.holders.empty()) dispute.asked.insert(*known.holders.begin());
    std::size_t witnesses = 0;
    for (const auto& [id, member] : turn.members.all())
      if (witnesses < kWitnesses && member.closed_reason.empty() &&
          dispute.asked.insert(id).second)
        ++witnesses;
  }
  std::vector<std::string> tensors;
  for (const auto& claim : dispute.claims)
    if (tensors.size() < kReadAgainMax) tensors.push_back(claim.tensor);
  turn.record("proofs", name_of(newcomer) + " read tensor " + text_of(dispute.claims.front()) +
                            " otherwise than " + (known.confirmed ? "the cluster knows it"
                                                                  : "another node") +
                            "; it is read again.");
  for (const NodeId node : dispute.asked) {
    if (node == kHeadNode)
      turn.effects.add(ReadTensors{next_reading_++, tensors, kFirstBytes, true});
    else
      turn.effects.send(turn.members.at(node).agent(), Prove{tensors});
  }
}

void Proofs::answer(NodeId from, const std::vector<TensorProof>& proofs,
                    const std::optional<Error>& why, SupervisorTurn& turn) {
  for (auto& [newcomer, dispute] : disputes_) {
    if (!dispute.asked.contains(from)) continue;
    const std::string& tensor = dispute.claims.front().tensor;
    const auto found = std::find_if(proofs.begin(), proofs.end(),
                                    [&](const auto& p) { return p.tensor == tensor; });
    if (found == proofs.end() && !why) continue;
    dispute.asked.erase(from);
    dispute.answers[from] =
        found == proofs.end() ? std::nullopt : std::optional<TensorProof>(*found);
  }
  decide_ready(turn);
}

void Proofs::decide_ready(SupervisorTurn& turn) {
  for (auto it = disputes_.begin(); it != disputes_.end();) {
    if (!it->second.asked.empty() && turn.now < it->second.deadline) {
      ++it;
      continue;
    }
    auto ended = disputes_.extract(it++);
    Dispute& dispute = ended.mapped();
    const std::string first = dispute.claims.front().tensor;
    drop_settled(ended.key(), dispute);
    if (dispute.claims.empty()) continue;
    if (dispute.claims.front().tensor == first) {
      decide(ended.key(), dispute, turn);
      continue;
    }
    dispute.answers.clear();
    begin(ended.key(), dispute, turn);
    disputes_.insert(std::move(ended));
  }
}

/// Another dispute has been decided for what the newcomer read.
void Proofs::drop_settled(NodeId newcomer, Dispute& dispute) {
  std::erase_if(dispute.claims, [&](const TensorProof& claim) {
    Known& known = known_.at(claim.tensor);
    if (known.proof.stored != claim.stored) return false;
    if (newcomer != kHeadNode) holds(newcomer, known);
    return true;
  });
}

void Proofs::decide(NodeId newcomer, const Dispute& dispute, SupervisorTurn& turn) {
  const TensorProof& claim = dispute.claims.front();
  Known& known = known_.at(claim.tensor);
  std::size_t for_known = 0, for_claim = 0;
  for (const auto& [node, answer] : dispute.answers) {
    for_known += answer && answer->stored == known.proof.stored ? 1 : 0;
    for_claim += answer && answer->stored == claim.stored ? 1 : 0;
  }
  if (!known.confirmed && for_claim >= 2 && for_claim > for_known)
    return adopt(newcomer, dispute, turn);

  const bool decided = known.confirmed || (for_known >= 2 && for_known > for_claim);
  const auto own = dispute.answers.find(newcomer);
  const bool misread = own != dispute.answers.end() && own->second &&
                       own->second->stored == known.proof.stored;
  std::string text = "Tensor " + text_of(claim);
  if (dispute.claims.size() > 1)
    text += " (and " + std::to_string(dispute.claims.size() - 1) + " more)";
  text += " on " + name_of(newcomer);
  if (misread)
    text += " is what the cluster serves, but was read otherwise; its memory or page cache is bad.";
  else if (decided)
    text += " is not what the cluster serves; restore the file there, or stop the cluster and "
            "start it with the other weights.";
  else
    text += " is not what was read first, and nobody else could decide; what serves stays.";
  if (newcomer != kHeadNode) {
    verdicts_.push_back({newcomer, corrupt(std::move(text))});
    return;
  }
  turn.record("proofs", text);
  next_background_ = turn.now + limits::kLoadRetryMax;
  if (decided) {
    KeepTensors keep;
    confirm(claim.tensor, keep);
    if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
    return;
  }
  known.doubted = true;
  for (const NodeId node : known.holders) verdicts_.push_back(undecided(node, claim));
}

/// The newcomer is right: what was known is not, and who holds it is wrong.
void Proofs::adopt(NodeId newcomer, const Dispute& dispute, SupervisorTurn& turn) {
  std::set<NodeId> losers;
  KeepTensors keep;
  for (const auto& claim : dispute.claims) {
    Known& known = known_.at(claim.tensor);
    losers.insert(known.holders.begin(), known.holders.end());
    known = {claim, true, false, {}};
    if (newcomer != kHeadNode) holds(newcomer, known);
    unconfirmed_.erase(claim.tensor);
    keep.tensors.push_back({claim, true});
  }
  turn.effects.add(std::move(keep));
  for (const NodeId node : losers)
    verdicts_.push_back(
        {node, corrupt("Tensor " + text_of(dispute.claims.front()) + " on " + to_string(node) +
                       " is not what " + name_of(newcomer) +
                       " and others read; restore the file there.")});
}

// ------------------------------------------------------------------------------------------------

void Proofs::on_wake(SupervisorTurn& turn) {
  std::erase_if(readings_, [&](const auto& r) { return turn.now >= r.second.deadline; });
  decide_ready(turn);
  if (background_ || unconfirmed_.empty() || turn.now < next_background_ || !readings_.empty())
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
  if (!unconfirmed_.empty() && !background_ && readings_.empty())
    effects.wake_at(std::max(now, next_background_));
}

std::string Proofs::violation() const {
  for (const auto& [node, dispute] : disputes_)
    if (dispute.claims.empty()) return "A dispute of " + name_of(node) + " is about nothing.";
  for (const auto& tensor : unconfirmed_)
    if (!known_.contains(tensor)) return "Tensor " + tensor + " is to be confirmed and not known.";
  return {};
}

}  // namespace troupe
