#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "runtime/clock.h"
#include "transport/message.h"

namespace troupe {

/// Which heads count for a worker, and what it may grant a standby: see actors/standby/README.md.
class AgentTerm {
 public:
  /// A membership begins, in that cluster under that head; it ends.
  void joined(const std::string& cluster, Incarnation head);
  void left(const WorkerLife& life) { life_ = life; }
  /// Who may take over, as the head of the membership says.
  void heard(const Successor& successor) { successor_ = successor; }

  /// Of this worker's cluster, and older than a head that it was a member of, or has granted.
  bool outdated(const std::string& cluster, Incarnation head, TimePoint now) const;
  /// Whether that outdated head is to hear that it is one: once.
  bool tells(Incarnation head) { return std::exchange(told_, head) != head; }
  /// A standby whose term it has granted may become the head.
  bool granted(TimePoint now) const { return now < granted_until_; }
  /// What it grants that standby: its last life is over, and who was the successor then. None: it
  /// was no member of that cluster, or nothing is asked.
  std::optional<Pledge> pledge(const Standing& standing, TimePoint now);

 private:
  std::string cluster_;
  Incarnation newest_;   ///< of the heads that it was a member of
  Incarnation told_;     ///< an outdated head, that it is one
  WorkerLife life_;      ///< the last one, once it is over
  Successor successor_;  ///< as that life knew
  Incarnation granted_;  ///< the term, which counts until
  TimePoint granted_until_{};
};

}  // namespace troupe
