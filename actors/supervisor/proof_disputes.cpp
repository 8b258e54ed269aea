// What is done where two have read a tensor otherwise: who reads again, and who is wrong.
#include <algorithm>
#include <iterator>

#include "actors/supervisor/proofs.h"

namespace troupe {
namespace {

/// Tensors that are read again for a dispute, of all that differ.
constexpr std::size_t kReadAgainMax = 4;
/// Members asked beside the two sides and the head.
constexpr std::size_t kWitnesses = 1;

std::string name_of(NodeId node) { return node == kHeadNode ? "the head" : to_string(node); }

}  // namespace

std::vector<std::string> names_of(const std::vector<TensorProof>& proofs) {
  std::vector<std::string> names;
  for (const auto& proof : proofs) names.push_back(proof.tensor);
  return names;
}

/// Who holds it may serve on; it must not begin to on its word alone.
Verdict undecided(NodeId node, const TensorProof& proof) {
  return {node,
          corrupt("Tensor " + text_of(proof) + " on " + to_string(node) +
                  " is not the head's, and no other node could decide; give both the same files."),
          true,
          {proof.tensor}};
}

/// Both sides read again past the page cache, and so do the head and a witness. Against what is
/// confirmed only the newcomer does, to learn what is wrong with it.
void Proofs::begin(NodeId newcomer, Dispute& dispute, SupervisorTurn& turn) {
  const Known& known = known_.at(dispute.claims.front().tensor);
  dispute.deadline = turn.now + kReadDeadline;
  dispute.asked = {newcomer};
  if (!known.confirmed) {
    if (head_reads_) dispute.asked.insert(kHeadNode);
    if (!known.holders.empty()) dispute.asked.insert(known.holders.begin()->first);
    std::size_t witnesses = 0;
    for (const auto& [id, member] : turn.members.all())
      if (witnesses < kWitnesses && member.closed_reason.empty() && dispute.asked.insert(id).second)
        ++witnesses;
  }
  std::vector<std::string> tensors;
  for (const auto& claim : dispute.claims)
    if (tensors.size() < kReadAgainMax) tensors.push_back(claim.tensor);
  turn.record("proofs", name_of(newcomer) + " read tensor " + text_of(dispute.claims.front()) +
                            " otherwise than " +
                            (known.confirmed ? "the cluster knows it" : "another node") +
                            "; it is read again.");
  for (const NodeId node : dispute.asked) {
    if (node == kHeadNode)
      turn.effects.add(ReadTensors{next_reading_++, tensors, kFirstBytes, true});
    else
      turn.effects.send(turn.members.at(node).agent(), Prove{tensors});
  }
}

/// Who is asked in several disputes answers each by itself. `reopened`: of files that have changed.
void Proofs::answer(NodeId from, const std::vector<TensorProof>& proofs,
                    const std::vector<std::string>& unread, bool reopened,
                    SupervisorTurn& turn) {
  for (auto& [newcomer, dispute] : disputes_) {
    if (!dispute.asked.contains(from)) continue;
    const std::string& tensor = dispute.claims.front().tensor;
    const auto found = std::find_if(proofs.begin(), proofs.end(),
                                    [&](const auto& p) { return p.tensor == tensor; });
    if (found == proofs.end() && std::ranges::find(unread, tensor) == unread.end()) continue;
    dispute.asked.erase(from);
    // What changed files say now is no witness of what they were.
    const bool counts = found != proofs.end() &&
                        (!reopened || found->stored == known_.at(tensor).proof.stored);
    dispute.answers[from] = counts ? std::optional<TensorProof>(*found) : std::nullopt;
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
    KeepTensors keep;
    drop_settled(ended.key(), dispute, keep);
    if (!keep.tensors.empty()) turn.effects.add(std::move(keep));
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
void Proofs::drop_settled(NodeId newcomer, Dispute& dispute, KeepTensors& keep) {
  std::erase_if(dispute.claims, [&](const TensorProof& claim) {
    Known& known = known_.at(claim.tensor);
    if (known.proof.stored != claim.stored) return false;
    if (newcomer == kHeadNode) return true;
    holds(newcomer, known, claim.packed);
    judge_packing(newcomer, known, keep);
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

  // Nobody here has read what an earlier life of the head noted.
  const bool remembered = known.confirmed && known.holders.empty();
  const bool decided = known.confirmed || (for_known >= 2 && for_known > for_claim);
  const auto own = dispute.answers.find(newcomer);
  const bool misread =
      own != dispute.answers.end() && own->second && own->second->stored == known.proof.stored;
  std::string text = "Tensor " + text_of(claim);
  if (dispute.claims.size() > 1)
    text += " (and " + std::to_string(dispute.claims.size() - 1) + " more)";
  text += " on " + name_of(newcomer);
  if (misread)
    text += " is what the cluster serves, but was read otherwise; its memory or page cache is bad.";
  else if (remembered)
    text +=
        " is not what the cluster served when the head last ran, and nobody here has read that. "
        "Restore the file, or stop the cluster (`troupe stop`) and start it with these weights; if "
        "all nodes have right ones, the file 'known' in the head's state folder is wrong: delete "
        "it, and start the head again.";
  else if (decided)
    text +=
        " is not what the cluster serves; restore the file there, or stop the cluster and "
        "start it with the other weights.";
  else
    text += " is not what was read first, and nobody else could decide; what serves stays.";
  if (newcomer != kHeadNode) {
    judge({newcomer, corrupt(std::move(text)), remembered && !misread, names_of(dispute.claims),
           {}, !misread});
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
  // Nor could they about the others.
  for (const auto& other : dispute.claims) {
    Known& doubted = known_.at(other.tensor);
    if (doubted.confirmed || doubted.proof.stored == other.stored) continue;
    doubted.doubted = true;
    for (const auto& [node, copy] : doubted.holders) judge(undecided(node, other));
  }
}

/// The newcomer is right about the first: what was known is not, and who holds it is wrong. Its
/// other claims stand where only the losers say otherwise; the rest is another dispute.
void Proofs::adopt(NodeId newcomer, const Dispute& dispute, SupervisorTurn& turn) {
  const TensorProof& decided = dispute.claims.front();
  std::set<NodeId> losers;
  for (const auto& [node, copy] : known_.at(decided.tensor).holders) losers.insert(node);
  KeepTensors keep;
  Dispute rest;
  std::vector<TensorProof> first;
  for (const auto& claim : dispute.claims) {
    Known& known = known_.at(claim.tensor);
    if (&claim != &decided && (known.confirmed || !only_held_by(known, losers))) {
      rest.claims.push_back(claim);
      continue;
    }
    if (newcomer != kHeadNode) {
      first_report(newcomer, claim, keep);
      if (&claim != &decided) first.push_back(claim);
    } else {
      known = {claim, false, false, {}};
      keep.tensors.push_back({claim, false});
    }
  }
  confirm(decided.tensor, keep);
  turn.effects.add(std::move(keep));
  read_first_reports(newcomer, first, turn);
  for (const NodeId node : losers)
    judge({node,
           corrupt("Tensor " + text_of(decided) + " on " + to_string(node) + " is not what " +
                   name_of(newcomer) + " and others read; restore the file there."),
           false, names_of(dispute.claims)});
  if (rest.claims.empty()) return;
  begin(newcomer, rest, turn);
  disputes_.emplace(newcomer, std::move(rest));
}

}  // namespace troupe
