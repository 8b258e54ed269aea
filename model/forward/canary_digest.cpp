#include "model/forward/step.h"
#include "runtime/xxh3.h"

namespace troupe {

std::uint64_t canary_digest(const Step& step, const float* hidden) {
  const auto width = static_cast<std::size_t>(step.width);
  std::uint64_t sum = 0;
  std::size_t row = 0;
  for (const StepSequence& sequence : step.plan->sequences) {
    for (std::size_t i = 0; i < sequence.tokens.size() && sequence.canary; ++i)
      sum += xxh3_64(hidden + (row + i) * width, width * sizeof(float),
                     static_cast<std::uint64_t>(step.positions[row + i]));
    row += sequence.tokens.size();
  }
  return sum;
}

}  // namespace troupe
