#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/supervisor/turn.h"

namespace troupe {

/// Whether every replica computes the same. Each computes the same 64 tokens before it serves and
/// about once a minute while it does; what comes of it is compared with what is known.
///
///     new ── RunCanary ─► the known result ─► proven: it serves ── a minute ─► RunCanary ...
///                          another one ─► once more ─► another one again: it is wrong
///                          its step failed ─► again, soon: that says nothing of who is wrong
///                          no room for it ─► proven: nothing can be said
///
/// What came first is known, and kept until the cluster is stopped. It is settled when two nodes
/// have given it: then, if one that gives it lives, who gives something else is wrong; else its
/// replica only does not serve.
/// Two nodes or more that agree on something else, and are more than the living that give what is
/// known, make theirs known instead. If nothing serves, what is known may be wrong, of a copy that
/// was let go since or a core that is gone: what one gives again and again, while every core is
/// asked all its questions, is known instead. What was given while a copy or a device was wrong, as
/// is found later, counts for nothing: one alone may then say something else. A node that is gone
/// says nothing any more, so that none counts twice.
class Canaries {
 public:
  /// `kept`: of an earlier life of the head, if it asked the same. This one began at `started`.
  Canaries(std::optional<KnownCanary> kept, const SupervisorOptions& options);

  /// A replica computes otherwise; `layer` is the first that does.
  struct Verdict {
    std::uint32_t replica = 0;
    /// One of whose devices is wrong: all that have a rank of a stage, since each has a part of
    /// every sum and all go on with what comes of it. None: some expert of that layer is.
    std::set<NodeId> nodes;
    Error why;
  };

  /// These replicas are in force.
  void follow(const Placement& active, TimePoint now);
  /// They are an earlier head's and do not know of this one yet: none proves itself before soon().
  void wait() { waits_ = true; }
  /// What they compute with has changed: they prove themselves again before a minute has passed.
  void soon(TimePoint now);
  void member_gone(NodeId node);
  /// Something has been wrong, at most since then.
  void doubt(TimePoint since, SupervisorTurn& turn);
  bool proven(std::uint32_t replica) const;
  bool any_proven() const;
  /// Of a replica's own node. Returns whether more or fewer replicas are proven now.
  bool take(const CanaryResult& result, NodeId from, const Placement& active, SupervisorTurn& turn);
  std::vector<Verdict> take_verdicts() { return std::exchange(verdicts_, {}); }
  /// Sends what is due.
  void on_wake(SupervisorTurn& turn);
  void arrange_wake(SupervisorEffects& effects) const;
  std::string violation(const Placement* active) const;

 private:
  struct Watched {
    NodeId node;
    bool proven = false;
    std::optional<TimePoint> differs_since;  ///< it gives the same other result
    std::uint64_t run = 0;                   ///< that is under way; 0: none
    TimePoint at{};                          ///< when it began, or the next one is due
    TimePoint last_good{};
    std::uint32_t failed = 0;                ///< runs in a row whose step failed
  };

  void take_error(std::uint32_t id, Watched& watched, const CanaryResult& result,
                  SupervisorTurn& turn);
  void know(const KnownCanary& canary, std::set<NodeId> givers, SupervisorTurn& turn);
  void settle(SupervisorTurn& turn);
  std::set<NodeId> rivals_with(const KnownCanary& canary) const;
  void differ(std::uint32_t id, Watched& watched, const KnownCanary& result,
              const Placement& active, SupervisorTurn& turn);

  std::optional<KnownCanary> known_;
  std::set<NodeId> givers_;  ///< of what is known: members
  bool doubted_ = false;     ///< it was given while something was wrong
  TimePoint known_since_{};  ///< the first of them
  bool waits_ = false;
  std::map<std::uint32_t, Watched> watched_;
  /// What nodes gave that is not known; at most one a node.
  std::map<NodeId, KnownCanary> rivals_;
  std::uint64_t next_run_ = 1;
  std::vector<Verdict> verdicts_;
};

}  // namespace troupe
