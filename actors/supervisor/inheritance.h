#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "actors/supervisor/membership.h"
#include "model/placement/replan.h"

namespace troupe {

/// What workers have kept of an earlier head, which is gone: the version that was in force, and
/// their lives, with the KV caches that they have filled. Whoever says the same as the first one
/// goes on with it; the others begin a new life.
///
///     nothing ── the first who has kept a role ──► waits ── all are back, or it is time ──► taken
///        └──────────────── it is time, or nothing is expected ─────────────────────────────────▲
class Inheritance {
 public:
  /// `expected`: an earlier head served, and was not stopped. Then nothing is planned before the
  /// workers that it had have had time to come back.
  explicit Inheritance(bool expected) : expected_(expected) {}

  /// Whether the life that this worker has kept goes on; asked once for each that joins, before
  /// it is a member. `model`: of the numerics that all compute with. With the first one that has a
  /// newer version nobody goes on who has an older one: see take_superseded().
  bool goes_on(const Join& join, const SupervisorOptions& options, const Membership& members,
               const ModelCosts& model, TimePoint now);
  /// Members that have kept an older version: they have to begin a new life.
  std::vector<NodeId> take_superseded() { return std::exchange(superseded_, {}); }
  /// Whether more of them may come.
  bool waits(const Membership& members, TimePoint now) const;
  std::optional<TimePoint> deadline() const { return deadline_; }

  struct Taken {
    Placement placement;             ///< as far as it lives
    bool whole = false;              ///< all of it does
    bool shards_left = false;        ///< of replicas that have lost a device of a node that goes on
    std::int32_t step_tokens = 0;    ///< of its replicas
    std::uint32_t next_replica = 0;  ///< no replica of it had that number, or a higher one
    std::set<NodeId> nodes;          ///< that go on
    std::set<NodeId> missing;        ///< that had a part, and do not
  };
  /// None: nobody goes on. Nobody does from now on.
  std::optional<Taken> take(const Membership& members);

 private:
  enum class State : std::uint8_t { kNothing, kWaits, kTaken };
  bool may_go_on(const Join& join, const SupervisorOptions& options,
                 const Membership& members) const;
  bool sound(const Join& join, const SupervisorOptions& options, const Membership& members,
             const ModelCosts& model) const;
  bool fits_the_first(const Join& join) const;
  bool present(NodeId node, const Membership& members) const;

  bool expected_;
  State state_ = State::kNothing;
  HeldRole role_;           // as the first one had it
  std::set<NodeId> nodes_;  // of its placement
  std::set<NodeId> lost_;   // of them, as any of them has heard
  std::map<NodeId, Incarnation> accepted_;
  std::vector<NodeId> superseded_;
  std::optional<TimePoint> deadline_;  // from the first that joins on
};

}  // namespace troupe
