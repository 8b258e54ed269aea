#pragma once

#include <optional>
#include <vector>

#include "actors/frontend/prepared_request.h"
#include "runtime/generation.h"
#include "tests/actors/router/serving_simulation.h"

namespace troupe::testing {

/// What a client of the simulation asked for and what it got.
struct Client {
  PreparedRequest prepared;
  std::vector<std::vector<TokenOutput>> tokens;  ///< by choice
  std::vector<FinishReason> finish;
  std::vector<TokenOutput> prompt_logprobs;
  std::optional<Error> error;
  bool begun = false, done = false, went_away = false, poison = false, hurried = false;

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
