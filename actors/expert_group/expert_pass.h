#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "actors/interfaces.h"

namespace troupe {

/// What a pass found for one question.
struct PassAnswer {
  Envelope question;  ///< a Dispatch
  MessagePtr answer;  ///< ExpertOutput or NotHere
};

/// `experts`: those that are absent; none when it is for another reason.
inline PassAnswer not_here(const Envelope& question, std::vector<std::int32_t> experts,
                           std::string reason) {
  const std::uint64_t call = std::get<Dispatch>(*question.message).call;
  return {question, message_of(NotHere{call, std::move(experts), std::move(reason)})};
}

/// Its job -> ExpertGroup: a pass has ended.
struct PassEnded {
  std::vector<PassAnswer> answers;
};

/// Who hears the answers, inside the Device's jobs.
class PassNews {
 public:
  virtual ~PassNews() = default;
  virtual void answered(std::vector<PassAnswer> answers) = 0;
};

/// The arithmetic of an ExpertGroup. Used inside the Device's jobs only. ForwardPass is the
/// model's; the simulation has its own.
class ExpertPass {
 public:
  virtual ~ExpertPass() = default;
  /// Questions are Dispatch messages that fit the model; they may be moved from. Each is answered
  /// once, now or by a later job: its rows wait in the device's ExpertPool, and keep `news`
  /// meanwhile.
  virtual void run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) = 0;
};

}  // namespace troupe
