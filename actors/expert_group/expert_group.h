#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "actors/base/effects.h"
#include "actors/expert_group/expert_pass.h"
#include "runtime/flat.h"

namespace troupe {

/// Only an ExpertGroup asks for it; GroupHands carries it out: the next pass takes the question.
struct AskPass {
  Envelope question;  ///< a Dispatch that fits the model
};

/// Tell those who asked that their answers take long and are worked on, if the device makes
/// progress.
struct SayAtWork {
  struct Asker {
    Address shard;
    ExpertProgress progress;
  };
  std::vector<Asker> askers;
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
  using Effects = troupe::Effects<AskPass, SayAtWork>;

  /// `row_bytes`: of one row of a question.
  explicit ExpertGroup(std::size_t row_bytes) : row_bytes_(row_bytes) {}

  /// The answer is NotHere beyond limits::kDispatchesWaitingMax, so that the asker tries another
  /// copy.
  void on(const Dispatch& dispatch, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(const Undeliverable& lost, const Envelope& envelope, TimePoint now, Effects& effects);
  void on(PassEnded ended, TimePoint now, Effects& effects);
  void on_wake(TimePoint now, Effects& effects);
  void end_turn(TimePoint now, Effects& effects);
  std::string violation() const;

 private:
  bool fits(const Dispatch& dispatch) const;
  void answer(PassAnswer answer, Effects& effects) const;

  std::size_t row_bytes_;
  /// Questions that were handed on and are not answered: who asked, and the number there.
  FlatSet<std::pair<Address, std::uint64_t>> open_;
  bool unasked_ = false;  ///< an answer came that nobody asked for
  TimePoint say_at_{};    ///< when those who wait hear next that the device works
};

}  // namespace troupe
