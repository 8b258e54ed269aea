#pragma once

#include <cstddef>
#include <string>

#include "actors/base/effects.h"
#include "actors/expert_group/expert_pass.h"

namespace troupe {

/// Only an ExpertGroup asks for it; GroupHands carries it out: the next pass takes the question.
struct AskPass {
  Envelope question;  ///< a Dispatch that fits the model
};

/// The routed experts of one device, as seen by shards elsewhere. While the device computes,
/// questions gather; the next pass takes everything that waits, whichever replicas it came from.
///
///     Dispatch ─┐
///     Dispatch ─┼─► AskPass ──one job──► pass ──► PassEnded ──► ExpertOutput each, or NotHere
///     Dispatch ─┘
class ExpertGroup {
 public:
  using Inbox = ExpertGroupInbox;
  using Effects = troupe::Effects<AskPass>;

  /// `row_bytes`: of one row of a question.
  explicit ExpertGroup(std::size_t row_bytes) : row_bytes_(row_bytes) {}

  /// The answer is NotHere beyond limits::kDispatchesWaitingMax, so that the asker tries another
  /// copy.
  void on(const Dispatch& dispatch, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(PassEnded ended, TimePoint now, Effects& effects);
  void on_wake(TimePoint, Effects&) {}
  void end_turn(TimePoint, Effects&) {}
  std::string violation() const;

 private:
  bool fits(const Dispatch& dispatch) const;
  void answer(PassAnswer answer, Effects& effects) const;

  std::size_t row_bytes_;
  std::size_t open_ = 0;  ///< questions that were handed on and are not answered
};

}  // namespace troupe
