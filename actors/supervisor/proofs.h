#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/turn.h"

namespace troupe {

/// A node is wrong: its copies are not what the cluster serves.
struct Verdict {
  NodeId node;
  Error why;                              ///< names tensor, node and file
  bool may_serve_on = false;              ///< nothing new on its word, but what serves stays
  std::vector<std::string> tensors = {};  ///< it must read them again before it uses them
  std::set<NodeId> rivals = {};           ///< they packed otherwise, and read again if they may
  bool newly_read = false;                ///< what it serves with may be right all the same
};

/// "model.norm.weight in model.safetensors".
std::string text_of(const TensorProof& proof);
std::vector<std::string> names_of(const std::vector<TensorProof>& proofs);
/// Of a tensor that the node holds and the head read otherwise, where nobody could decide.
Verdict undecided(NodeId node, const TensorProof& proof);
/// What people hear of a copy that is not any more what the member has loaded.
std::string text_of(const ProofFailed& failed, const Member& member);

/// What the cluster knows of the weights' bytes, and who is wrong when two readings differ.
///
///     first report ─► claimed ── a second reader agrees ─► confirmed, until the cluster is stopped
///                        │
///     another report ────┴─► dispute: both sides, the head and others read again ─► verdict
///
/// What is confirmed is what the cluster serves: who reads something else is wrong. What is only
/// claimed is decided by two of three; if they cannot, what came first stays. The head reads a part
/// of every first report before it serves (all of it for a small model), the rest meanwhile.
/// One that has no weights reads nothing: then only another node confirms.
///
/// How the bytes lie packed in memory is for the nodes alone to say: what two of them packed alike
/// is settled. Before that, two that differ both read again, and only what serves stays.
class Proofs {
 public:
  Proofs(const std::vector<KnownTensor>& kept, bool head_reads);

  void take(const Member& member, const TensorProofs& proofs, SupervisorTurn& turn);
  /// The head has read.
  void take(const TensorsRead& read, SupervisorTurn& turn);
  void member_gone(NodeId node);
  /// Of what is reported from now on, a part is read first again.
  void version_loads();
  /// It discards what it made of these, if it serves with none of it: that accuses nobody any more.
  void let_go(NodeId node, const std::vector<std::string>& tensors);
  /// A dispute or a first reading that concerns one of these nodes is open.
  bool open_on(const std::set<NodeId>& nodes) const;
  /// At most one of a node.
  std::vector<Verdict> take_verdicts() { return std::exchange(verdicts_, {}); }

  void on_wake(SupervisorTurn& turn);
  void arrange_wake(TimePoint now, SupervisorEffects& effects) const;

  std::size_t known() const { return known_.size(); }
  std::size_t unconfirmed() const { return unconfirmed_.size(); }
  std::string violation() const;

 private:
  struct Known {
    TensorProof proof;  ///< packed: once two have packed it alike
    bool confirmed = false;
    bool doubted = false;  ///< the head read otherwise, and nobody could decide
    struct Copy {
      std::optional<Digest> packed;
      bool let_go = false;  ///< it was to be read again, which has not been told yet
    };
    std::map<NodeId, Copy> holders;  ///< members whose copies were made of these bytes
  };
  /// What the head reads of a node's first reports before they serve, and each time meanwhile.
  static constexpr std::uint64_t kFirstBytes = 256u << 20;
  /// How long anyone has to read a few tensors again.
  static constexpr Duration kReadDeadline = std::chrono::seconds(10);
  /// Somebody read otherwise than what is known.
  struct Dispute {
    std::vector<TensorProof> claims;  ///< as the newcomer read them; the first is decided on
    std::set<NodeId> asked;           ///< who has not answered yet; kHeadNode: the head
    std::map<NodeId, std::optional<TensorProof>> answers;  ///< none: it could not read
    TimePoint deadline{};
  };
  /// A read of the head that a version waits for.
  struct Reading {
    NodeId node;  ///< whose first reports it reads
    TimePoint deadline{};
    std::uint64_t bytes_left = 0;      ///< to read before they serve
    std::vector<std::string> waiting;  ///< reported while it was under way
  };

  void first_report(NodeId node, const TensorProof& proof, KeepTensors& keep);
  void compare(NodeId node, const TensorProof& proof, KeepTensors& keep);
  void holds(NodeId node, Known& known, const std::optional<Digest>& packed);
  void judge_packing(NodeId newcomer, Known& known, KeepTensors& keep);
  void judge(Verdict verdict);
  bool alone(NodeId node, const TensorProof& proof) const;
  bool only_held_by(const Known& known, const std::set<NodeId>& nodes) const;
  void confirm(const std::string& tensor, KeepTensors& keep);
  void read_first_reports(NodeId node, const std::vector<TensorProof>& proofs,
                          SupervisorTurn& turn);
  void read_on(Reading reading, SupervisorTurn& turn);
  void begin(NodeId newcomer, Dispute& dispute, SupervisorTurn& turn);
  void answer(NodeId from, const std::vector<TensorProof>& proofs,
              const std::vector<std::string>& unread, bool reopened, SupervisorTurn& turn);
  void tell_head_differs(const TensorProof& proof, SupervisorTurn& turn);
  void decide_ready(SupervisorTurn& turn);
  void drop_settled(NodeId newcomer, Dispute& dispute, KeepTensors& keep);
  void decide(NodeId newcomer, const Dispute& dispute, SupervisorTurn& turn);
  void adopt(NodeId newcomer, const Dispute& dispute, SupervisorTurn& turn);

  const bool head_reads_;
  std::map<std::string, Known, std::less<>> known_;
  std::map<NodeId, std::vector<Known*>> held_;  ///< what each member was a holder of
  std::set<std::string> unconfirmed_;
  std::map<NodeId, Dispute> disputes_;         ///< by who read otherwise; kHeadNode: the head
  std::map<std::uint64_t, Reading> readings_;  ///< by number
  /// Bytes of this version's reports still to read first; 0 while a reading has them.
  std::map<NodeId, std::uint64_t> first_left_;
  std::uint64_t next_reading_ = 1;
  bool background_ = false;    ///< the head reads what is left to confirm
  bool head_differs_ = false;  ///< from what was confirmed: said once
  TimePoint next_background_{};
  std::vector<Verdict> verdicts_;
};

}  // namespace troupe
