#pragma once

#include <cstdint>
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

/// The arithmetic of an ExpertGroup: one grouped pass a layer over everything that waits. Used
/// inside the Device's jobs only. ForwardPass is the model's; the simulation has its own.
class ExpertPass {
 public:
  virtual ~ExpertPass() = default;
  /// An answer for each question. Questions are Dispatch messages that fit the model.
  virtual std::vector<PassAnswer> run(std::vector<Envelope> questions) = 0;
};

}  // namespace troupe
