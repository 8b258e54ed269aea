#include "runtime/sampling_params.h"

#include <tuple>

namespace troupe {

bool SamplingParams::operator==(const SamplingParams& other) const {
  const auto numbers = [](const SamplingParams& s) {
    return std::tie(s.temperature, s.top_p, s.top_k, s.min_p, s.repetition_penalty,
                    s.presence_penalty, s.frequency_penalty, s.seed, s.choice, s.top_logprobs);
  };
  if (numbers(*this) != numbers(other)) return false;
  return rules == other.rules || (rules && other.rules && *rules == *other.rules);
}

}  // namespace troupe
