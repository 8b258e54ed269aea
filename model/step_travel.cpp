#include "model/step_travel.h"

#include <algorithm>
#include <string>

#include "model/forward/rank_experts.h"
#include "runtime/limits.h"

namespace troupe {

std::uint64_t step_row_bytes(const ModelSpec& model, Numerics numerics, std::uint32_t ranks) {
  const auto outputs = static_cast<std::uint64_t>(model.top_k());
  const std::uint64_t row = static_cast<std::uint64_t>(model.hidden) * sizeof(float);
  const std::uint64_t answers =
      static_cast<std::uint64_t>(model.hidden) * outputs * dtype_size(wire_type(numerics));
  if (ranks == 1) return std::max(row, answers);
  return row + answers + RankExperts::extra_row_bytes(outputs);
}

Status check_steps_travel(const ModelSpec& model, const EngineOptions& engine,
                          std::int64_t max_model_len) {
  const Numerics widest = engine.numerics.value_or(Numerics::kReference);
  const auto ranks = static_cast<std::uint32_t>(std::max(1, engine.tensor_parallel_size));
  if (const auto bytes = step_row_bytes(model, widest, ranks); bytes > limits::kBulkPayloadBytesMax)
    return invalid_argument(
        "This model's rows are too wide to travel between nodes: the outputs of the " +
        std::to_string(model.top_k()) + " experts of one token take " + std::to_string(bytes) +
        " bytes with the numerics " + std::string(to_string(widest)) + ", and a message holds " +
        std::to_string(limits::kBulkPayloadBytesMax) + ".");
  const std::int64_t blocks = (max_model_len + engine.block_size - 1) / engine.block_size;
  if (blocks > limits::kStepBlocksMax)
    return invalid_argument(
        "--block-size " + std::to_string(engine.block_size) +
        " gives a sequence of --max-model-len " + std::to_string(max_model_len) + " tokens " +
        std::to_string(blocks) + " blocks, and a step can name " +
        std::to_string(limits::kStepBlocksMax) + "; raise --block-size or lower --max-model-len.");
  return {};
}

}  // namespace troupe
