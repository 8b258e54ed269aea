#include "model/forward/step.h"
#include "model/kv_cache.h"

namespace troupe {

void list_tokens(Step& step, KvCache& cache) {
  step.tokens.clear();
  step.positions.clear();
  step.tables.clear();
  step.canary = false;
  step.digests.clear();
  const std::int32_t size = cache.block_size();
  for (const auto& sequence : step.plan->sequences) {
    std::int32_t position = sequence.first_position;
    step.canary |= sequence.canary;
    for (const TokenId token : sequence.tokens) {
      step.tokens.push_back(token);
      step.positions.push_back(position);
      step.tables.push_back(sequence.block_table.data());
      const auto block =
          static_cast<std::size_t>(sequence.block_table[static_cast<std::size_t>(position / size)]);
      cache.tokens()[block * static_cast<std::size_t>(size) +
                     static_cast<std::size_t>(position % size)] = token;
      ++position;
    }
  }
}

}  // namespace troupe
