#include "model/placement/advice.h"

#include <algorithm>
#include <vector>

#include "runtime/byte_size.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

std::string sentence(const std::string& raise, const std::vector<std::string>& lower) {
  std::string text = "Add devices or memory";
  if (!raise.empty()) text += (lower.empty() ? ", or raise " : ", raise ") + raise;
  for (std::size_t i = 0; i < lower.size(); ++i)
    text += (i == 0 ? ", or lower " : i + 1 < lower.size() ? ", " : " or ") + lower[i];
  return text + ".";
}

}  // namespace

std::string bytes_text(std::uint64_t bytes) {
  return std::to_string(bytes) + " bytes (" + format_byte_size(bytes) + ")";
}

std::string advice_for_experts(const EngineOptions& engine) {
  if (engine.redundant_experts == 0) return sentence("", {});
  return sentence("", {"--redundant-experts"});
}

std::string advice_for_shards(const EngineOptions& engine, const ShardNeed& need) {
  std::vector<std::string> lower;
  if (engine.kv_cache_memory > need.sequence_bytes && engine.kv_cache_memory > need.lacking)
    lower.push_back("--kv-cache-memory");
  if (engine.max_model_len > engine.block_size &&
      std::max(engine.kv_cache_memory, need.sequence_bytes) > need.lacking)
    lower.push_back("--max-model-len");
  if (engine.data_parallel_size > 1) lower.push_back("--data-parallel-size");
  if (engine.redundant_experts > 0) lower.push_back("--redundant-experts");
  const bool can_be_cut = engine.pipeline_parallel_size < static_cast<std::int64_t>(need.layers);
  const bool can_be_split =
      engine.tensor_parallel_size < static_cast<std::int32_t>(limits::kTensorRanksMax);
  std::string raise = can_be_split ? "--tensor-parallel-size" : "";
  if (can_be_cut) raise += std::string(can_be_split ? " or " : "") + "--pipeline-parallel-size";
  return sentence(raise, lower);
}

}  // namespace troupe
