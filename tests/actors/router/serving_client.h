#pragma once

#include <optional>
#include <vector>

#include "runtime/generation.h"
#include "runtime/prepared_request.h"
#include "tests/actors/router/serving_simulation.h"

namespace troupe::testing {

/// What a client of the simulation asked for and what it got.
struct Client {
  PreparedRequest prepared;
  std::vector<std::vector<TokenOutput>> tokens;  ///< by choice
  std::vector<FinishReason> finish;
  std::vector<TokenOutput> prompt_logprobs;
  std::vector<float> hidden;
  std::optional<Error> error;
  bool begun = false, done = false, went_away = false, poison = false, hurried = false;

  /// It wants hidden states instead of an answer.
  void pool(Pooling pooling);
  /// Its request was accepted.
  void begin();
  void receive(const GenerationEvent& event);
  /// At the end: it has exactly its tokens, or an error that it may have.
  void check(SimulationReport& report) const;

 private:
  void check_error(SimulationReport& report) const;
  void check_choice(std::uint32_t choice, SimulationReport& report) const;
};

}  // namespace troupe::testing
